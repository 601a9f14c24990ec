//! Keys, slots, and queries of all segments together.

use std::collections::HashSet;
use std::time::Duration;

use distlock::{Acquire, Error, Flavour, NotHeld, Released, Striped};
use distlock_support::slot_of;

use crate::segments::{SEGMENTS, any};
use bed::{reentrant, secs};

/// A key's segment never changes, because other processes and other versions compute it too.
#[tokio::test]
async fn segment_of_key_is_stable_and_evenly_spread() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let of = |segments: usize, key: &str| client.striped("x", segments).segment_of(key).unwrap();
        let keys = ["", "a", "b", "order:1", "order:2", "ключ", "a rather long key, longer than any word"];
        let golden: Vec<_> = [2, 8, 1_000].map(|n| keys.map(|key| of(n, key))).to_vec();
        assert_eq!(golden, GOLDEN, "other numbers than before");
        let striped = client.striped("other", 8);
        assert_eq!(
            striped.segment_of([0_u8, 255]),
            Striped::over(&client, Flavour::Fair, "x", 8).segment_of([0_u8, 255])
        );
        // Every key has a segment, and keys are spread evenly.
        let mut seen = [0_u32; 8];
        for n in 0..8_000 {
            seen[striped.segment_of(format!("key {n}")).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert_eq!(client.striped("x", 1).segment_of("a"), Some(0));
        assert_eq!(client.striped("x", 0).segment_of("a"), None);
    })
    .await;
}

/// Another program in another language computed these segments (`docs/wire-format.md` has the function).
const GOLDEN: [[usize; 7]; 3] = [[1, 0, 1, 1, 0, 1, 1], [1, 0, 1, 5, 0, 7, 1], [641, 864, 393, 293, 512, 247, 697]];

/// With a hash tag, all segments are in one slot.
#[tokio::test]
async fn segments_are_spread_over_the_slots_of_a_cluster() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let slots = |name: &str| -> HashSet<u16> {
            let segments = client.striped(name, 8);
            (0..8).map(|n| slot_of(segments.segment(n).unwrap().name())).collect()
        };
        for name in ["tickets", "a", "orders:42", "x{", "{}{one}"] {
            assert!(slots(name).len() >= 6, "{name}: {:?}", slots(name));
        }
        for (name, tag) in [("tickets{one}", "one"), ("{one}tickets", "one"), ("x{{one}", "{one")] {
            assert_eq!(slots(name), [slot_of(tag)].into(), "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn striped_lock_without_segments_is_refused() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let me = client.owner();
        let none = client.striped("x", 0);
        assert!(none.is_empty() && none.segment(0).is_none());
        let config = |error: Error| assert!(matches!(error, Error::Config { .. }), "{error:?}");
        config(none.try_lock().await.unwrap_err());
        config(none.lock().await.unwrap_err());
        config(none.acquire_any(Acquire::new().wait(secs(1))).await.unwrap_err());
        config(none.state().await.unwrap_err());
        config(none.force_unlock().await.unwrap_err());
        config(none.release(&me).await.unwrap_err());
        config(none.all().lock().await.unwrap_err());
        config(client.striped("x", 3).lock_leased(Duration::ZERO).await.unwrap_err());
    })
    .await;
}

#[tokio::test]
async fn state_release_and_force_unlock_apply_to_all_segments() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let striped = client.striped("s", SEGMENTS);
        let (me, you) = (client.owner(), other.owner());
        assert!(!striped.is_locked().await.unwrap() && striped.remaining_ttl().await.unwrap().is_none());
        let one = striped.acquire(Acquire::new().owner(&me).lease(secs(5_000))).await.unwrap().unwrap();
        let two = striped.acquire(Acquire::new().owner(&you).lease(secs(9_000))).await.unwrap().unwrap();
        assert_ne!(one.name(), two.name());
        let state = striped.state().await.unwrap();
        assert_eq!(state.holders.len(), 2);
        assert_eq!((state.hold_count(&me), state.hold_count(&you)), (1, 1));
        assert!(state.remaining.is_some_and(|left| left > secs(5_000) && left <= secs(9_000)), "{state:?}");
        // The hold count is the sum over an owner's segments, each with one hold or several.
        let at: usize = one.name().rsplit_once(':').unwrap().1.parse().unwrap();
        let again = striped.segment(at).unwrap().acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        assert_eq!(striped.hold_count(&me).await.unwrap(), 2);
        assert_eq!(again.unlock().await.unwrap(), Released::StillHeld(1));
        // Another client releases a given-up hold (a hold without a guard) by its owner, whichever segment it is.
        let me = one.into_owner();
        assert_eq!(other.striped("s", SEGMENTS).release(&me).await.unwrap(), Released::Free);
        let error = striped.release(&me).await.unwrap_err();
        let told = matches!(&error, Error::NotHeld { name, why: NotHeld::Never } if &**name == "s");
        assert!(told, "{error:?}");
        assert_eq!(bed.admin.keys().await, [two.name()]);
        let third = any(&striped).await.1;
        assert!(striped.force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(!striped.force_unlock().await.unwrap());
        assert!(third.unlock().await.is_err() && two.unlock().await.is_err());
    })
    .await;
}

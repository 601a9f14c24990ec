//! Intended differences from Redisson: what Redisson does, and what this crate does.

use distlock_support::agent::Kind;

use crate::listener::Listener;
use crate::reentry::Step::{Leased, Lock, Unlock};
use crate::reentry::{Ours, Step, Theirs};
use crate::rig::{NEVER, Rig, WATCHDOG, lasting, ms, renewed, replied, until};
use crate::rw_rig::{Doc, enter};

/// The watchdog's lease of both sides, in seconds.
const USUAL: u64 = NEVER.as_secs();

/// Each step with its resulting lease in seconds: in Redisson, and in this crate.
type Row = &'static [(Step, u64, u64)];

const ROWS: [Row; 4] = [
    // In Redisson, a shorter inner lease shortens the outer lease, even after the inner release.
    &[(Leased(9_000), 9_000, 9_000), (Leased(2_000), 2_000, 9_000), (Unlock, 2_000, 9_000)],
    &[(Lock, USUAL, USUAL), (Leased(2_000), 2_000, USUAL), (Unlock, 2_000, USUAL)],
    // In Redisson, a longer inner lease outlasts its release. Here, the outer lease is restored.
    &[(Leased(5_000), 5_000, 5_000), (Leased(9_000), 9_000, 9_000), (Unlock, 9_000, 5_000)],
    // Redisson starts a watched hold with the lock object's last lease.
    &[(Leased(2_000), 2_000, 2_000), (Lock, 2_000, USUAL), (Unlock, 2_000, 2_000)],
];

pub async fn inner_shorter_lease_does_not_shorten_the_outer_lease(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    for (number, row) in ROWS.iter().enumerate() {
        let (a, b) = (format!("java:{number}:x"), format!("rust:{number}:x"));
        let (theirs, mut ours) = (Theirs::new(&rig, &listener, &a), Ours::new(&rig, &listener, &client, &b));
        for (step, in_redisson, with_us) in *row {
            let (left_by_them, left_by_us) = (theirs.take(*step).await, ours.take(*step).await);
            left_by_them.assert_lease(&format!("{version}, {step:?} of {row:?}, Redisson"), *in_redisson);
            left_by_us.assert_lease(&format!("{version}, {step:?} of {row:?}, we"), *with_us);
            assert_eq!(left_by_us.counts, left_by_them.counts, "{step:?} of {row:?}");
        }
        theirs.take(Unlock).await;
        ours.take(Unlock).await;
    }
    drop(listener);
    rig.end([client]).await;
}

/// Kinds of the holds below. Redisson has these bugs in all of them.
const KINDS: [Kind; 3] = [Kind::Reentrant, Kind::Read, Kind::Write];

fn names(kind: Kind) -> [String; 2] {
    ["theirs", "ours"].map(|whose| format!("{whose}:{}", kind.as_str()))
}

/// A leased hold inside a watched one is released: Redisson stops the watchdog of the outer hold, and ours continues.
pub async fn outer_hold_is_renewed_after_inner_release(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let case = async |kind: Kind| {
        let [a, b] = names(kind);
        let (java, owner) = (rig.agents[0].at(kind, &a, 1), client.owner());
        replied(java.lock()).await;
        replied(java.lock_for(WATCHDOG)).await;
        replied(java.unlock()).await;
        let guard = enter(&client, kind, &b, &owner, None).await;
        enter(&client, kind, &b, &owner, Some(WATCHDOG)).await.unlock().await.expect("unlock");
        let gone = async || !rig.admin.exists(&a).await;
        until(&format!("{a} to lapse: Redisson has learnt to keep the outer hold"), gone).await;
        // After a whole lease, our lock exists only because it is renewed.
        renewed(&rig.admin, &b).await;
        assert!(guard.is_held(), "{b}: the outer hold was not kept");
        let held = rig.admin.hgetall(&b).await;
        assert!(held.iter().any(|(field, count)| field.starts_with(owner.as_str()) && count == "1"), "{b}: {held:?}");
        guard.unlock().await.expect("unlock");
    };
    let [reentrant, read, write] = KINDS;
    tokio::join!(case(reentrant), case(read), case(write));
    rig.end([client]).await;
}

/// In Redisson, an expired lease applies to the next hold of the same lock object. Here, a lease belongs to one
/// acquire.
pub async fn expired_lease_does_not_apply_to_next_hold(version: &str) {
    const BRIEF: i64 = 300;
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for kind in KINDS {
        let [a, b] = names(kind);
        let (theirs, ours) = (Doc::new(&rig, &a), Doc::new(&rig, &b));
        let (java, owner, lease) = (theirs.java(0, kind, 1), client.owner(), ms(BRIEF as u64));
        replied(java.lock_for(lease)).await;
        let guard = enter(&client, kind, &b, &owner, Some(lease)).await;
        theirs.is_gone().await;
        ours.is_gone().await;
        assert!(guard.unlock().await.is_err(), "{b}");
        replied(java.lock()).await;
        let guard = enter(&client, kind, &b, &owner, None).await;
        let (seen, mine) = (theirs.look().await, ours.look().await);
        assert!(seen.ttl <= BRIEF, "{a}: Redisson has learnt to forget a lease: {seen:?}");
        assert!(mine.ttl > BRIEF && mine.covers.values().all(|left| *left > BRIEF), "{b}: {mine:?}");
        theirs.until("nothing, although Java's watchdog is on,", |seen| seen.fields.is_empty()).await;
        guard.unlock().await.expect("unlock");
    }
    rig.end([client]).await;
}

//! Renewal of the hash and of every cover (key that lives as long as one read hold) of the client's readers, also after
//! a Java watchdog has shortened the hash's lease (#1458, #1604). `tests/rw_model` and `tests/sim/rwlock.rs` check that
//! a round neither shortens a longer lease nor lengthens an explicit one.

use distlock::Flavour;

use crate::rig::{HOUR, cover, covers, keys_gone, lease, near, served, waiter, writes};
use bed::{enter, eventually, rw, text};

/// L3 (`tests/README.md`): three holds of one owner, and one hold of another owner.
#[tokio::test]
async fn renewal_extends_every_cover_and_the_hash() {
    rw(async |bed| {
        let client = bed.still_client().await;
        let (lock, owners) = (client.rw("a").read(), [client.owner(), client.owner()]);
        let mut guards = Vec::new();
        for owner in [0, 0, 0, 1] {
            guards.push(enter(&lock, &owners[owner]).await);
        }
        for _ in 0..2 {
            for key in bed.admin.keys().await {
                assert!(bed.admin.cmd::<bool>(&["PEXPIRE", &key, "600000"]).await);
            }
            assert_eq!(client.renew_now().await.renewed, 2);
            let (first, second) = (covers(bed, "a", &owners[0]).await, covers(bed, "a", &owners[1]).await);
            assert_eq!((first.len(), second.len()), (3, 1));
            let least = first.iter().chain(&second).copied().min().unwrap().min(bed.admin.pttl("a").await);
            assert!(near(least, HOUR), "{least} ms are left of a cover after a renewal");
        }
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A Java watchdog sets a lease on the hash that is shorter than our reader's explicit lease. The client's rounds
/// prolong the hash again, and a waiting writer cannot acquire.
#[tokio::test]
async fn lease_cut_by_java_watchdog_is_restored() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let guard = lease(&client.rw("a").read(), &client.owner(), 10 * HOUR).await;
        let writer = waiter(&other, Flavour::Write, "a");
        for _ in 0..2 {
            assert!(bed.admin.cmd::<bool>(&["PEXPIRE", "a", "600000"]).await);
            let kept_up = async || near(bed.admin.pttl("a").await, 10 * HOUR);
            eventually("the client's own rounds give the hash its 10 h again", kept_up).await;
        }
        assert!(!writer.is_finished() && guard.is_held());
        guard.unlock().await.unwrap();
        served("the writer", writer).await;
    })
    .await;
}

/// Any key or field may be missing. A renewal creates nothing.
#[tokio::test]
async fn renewal_reports_loss_of_either_half() {
    rw(async |bed| {
        let client = bed.still_client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        let watched = enter(&lock.read(), &me).await;
        let leased = lease(&lock.read(), &client.owner(), 10 * HOUR).await;
        bed.admin.cmd::<()>(&["FLUSHALL"]).await;
        assert_eq!(client.renew_now().await.lost, 2);
        assert!(!watched.is_held() && !leased.is_held());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        // Only the covers are gone, so other clients consider this reader dead.
        let watched = enter(&lock.read(), &me).await;
        let _: u64 = bed.admin.cmd(&["DEL", &cover("a", &text(&me), 1)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        assert!(!watched.is_held());
        drop(watched);
        let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
        let _: u64 = bed.admin.cmd(&["HDEL", "a", &writes(&me)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        assert!(!writing.is_held() && reading.is_held());
        drop(writing);
        let _: u64 = bed.admin.cmd(&["DEL", "a", &cover("a", &text(&me), 1)]).await;
        assert_eq!(client.renew_now().await.lost, 1);
        drop(reading);
        keys_gone(bed).await;
    })
    .await;
}

//! Every hold for reading has its own lease, and a writer is let in when the last of them is over, and not before (`testReadLockExpiration`, `testReadLockLeaseTimeout…`).

use crate::rig::{Scene, keys_gone, lease, waits};
use bed::{ends, enter, ms, rw, secs, waiter};

/// `testReadLockExpiration`: a second, shorter reader comes and goes; the first one's cover is not shortened by that.
#[tokio::test]
async fn a_readers_unlock_does_not_shorten_anothers_lease() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let first = client.rw("a").read().lock_leased(secs(3600)).await.unwrap();
        let second = other.rw("a").read().lock_leased(ms(800)).await.unwrap();
        let writer = waiter(other.rw("a").write());
        let _ = second.unlock().await;
        // Until after the end of the second one's lease.
        tokio::time::sleep(secs(1)).await;
        assert!(!writer.is_finished() && first.is_held());
        first.unlock().await.unwrap();
        let (guard, _) = ends("the writer", writer).await.unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// `…DiffThreadsRRW`: the second lease is given back at once, and what is left is the first one's.
#[tokio::test]
async fn after_a_longer_lease_was_given_back_the_shorter_one_counts() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let scene = Scene::new(bed, "a").await;
        let (me, lock) = (client.owner(), client.rw("a").read());
        let first = lease(&lock, &me, secs(600)).await;
        let second = other.rw("a").read().lock_leased(secs(3600)).await.unwrap();
        let writer = waiter(other.rw("a").write());
        waits(bed, &other, "a", 1).await;
        second.unlock().await.unwrap();
        let left = bed.admin.pttl("a").await;
        assert!(left > 0 && left <= 600_000, "{left}");
        scene.covered("the first", &me, &[600_000]).await;
        assert!(!writer.is_finished() && first.is_held());
        first.unlock().await.unwrap();
        let (guard, _) = ends("the writer", writer).await.unwrap();
        guard.unlock().await.unwrap();

        // Who comes afterwards is in when the shorter one is over.
        let first = lease(&lock, &me, ms(1_000)).await;
        let second = other.rw("a").read().lock_leased(secs(3600)).await.unwrap();
        second.unlock().await.unwrap();
        let (guard, _) = ends("the writer", waiter(other.rw("a").write())).await.unwrap();
        assert!(!first.is_held(), "two at a time");
        guard.unlock().await.unwrap();
        drop(first);
    })
    .await;
}

/// `…DiffThreadsWRR`: a writer that never unlocks; at the end of its lease all who wait for reading are in, of its own
/// client and of another.
#[tokio::test]
async fn the_end_of_a_write_lease_lets_all_readers_in() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let writing = client.rw("a").write().lock_leased(secs(1)).await.unwrap();
        let readers: Vec<_> = (0..6).map(|n| waiter([&client, &other][n % 2].rw("a").read())).collect();
        let mut inside = Vec::new();
        for reader in readers {
            let (guard, _) = ends("a reader", reader).await.unwrap();
            assert!(!writing.is_held(), "a reader beside a writer");
            inside.push(guard);
        }
        assert!(writing.unlock().await.is_err());
        for guard in inside {
            assert!(guard.is_held());
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// `testReadLockLeaseTimeout`: one owner reads twice, and gives one hold back. Whichever guard it was, the other one's lease
/// counts: an owner's covers go from the last, its guards in any order.
#[tokio::test]
async fn of_two_leases_the_one_that_is_left_counts() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let cases = [(0, false), (1, false), (0, true), (1, true)].map(async |(gone, known)| {
            let name = format!("{gone} {known}");
            let (me, lock) = (client.owner(), client.rw(&name).read());
            if known {
                drop(me.to_string());
            }
            let first = lease(&lock, &me, secs(2)).await;
            tokio::time::sleep(ms(500)).await;
            let second = lease(&lock, &me, secs(2)).await;
            let [given, kept] = if gone == 0 { [first, second] } else { [second, first] };
            let _ = given.unlock().await;
            let (guard, _) = ends(&name, waiter(other.rw(&name).write())).await.unwrap();
            assert!(!kept.is_held(), "{name}: two at a time");
            guard.unlock().await.unwrap();
            assert!(kept.unlock().await.is_err());
        });
        futures::future::join_all(cases).await;
    })
    .await;
}

/// Two readers of the same owner, one for a moment and one for long: the writer waits for the long one, although the short
/// one's lease came last and ended first.
#[tokio::test]
async fn the_longest_of_a_readers_leases_counts() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for long_first in [true, false] {
            let (me, lock) = (client.owner(), client.rw("a"));
            let leases = if long_first { [ms(900), ms(100)] } else { [ms(100), ms(900)] };
            let guards = [lease(&lock.read(), &me, leases[0]).await, lease(&lock.read(), &me, leases[1]).await];
            tokio::time::sleep(ms(150)).await;
            let (guard, _) = ends("the writer", waiter(other.rw("a").write())).await.unwrap();
            assert!(guards.iter().all(|guard| !guard.is_held()), "long first: {long_first}: two at a time");
            guard.unlock().await.unwrap();
            for guard in guards {
                assert!(guard.unlock().await.is_err());
            }
            keys_gone(bed).await;
        }
    })
    .await;
}

/// A lease of a reader that came in by downgrade, or under its own write hold, is its own as well.
#[tokio::test]
async fn a_lease_under_the_own_write_hold_goes_on_after_it() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for by_guard in [true, false] {
            let (me, lock) = (client.owner(), client.rw("a"));
            let reading = if by_guard {
                lease(&lock.write(), &me, secs(1)).await.downgrade().await.unwrap()
            } else {
                // Written by the watchdog: the hash lasts for 30 s, the reader for one.
                let writing = enter(&lock.write(), &me).await;
                let reading = lease(&lock.read(), &me, secs(1)).await;
                writing.unlock().await.unwrap();
                reading
            };
            let (guard, _) = ends("the writer", waiter(other.rw("a").write())).await.unwrap();
            assert!(!reading.is_held(), "by guard: {by_guard}: two at a time");
            guard.unlock().await.unwrap();
            assert!(reading.unlock().await.is_err());
        }
    })
    .await;
}

//! Every hold for reading has its own lease, and a writer is let in when the last of them is over: neither before, nor much
//! later (`testReadLockExpiration`, `testReadLockLeaseTimeout…`).

use std::time::{Duration, Instant};

use distlock::{DistLock as _, Guard};

use crate::rig::{Scene, keys_gone, lease, waits};
use bed::{enter, ms, rw, secs, text, waiter};

/// What a waiter may be late by, when it has nothing but the end of a lease to go by: the drift margin of the deadline, and
/// a busy machine.
fn late(lease: Duration) -> Duration {
    lease / 100 + ms(500)
}

/// In after the deadline, and not much later.
fn in_time(what: &str, granted: Instant, deadline: Instant, lease: Duration) {
    let after = granted.checked_duration_since(deadline).unwrap_or_else(|| panic!("{what}: two at a time"));
    println!("{what}: in {after:?} after the deadline");
    assert!(after < late(lease), "{what}: {after:?} after the deadline");
}

/// `testReadLockExpiration`: a second, shorter reader comes and goes; the first one's cover is not shortened by that.
#[tokio::test]
async fn a_readers_unlock_does_not_shorten_anothers_lease() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let first = client.rw("a").read().lock_leased(ms(2_500)).await.unwrap();
        let second = other.rw("a").read().lock_leased(ms(800)).await.unwrap();
        let writer = waiter(other.rw("a").write());
        tokio::time::sleep(ms(400)).await;
        second.unlock().await.unwrap();
        tokio::time::sleep(ms(1_400)).await;
        assert!(!writer.is_finished() && first.is_held());
        let released = Instant::now();
        first.unlock().await.unwrap();
        let (guard, granted) = writer.await.unwrap();
        assert!(granted >= released && granted < released + ms(500), "{:?}", granted - released);
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
        let first = lease(&lock, &me, ms(1_500)).await;
        let deadline = first.deadline();
        tokio::time::sleep(ms(500)).await;
        let second = other.rw("a").read().lock_leased(secs(20)).await.unwrap();
        let writer = waiter(other.rw("a").write());
        waits(bed, &other, "a", 1).await;
        second.unlock().await.unwrap();
        let left = bed.admin.pttl("a").await;
        assert!(left > 0 && left <= 1_000, "{left}");
        scene.covered("the first", &me, &[1_000]).await;
        let (guard, granted) = writer.await.unwrap();
        // It had reckoned with 20 s, and looks at the poll cap at the latest.
        assert!(!first.is_held() && granted >= deadline);
        guard.unlock().await.unwrap();
        assert!(first.unlock().await.is_err());

        // Who comes afterwards is in on time.
        let first = lease(&lock, &me, ms(1_000)).await;
        let second = other.rw("a").read().lock_leased(secs(20)).await.unwrap();
        second.unlock().await.unwrap();
        let deadline = first.deadline();
        let (guard, granted) = waiter(other.rw("a").write()).await.unwrap();
        in_time("after the second", granted, deadline, secs(1));
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
        let deadline = writing.deadline();
        let readers: Vec<_> = (0..6).map(|n| waiter([&client, &other][n % 2].rw("a").read())).collect();
        let mut inside = Vec::new();
        for reader in readers {
            let (guard, granted) = reader.await.unwrap();
            in_time("a reader", granted, deadline, secs(1));
            inside.push(guard);
        }
        assert!(!writing.is_held());
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
            let first = lease(&lock, &me, ms(800)).await;
            tokio::time::sleep(ms(600)).await;
            let second = lease(&lock, &me, ms(800)).await;
            let [given, kept] = if gone == 0 { [first, second] } else { [second, first] };
            given.unlock().await.unwrap();
            let deadline = kept.deadline();
            assert!(kept.is_held() && lock.hold_count(&me).await.unwrap() == 1);
            // Behind the release: one that comes before it is not told of an end sooner by less than a second.
            let writer = waiter(other.rw(&name).write());
            let (guard, granted) = writer.await.unwrap();
            in_time(&name, granted, deadline, ms(800));
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
            let deadline = guards.iter().map(Guard::deadline).max().unwrap();
            tokio::time::sleep(ms(150)).await;
            assert!(other.rw("a").write().try_lock().await.unwrap().is_none());
            let (guard, granted) = waiter(other.rw("a").write()).await.unwrap();
            in_time(&format!("long first: {long_first}"), granted, deadline, ms(900));
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
            let deadline = reading.deadline();
            assert_eq!(bed.admin.hgetall("a").await[&text(&me)], "1");
            let (guard, granted) = waiter(other.rw("a").write()).await.unwrap();
            in_time(&format!("by guard: {by_guard}"), granted, deadline, secs(1));
            guard.unlock().await.unwrap();
            assert!(reading.unlock().await.is_err());
        }
    })
    .await;
}

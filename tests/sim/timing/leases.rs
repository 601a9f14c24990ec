//! When a guard signals the end or the loss of its lease, and when renewals are sent, for every flavour.

use super::waiting::{ROUND_TRIP, for_each};
use crate::prelude::*;
use futures::FutureExt as _;

const WATCHDOG: Duration = Duration::from_secs(30);

/// A client that cannot reach the server stands for one that crashed.
#[test]
fn the_lock_of_a_client_that_is_cut_off_is_lost_in_time_and_free_within_the_watchdog() {
    for_each(async |two| {
        let guard = two.mine().lock().await.unwrap();
        let waiter = two.waiter().await;
        sleep(WATCHDOG).await;
        assert!(guard.is_held());
        two.ours.link.partition(true);
        let cut = Instant::now();
        timeout(WATCHDOG, guard.expiring()).await.expect("the end is announced");
        assert!(guard.is_held(), "announced when it was over");
        timeout(WATCHDOG, guard.lost()).await.expect("the loss is signalled");
        assert!(two.server.pttl(b"job") > 0, "lost() is signalled after the lease has ended");
        assert!(!waiter.is_finished(), "two holders");
        let had = waiter.await.unwrap() - cut;
        assert!(had > WATCHDOG / 2 && had <= WATCHDOG + ms(1_200), "had after {had:?}");
        two.ours.link.partition(false);
        assert!(guard.unlock().await.is_err());
    });
}

#[test]
fn an_explicit_lease_is_announced_with_a_third_left_and_lost_before_it_ends() {
    for_each(async |two| {
        let lock = two.mine();
        let began = Instant::now();
        let guard = lock.lock_leased(ms(1_200)).await.unwrap();
        // The margin: 1 % and 2 ms before the server ends the lease.
        assert_eq!(guard.remaining() + began.elapsed(), ms(1_200 - 12 - 2));
        guard.expiring().await;
        assert!((ms(780)..=ms(805)).contains(&began.elapsed()), "{:?}", began.elapsed());
        // An announced end is not a loss, and an extension withdraws it.
        assert!(guard.is_held());
        guard.extend(ms(1_200)).await.unwrap();
        let extended = Instant::now();
        assert!(guard.expiring().now_or_never().is_none());
        assert!(guard.lost().now_or_never().is_none());
        let lost = guard.lost().await;
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        let after = extended.elapsed();
        assert!((ms(1_170)..=ms(1_188)).contains(&after), "lost after {after:?}");
        assert!(!guard.is_held() && two.server.pttl(b"job") > 0, "lost when the lease is over");
        assert!(guard.expiring().now_or_never().is_some());
    });
}

#[test]
fn a_release_is_no_loss_even_when_its_lease_would_be_over() {
    for_each(async |two| {
        let guard = two.mine().lock_leased(ms(300)).await.unwrap();
        let (lost, expiring) = (guard.lost(), guard.expiring());
        guard.unlock().await.unwrap();
        let guard = two.mine().lock().await.unwrap();
        let (dropped, announced) = (guard.lost(), guard.expiring());
        drop(guard);
        sleep(2 * WATCHDOG).await;
        let signals = (lost.now_or_never(), expiring.now_or_never(), dropped.now_or_never(), announced.now_or_never());
        assert!(matches!(signals, (None, None, None, None)), "{signals:?}");
    });
}

#[test]
fn the_watchdog_renews_each_third_and_announces_nothing() {
    for_each(async |two| {
        let guard = two.mine().lock().await.unwrap();
        let expiring = guard.expiring();
        let sent = two.ours.link.sent();
        for _ in 0..300 {
            sleep(WATCHDOG / 30).await;
            let left = two.server.pttl(b"job");
            // A third is over, and the renewal is in flight.
            assert!(left >= 20_000 - 10, "{left} ms left of 30 s");
        }
        // Ten watchdogs.
        let commands = two.ours.link.sent() - sent;
        assert!((29..=33).contains(&commands), "{commands} renewals");
        assert!(guard.is_held() && expiring.now_or_never().is_none());
        guard.unlock().await.unwrap();
    });
}

/// Redisson's `testLockAfterTimeout`, `testReadLockAfterTimeout` and `testWriteLockAfterTimeout`.
#[test]
fn a_lock_taken_again_after_its_loss_in_a_restart_is_renewed() {
    for_each(async |two| {
        for _ in 0..2 {
            let lost = two.mine().lock().await.unwrap();
            two.server.stop();
            sleep(ms(1_000)).await;
            two.server.start(false);
            timeout(WATCHDOG, lost.lost()).await.expect("the loss is signalled");
            let guard = two.mine().lock().await.unwrap();
            assert!(lost.unlock().await.is_err());
            for _ in 0..60 {
                sleep(WATCHDOG / 30).await;
                assert!(guard.is_held() && two.server.pttl(b"job") > 0);
            }
            guard.unlock().await.unwrap();
        }
        settled(&two.server, &[&two.ours, &two.theirs], ms(60_000)).await.unwrap();
    });
}

#[test]
fn a_forced_release_is_noticed_by_the_next_renewal() {
    for_each(async |two| {
        let guard = two.mine().lock().await.unwrap();
        sleep(ms(7_000)).await;
        assert!(lock(&two.theirs.client, two.holder, "job").force_unlock().await.unwrap());
        let forced = Instant::now();
        assert!(guard.is_held());
        let stopped = guard.run(std::future::pending::<()>()).await;
        assert!(matches!(stopped, Err(Error::Lost { .. })), "{stopped:?}");
        assert!(forced.elapsed() <= WATCHDOG / 3 + ROUND_TRIP, "{:?}", forced.elapsed());
    });
}

/// The server counts whole milliseconds, rounded up.
#[test]
fn a_lease_is_rounded_up_to_a_millisecond() {
    for_each(async |two| {
        let guard = two.mine().lock_leased(Duration::from_micros(40_000_100)).await.unwrap();
        // Half a round trip ago.
        assert_eq!(two.server.pttl(b"job"), 40_001 - 1);
        guard.unlock().await.unwrap();
    });
}

//! When a guard signals the end or the loss of its lease, and when renewals are sent, for every flavour.

use super::waiting::for_each;
use crate::prelude::*;
use futures::FutureExt as _;

const WATCHDOG: Duration = Duration::from_secs(30);

/// A client that cannot reach the server stands for one that crashed.
#[test]
fn guard_of_partitioned_client_is_lost_before_lock_is_freed() {
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
fn guard_signals_expiring_with_third_left_and_lost_before_lease_ends() {
    for_each(async |two| {
        let began = Instant::now();
        let guard = two.mine().lock_leased(ms(1_200)).await.unwrap();
        // The guard's deadline is 1 % and 2 ms before the end of the server's lease.
        assert_eq!(guard.remaining() + began.elapsed(), ms(1_200 - 12 - 2));
        guard.expiring().await;
        assert!((ms(780)..=ms(805)).contains(&began.elapsed()), "{:?}", began.elapsed());
        // An expiring guard is still held, and an extension resets the warning.
        assert!(guard.is_held());
        guard.extend(ms(1_200)).await.unwrap();
        let extended = Instant::now();
        assert!(guard.expiring().now_or_never().is_none() && guard.lost().now_or_never().is_none());
        let lost = guard.lost().await;
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        let after = extended.elapsed();
        assert!((ms(1_170)..=ms(1_188)).contains(&after), "lost after {after:?}");
        assert!(!guard.is_held() && two.server.pttl(b"job") > 0, "lost when the lease is over");
        assert!(guard.expiring().now_or_never().is_some());
    });
}

#[test]
fn released_guard_never_signals_lost_or_expiring() {
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
fn watchdog_renews_every_third_of_lease_without_expiring_signal() {
    for_each(async |two| {
        let guard = two.mine().lock().await.unwrap();
        let expiring = guard.expiring();
        let sent = two.ours.link.sent();
        for _ in 0..300 {
            sleep(WATCHDOG / 30).await;
            let left = two.server.pttl(b"job");
            // A third of the lease has passed, and the renewal is in flight.
            assert!(left >= 20_000 - 10, "{left} ms left of 30 s");
        }
        // Ten watchdog leases have passed.
        let commands = two.ours.link.sent() - sent;
        assert!((29..=33).contains(&commands), "{commands} renewals");
        assert!(guard.is_held() && expiring.now_or_never().is_none());
        guard.unlock().await.unwrap();
    });
}

/// Redisson's `testLockAfterTimeout`, `testReadLockAfterTimeout` and `testWriteLockAfterTimeout`.
#[test]
fn lock_reacquired_after_server_restart_is_renewed() {
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

/// The server counts whole milliseconds, rounded up.
#[test]
fn lease_is_rounded_up_to_a_millisecond() {
    for_each(async |two| {
        let guard = two.mine().lock_leased(Duration::from_micros(40_000_100)).await.unwrap();
        // The lease was set half a round trip ago.
        assert_eq!(two.server.pttl(b"job"), 40_001 - 1);
        guard.unlock().await.unwrap();
    });
}

//! Lock delays: how long a name stays closed after a lost lease, and what opens the name at once.

use crate::pair::Pair;
use crate::prelude::*;

const WATCHDOG: Duration = ms(30_000);
const DELAY: Duration = ms(15_000);

/// The other client's waiter. Its task returns when it acquired the lock.
fn next(pair: &Pair, flavour: Flavour) -> JoinHandle<Instant> {
    waiter(lock(&pair.theirs.client, flavour, "x").into())
}

/// Remaining time of the lock in Redis.
fn left(pair: &Pair) -> Duration {
    Duration::from_millis(u64::try_from(pair.server.pttl(b"x")).unwrap_or_default())
}

/// Asserts that the lease in Redis has just been set to `lease` and the delay.
fn is_set_to(pair: &Pair, lease: Duration, when: &str) {
    let (left, expected) = (left(pair), lease + DELAY);
    assert!(left <= expected && left >= expected - ms(5), "{when}: {left:?}, not {expected:?}");
}

/// A client that cannot reach the server stands for one that crashed.
#[test]
fn name_of_dead_holder_stays_closed_for_lease_and_delay() {
    each(pairs(EXCLUSIVE, [None, Some(ms(3_000))]), async |(flavour, lease)| {
        let pair = Pair::near(flavour);
        let Pair { ours, mine, .. } = &pair;
        let how = Acquire::new().lock_delay(DELAY);
        let guard = mine.acquire(lease.map_or(how.clone(), |lease| how.lease(lease))).await.unwrap().unwrap();
        let had_at = Instant::now();
        let waiter = next(&pair, flavour);
        ours.link.partition(true);
        let lease = lease.unwrap_or(WATCHDOG);
        let lost = timeout(lease, guard.lost()).await.expect("the guard does not count the delay");
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        let next = waiter.await.unwrap() - had_at;
        let closed = lease + DELAY;
        assert!(next >= closed - ms(5) && next <= closed + ms(1_200), "acquired after {next:?} of {closed:?}");
        ours.link.partition(false);
        drop(guard);
        pair.ends().await;
    });
}

/// The holder is alive and reaches the server, but its lease has ended.
#[test]
fn release_of_lost_guard_does_not_open_the_name() {
    each(pairs(EXCLUSIVE, ["drop", "unlock", "shutdown"]), async |(flavour, end)| {
        let pair = Pair::near(flavour);
        let Pair { ours, other, mine, .. } = &pair;
        let how = Acquire::new().lease(ms(1_000)).lock_delay(DELAY);
        let guard = mine.acquire(how).await.unwrap().unwrap();
        sleep(ms(1_100)).await;
        assert!(!guard.is_held());
        match end {
            "drop" => drop(guard),
            "unlock" => assert!(matches!(guard.unlock().await, Err(Error::Lost { why: Lost::Expired, .. }))),
            _ => {
                ours.client.shutdown(ms(1_000)).await.unwrap();
                drop(guard);
            }
        }
        sleep(ms(5_000)).await;
        assert!(other.try_lock().await.unwrap().is_none(), "opened by {end}");
        sleep(left(&pair) + ms(2)).await;
        other.try_lock().await.unwrap().expect("the delay is over").unlock().await.unwrap();
        pair.ends().await;
    });
}

/// The watchdog's renewals fail until the lease has ended. Then the client reaches the server again.
#[test]
fn name_of_holder_that_was_cut_off_stays_closed() {
    each(EXCLUSIVE, async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { ours, other, mine, .. } = &pair;
        let guard = mine.acquire(Acquire::new().lock_delay(DELAY)).await.unwrap().unwrap();
        ours.link.partition(true);
        timeout(WATCHDOG, guard.lost()).await.expect("the loss is signalled");
        ours.link.partition(false);
        ours.client.renew_now().await;
        sleep(ms(5_000)).await;
        assert!(!guard.is_held() && left(&pair) > ms(8_000), "opened or renewed: {:?}", left(&pair));
        assert!(other.try_lock().await.unwrap().is_none());
        drop(guard);
        pair.ends().await;
    });
}

#[test]
fn release_in_time_opens_the_name_at_once() {
    each(pairs(EXCLUSIVE, ["unlock", "drop", "force"]), async |(flavour, end)| {
        let pair = Pair::near(flavour);
        let Pair { other, mine, .. } = &pair;
        let guard = mine.acquire(Acquire::new().lock_delay(DELAY)).await.unwrap().unwrap();
        let waiter = next(&pair, flavour);
        sleep(ms(200)).await;
        let released = Instant::now();
        match end {
            "unlock" => drop(guard.unlock().await.unwrap()),
            "drop" => drop(guard),
            _ => {
                assert!(other.force_unlock().await.unwrap());
                drop(guard);
            }
        }
        let took = timeout(WATCHDOG, waiter).await.expect("it is served").unwrap() - released;
        assert!(took <= ms(200), "{end}: served after {took:?}");
        pair.ends().await;
    });
}

/// Each command that sets the lease adds the delay. The guard counts the lease alone.
#[test]
fn every_lease_in_redis_is_longer_by_the_delay() {
    each(EXCLUSIVE, async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { ours, mine, .. } = &pair;
        let guard = mine.acquire(Acquire::new().lock_delay(DELAY)).await.unwrap().unwrap();
        is_set_to(&pair, WATCHDOG, "acquired");
        assert!(guard.remaining() <= WATCHDOG);
        sleep(ms(5_000)).await;
        assert_eq!(ours.client.renew_now().await.renewed, 1);
        is_set_to(&pair, WATCHDOG, "renewed");
        assert!(guard.remaining() <= WATCHDOG);
        for lease in [60_000, 5_000].map(ms) {
            guard.extend(lease).await.unwrap();
            is_set_to(&pair, lease, "extended");
            assert!(guard.remaining() <= lease);
        }
        guard.unlock().await.unwrap();
        assert_eq!(pair.server.pttl(b"x"), -2);
        pair.ends().await;
    });
}

/// A re-entry without a delay keeps the delay of the owner's first hold, and so does its release.
#[test]
fn re_entry_and_partial_release_keep_the_delay() {
    each(EXCLUSIVE.into_iter().filter(|flavour| *flavour != Flavour::Plain), async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { ours, mine, me, .. } = &pair;
        // The client learns the server's clock.
        assert!(!ours.client.reentrant("other").force_unlock().await.unwrap());
        let how = Acquire::new().owner(me).lease(ms(9_000)).lock_delay(DELAY);
        let outer = mine.acquire(how).await.unwrap().unwrap();
        let inner = enter(&**mine, me, 20_000).await;
        is_set_to(&pair, ms(20_000), "re-entered");
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        is_set_to(&pair, ms(9_000), "released in part");
        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
        // The next hold of this owner has no delay.
        let plain = enter(&**mine, me, 9_000).await;
        assert!(left(&pair) <= ms(9_000));
        plain.unlock().await.unwrap();
        pair.ends().await;
    });
}

/// The owner has another hold, so it has not lost the lock. Its last release in time opens the name.
#[test]
fn lost_hold_beside_another_hold_does_not_close_the_name() {
    each(EXCLUSIVE.into_iter().filter(|flavour| *flavour != Flavour::Plain), async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { mine, me, .. } = &pair;
        let how = Acquire::new().owner(me).lease(ms(1_000)).lock_delay(DELAY);
        let short = mine.acquire(how).await.unwrap().unwrap();
        let long = enter(&**mine, me, 60_000).await;
        sleep(ms(1_100)).await;
        assert_eq!((short.is_held(), long.is_held()), (false, true));
        drop(short);
        sleep(ms(100)).await;
        assert_eq!(pair.count(flavour, me), 1, "the lost hold is released");
        assert_eq!(long.unlock().await.unwrap(), Released::Free);
        assert_eq!(pair.server.pttl(b"x"), -2);
        pair.ends().await;
    });
}

/// The leases of both holds have ended: of one by its time, of the other because renewals failed.
#[test]
fn holds_of_two_lost_guards_of_one_owner_stay() {
    each(EXCLUSIVE.into_iter().filter(|flavour| *flavour != Flavour::Plain), async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { ours, other, mine, me, .. } = &pair;
        let how = || Acquire::new().owner(me).lock_delay(DELAY);
        let watched = mine.acquire(how()).await.unwrap().unwrap();
        let leased = mine.acquire(how().lease(ms(10_000))).await.unwrap().unwrap();
        ours.link.partition(true);
        timeout(WATCHDOG, watched.lost()).await.expect("the loss is signalled");
        ours.link.partition(false);
        ours.client.renew_now().await;
        sleep(ms(5_000)).await;
        assert_eq!((watched.is_held(), leased.is_held()), (false, false));
        assert_eq!(pair.count(flavour, me), 2, "released after the loss");
        drop((watched, leased));
        sleep(ms(100)).await;
        assert_eq!(pair.count(flavour, me), 2, "released by the drop");
        sleep(left(&pair) + ms(2)).await;
        other.try_lock().await.unwrap().expect("the delay is over").unlock().await.unwrap();
        pair.ends().await;
    });
}

//! Hand-over of a lock to a waiter of the same process.

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::fake::{Fake, Fate};
use super::{begin, client, done, learn_clock, leaves_no_trace, lock_in_turn, ms, secs, settle, waiter, with_lock};
use crate::transport::Reply;
use crate::{Acquire, Client, Guard};

#[tokio::test(start_paused = true)]
async fn lock_is_handed_over_up_to_limit_and_time_then_released() {
    // The columns are the number of guards, the hold time, the limits on number and time of hand-overs, and the
    // expected number of releases.
    let table = [
        (51, ms(0), 16, secs(3600), 3),
        (52, ms(0), 16, secs(3600), 4),
        (10, ms(0), 0, secs(3600), 10),
        (12, ms(20), 16, ms(50), 4),
        (12, ms(20), 1, ms(50), 6),
        (12, ms(60), 16, ms(50), 12),
    ];
    for (count, hold, limit, time, series) in table {
        let (client, fake) =
            client(|options| (options.local_handoff_limit, options.local_handoff_time) = (limit, time));
        // All tasks queue before the first one gets the lock.
        fake.steal("x", secs(3600));
        let lock = client.reentrant("x");
        let first = waiter(&lock);
        settle().await;
        let others = client.clone();
        let all = tokio::spawn(async move { lock_in_turn(&others, "x", count - 1, hold).await });
        settle().await;
        let before = fake.sent("acquire").len();
        fake.free("x");
        let first = first.await.unwrap();
        sleep(hold).await;
        first.unlock().await.unwrap();
        let order = all.await.unwrap();
        assert_eq!(order, (0..count - 1).collect::<Vec<_>>());
        let (acquires, releases) = (fake.sent("acquire").len() - before, fake.sent("release").len());
        assert_eq!(releases, series, "{count} guards, {hold:?}, {limit} hand-offs, {time:?}");
        // A waiter may look before other processes have had their turn, which adds attempts.
        assert!((series..=2 * series).contains(&acquires), "{acquires} acquires for {series} series");
        leaves_no_trace(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lock_handed_to_dropped_waiter_reaches_next_waiter_or_is_released() {
    for (behind, waiter_first) in [(0, false), (1, false), (2, false), (1, true)] {
        let (client, fake, lock) = with_lock();
        let held = lock.lock().await.unwrap();
        let mut leaves = Box::pin(lock.lock());
        assert!(futures::poll!(&mut leaves).is_pending());
        settle().await;
        assert!(futures::poll!(&mut leaves).is_pending());
        let others: Vec<_> = (0..behind).map(|_| waiter(&lock)).collect();
        settle().await;
        if waiter_first {
            drop(leaves);
            drop(held);
        } else {
            // The lock was handed over, and the guard is dropped before the waiter runs.
            drop(held);
            assert_eq!(client.stats().holds, 1);
            drop(leaves);
        }
        for other in others {
            let guard = other.await.unwrap();
            assert!(guard.is_held());
            assert_eq!(fake.held().len(), 1);
            drop(guard);
        }
        settle().await;
        assert_eq!(fake.held(), Vec::<String>::new());
        assert_eq!(client.stats().holds, 0);
        leaves_no_trace(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lock_with_explicit_lease_is_not_handed_over() {
    let (client, fake, lock) = with_lock();
    let leased = lock.lock_leased(secs(10)).await.unwrap();
    let next = waiter(&lock);
    settle().await;
    leased.unlock().await.unwrap();
    let next = next.await.unwrap();
    assert_eq!(fake.sent("release").len(), 1);
    // A waiter that wants an explicit lease gets no hand-over.
    let leased = begin(&lock, Acquire::new().lease(secs(10)));
    settle().await;
    next.unlock().await.unwrap();
    let leased = leased.await.unwrap().unwrap().unwrap();
    assert_eq!(fake.sent("release").len(), 2);
    assert!(fake.left("x").unwrap() <= secs(10));
    leased.unlock().await.unwrap();
    leaves_no_trace(client, &fake).await;
}

/// An `extend` without a reply may have shortened the lease. The next holder must not rely on a longer one.
#[tokio::test(start_paused = true)]
async fn lock_with_lease_in_doubt_is_handed_over_only_after_renewal() {
    for renewed in [false, true] {
        let (client, fake) = client(|options| options.local_handoff_time = secs(3600));
        learn_clock(&client, &client.owner()).await;
        let lock = client.reentrant("x");
        let held = lock.lock().await.unwrap();
        client.renew_now().await;
        fake.next("renew", Fate::Lost(true));
        held.extend(secs(12)).await.unwrap_err();
        let waits = waiter(&lock);
        sleep(secs(4)).await;
        if renewed {
            client.renew_now().await;
        }
        let acquires = fake.sent("acquire").len();
        held.unlock().await.unwrap();
        let guard = waits.await.unwrap();
        assert_eq!(fake.sent("acquire").len() > acquires, !renewed);
        assert!(guard.remaining() <= fake.left("x").unwrap(), "{:?} of {:?}", guard.remaining(), fake.left("x"));
        guard.unlock().await.unwrap();
        done(client, &fake).await;
    }
}

/// The other holder releases. The waiter acquires at once, and nothing is left.
async fn takes_its_turn(waits: JoinHandle<Guard>, client: Client, fake: &Fake) {
    fake.free("x");
    timeout(ms(3), waits).await.expect("its turn").unwrap().unlock().await.unwrap();
    leaves_no_trace(client, fake).await;
}

/// The hand-over limit is reached, and the lock is released at the server. This process then yields to other clients if
/// they received the release's message and the option is set.
#[tokio::test(start_paused = true)]
async fn process_yields_once_to_notified_receivers_after_its_turn() {
    for (told, yield_after_release, gives_way) in
        [(-2, true, true), (-2, false, false), (-1, true, false), (0, true, false)]
    {
        let (client, fake) = client(|options| {
            (options.local_handoff_limit, options.local_handoff_time, options.yield_after_release) =
                (1, secs(3600), yield_after_release);
        });
        fake.steal("x", secs(3600));
        let lock = client.reentrant("x");
        let first = waiter(&lock);
        settle().await;
        let (second, third) = (waiter(&lock), waiter(&lock));
        settle().await;
        fake.free("x");
        first.await.unwrap().unlock().await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(fake.sent("release").len(), 0, "handed over");
        let asked = fake.sent("acquire").len();
        let asked = || fake.sent("acquire").len() - asked;
        // The release's message arrives before its reply, and another client acquires the lock first.
        fake.next("release", Fate::Answer(Reply::Int(told)));
        let unlock = tokio::spawn(second.unlock());
        sleep(ms(1)).await;
        fake.steal("x", secs(3600));
        fake.publish("x");
        unlock.await.unwrap().unwrap();
        sleep(ms(1)).await;
        assert_eq!(asked(), usize::from(!gives_way), "told {told}");
        sleep(ms(11)).await;
        assert_eq!(asked(), 1, "told {told}");
        // The other client has had its turn, so its release is answered at once.
        takes_its_turn(third, client, &fake).await;
    }
}

/// The next holder relies on the watchdog. So a lock with an explicit lease is released at the server, and so is a lock
/// with less than a third of its lease left.
#[tokio::test(start_paused = true)]
async fn lock_not_kept_by_watchdog_is_released_instead_of_handed_over() {
    for extended in [true, false] {
        let (client, fake) = client(|options| options.local_handoff_time = secs(3600));
        let lock = client.reentrant("x");
        let held = lock.lock().await.unwrap();
        let waits = waiter(&lock);
        settle().await;
        if extended {
            held.extend(secs(12)).await.unwrap();
        } else {
            // All renewals fail until less than a third of the lease is left.
            fake.times(1000, "renew", || Fate::NotSent);
            sleep(secs(21)).await;
        }
        held.unlock().await.unwrap();
        let next = waits.await.unwrap();
        assert_eq!(fake.sent("release").len(), 1, "extended: {extended}");
        fake.calm();
        assert!(next.remaining() > secs(29) && next.remaining() <= fake.left("x").unwrap());
        next.unlock().await.unwrap();
        leaves_no_trace(client, &fake).await;
    }
}

/// Three other clients received the release's message. This process waits until each of them has released, and sends no
/// command meanwhile.
#[tokio::test(start_paused = true)]
async fn process_yields_to_all_receivers_of_its_release() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", secs(3600));
    let first = waiter(&lock);
    settle().await;
    fake.free("x");
    let first = first.await.unwrap();
    fake.next("release", Fate::Answer(Reply::Int(-4)));
    first.unlock().await.unwrap();
    fake.publish("x");
    fake.steal("x", secs(3600));
    let asked = fake.sent("acquire").len();
    let second = waiter(&lock);
    for _ in 0..2 {
        sleep(ms(9)).await;
        fake.publish("x");
    }
    sleep(ms(9)).await;
    assert_eq!(fake.sent("acquire").len(), asked);
    takes_its_turn(second, client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn short_wait_acquires_despite_yielding_to_others() {
    let (client, fake, lock) = with_lock();
    for _ in 0..3 {
        let guard = lock.lock_for(ms(4)).await.unwrap().expect("free");
        fake.next("release", Fate::Answer(Reply::Int(-5)));
        guard.unlock().await.unwrap();
        fake.delete("x");
    }
    drop(lock.try_lock().await.unwrap().expect("free"));
    leaves_no_trace(client, &fake).await;
}

/// A process whose tasks never waited yields, too. It subscribes to receive the releases of other processes.
#[tokio::test(start_paused = true)]
async fn process_that_never_waited_yields_to_receivers() {
    let (client, fake, lock) = with_lock();
    let guard = lock.lock().await.unwrap();
    fake.next("release", Fate::Answer(Reply::Int(-1)));
    guard.unlock().await.unwrap();
    fake.steal("x", secs(3600));
    let asked = fake.sent("acquire").len();
    let next = waiter(&lock);
    sleep(ms(8)).await;
    assert_eq!((fake.sent("acquire").len(), fake.channels()), (asked, 1));
    takes_its_turn(next, client, &fake).await;
}

/// Other clients received the release of these locks, and this process never acquires them again. No state of the locks
/// is kept.
#[tokio::test(start_paused = true)]
async fn release_that_notified_others_leaves_no_registry_entry() {
    let (client, fake) = client(|_| ());
    for name in (0..100).map(|n| format!("x{n}")) {
        let guard = client.reentrant(&name).lock().await.unwrap();
        fake.next("release", Fate::Answer(Reply::Int(-7)));
        guard.unlock().await.unwrap();
        fake.delete(&name);
    }
    sleep(ms(30)).await;
    leaves_no_trace(client, &fake).await;
}

//! Read-write locks: wake-ups between the halves, the order of readers and writers, and leases.

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::fake::{Fake, Fate};
use super::{begin, client, done, got, ms, secs, settle, with_owner};
use crate::transport::Reply;
use crate::{Acquire, Client, Error, Guard, Prefer, Result};

const HELD: Fate = Fate::Answer(Reply::Nil);
const BUSY: Fate = Fate::Answer(Reply::Int(60_000));

fn int(int: i64) -> Fate {
    Fate::Answer(Reply::Int(int))
}

fn spawn(client: &Client, half: &str, how: Acquire) -> JoinHandle<Result<Option<Guard>>> {
    let lock = client.rw("x");
    if half == "read" { begin(&lock.read(), how) } else { begin(&lock.write(), how) }
}

/// Starts an acquire that waits and subscribes.
async fn waits(client: &Client, fake: &Fake, half: &'static str, how: Acquire) -> JoinHandle<Result<Option<Guard>>> {
    fake.times(2, half, || BUSY);
    let task = spawn(client, half, how);
    settle().await;
    task
}

#[tokio::test(start_paused = true)]
async fn release_of_one_half_wakes_waiter_of_the_other_half() {
    for (holds, waiting) in [("write", "read"), ("read", "write")] {
        let (client, fake) = client(|_| ());
        fake.next(holds, HELD);
        let held = got(ms(25), spawn(&client, holds, Acquire::new())).await;
        let task = waits(&client, &fake, waiting, Acquire::new()).await;
        // No client received the message.
        fake.next("_release", int(0));
        fake.next(waiting, HELD);
        held.unlock().await.unwrap();
        let guard = got(ms(25), task).await;
        fake.next("_release", int(0));
        guard.unlock().await.unwrap();
        done(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn forced_release_is_no_loss_when_the_other_half_is_held() {
    let (client, fake) = client(|_| ());
    fake.next("read", HELD);
    let held = client.rw("x").read().lock().await.unwrap();
    fake.next("force", int(2));
    assert!(!client.rw("x").read().force_unlock().await.unwrap());
    assert!(held.is_held());
    fake.next("_release", int(0));
    held.unlock().await.unwrap();
    done(client, &fake).await;
}

/// An owner that writes may read. A `not_reentrant` acquire is refused if its owner holds either half.
#[tokio::test(start_paused = true)]
async fn writer_may_read_unless_its_acquire_is_not_reentrant() {
    let (client, fake, me) = with_owner();
    let how = || Acquire::new().owner(&me);
    // This acquire waits for the read half, behind another task.
    let first = waits(&client, &fake, "read", Acquire::new()).await;
    fake.next("read", BUSY);
    let again = spawn(&client, "read", how());
    settle().await;
    fake.next("write", HELD);
    fake.next("read", HELD);
    let writes = got(ms(25), spawn(&client, "write", how())).await;
    let reads = got(ms(25), again).await;
    assert!(!first.is_finished());
    // The client knows that the owner holds the lock, so it sends no command.
    let is_refused = async || {
        let asked = fake.sent("read").len();
        let alone = client.rw("x").read().acquire(how().not_reentrant().wait(ms(0))).await;
        assert!(matches!(alone, Err(Error::WouldDeadlock { .. })), "{alone:?}");
        assert_eq!(fake.sent("read").len(), asked);
    };
    is_refused().await;
    fake.next("read", HELD);
    let other = Acquire::new().owner(&client.owner()).not_reentrant().wait(ms(0));
    let other = client.rw("x").read().acquire(other).await.unwrap().expect("nobody's");
    fake.next("read", HELD);
    fake.times(4, "_release", || int(0));
    other.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    // The owner now only writes.
    is_refused().await;
    writes.unlock().await.unwrap();
    got(ms(25), first).await.unlock().await.unwrap();
    done(client, &fake).await;
}

/// In the first case, a reader acquires, and then a writer does. In the second case, the second reader has waited
/// longer than the first, and a writer holds the lock.
#[tokio::test(start_paused = true)]
async fn reader_waits_again_after_failed_attempt_beside_another() {
    for held_back in [false, true] {
        let (client, fake) = client(|_| ());
        fake.times(2, "read", || if held_back { int(-5) } else { BUSY });
        let mut first = Some(spawn(&client, "read", Acquire::new()));
        settle().await;
        let mut how = Acquire::new();
        how.waited_before = if held_back { secs(2) } else { ms(0) };
        if held_back {
            fake.next("read", BUSY);
        }
        let second = spawn(&client, "read", how);
        settle().await;
        if !held_back {
            fake.next("read", HELD);
            fake.times(3, "read", || BUSY);
            fake.listener().missed();
            fake.next("_release", int(0));
            got(ms(25), first.take().unwrap()).await.unlock().await.unwrap();
            fake.next("read", HELD);
        }
        sleep(ms(200)).await;
        let asked = fake.sent("read").len();
        assert!((3..=6).contains(&asked) && !second.is_finished(), "{asked}");
        fake.calm();
        fake.times(4, "read", || HELD);
        fake.listener().missed();
        fake.times(2, "_release", || int(0));
        if let Some(first) = first {
            got(ms(25), first).await.unlock().await.unwrap();
        }
        got(ms(25), second).await.unlock().await.unwrap();
        sleep(secs(6)).await;
        done(client, &fake).await;
    }
}

/// A waiting writer's mark is removed if its wait ends without the lock, also when the client closes.
#[tokio::test(start_paused = true)]
async fn mark_is_removed_when_a_wait_ends_without_the_lock() {
    for way in ["over", "held", "once"] {
        let (client, fake) = client(|_| ());
        let lock = client.rw("x").prefer(Prefer::Writers).write();
        let (attempts, wait) = match way {
            "once" => (1, ms(0)),
            "held" => (2, ms(300)),
            // A wait that runs out makes one attempt more, just before its end.
            _ => (3, ms(300)),
        };
        fake.times(attempts, "write", || BUSY);
        let task = begin(&lock, Acquire::new().wait(wait));
        settle().await;
        if way == "held" {
            // The lease of the holder that this writer waits for ends soon.
            fake.next("write", int(30));
            fake.next("write", HELD);
            fake.listener().missed();
            sleep(ms(45)).await;
            fake.next("_release", int(0));
            got(ms(25), task).await.unlock().await.unwrap();
        } else {
            assert!(task.await.unwrap().unwrap().is_none());
        }
        done(client, &fake).await;
        assert_eq!(fake.sent("leave").len(), usize::from(way == "over"), "{way}");
    }
    // A shutdown does not wait for tasks that are not polled.
    let (client, fake) = client(|_| ());
    let lock = client.rw("x").prefer(Prefer::Writers).write();
    fake.times(2, "write", || BUSY);
    let mut waits = Box::pin(lock.lock());
    for _ in 0..8 {
        assert!(futures::poll!(&mut waits).is_pending());
        settle().await;
    }
    client.shutdown(secs(1)).await.unwrap();
    assert_eq!((fake.sent("write").len(), fake.sent("leave").len()), (2, 1));
    assert!(matches!(waits.await, Err(Error::Closed)));
}

/// After `max_reader_delay`, a reader no longer yields to a writer that only waits.
#[tokio::test(start_paused = true)]
async fn reader_yields_to_waiting_writers_for_a_limited_time() {
    let (client, fake) = client(|_| ());
    let gives_way = |fake: &Fake| fake.sent("read").iter().map(|sent| sent.text(7)).collect::<Vec<_>>();
    fake.times(2, "read", || int(-5));
    let first = spawn(&client, "read", Acquire::new());
    settle().await;
    assert_eq!(gives_way(&fake), ["1", "1"]);
    // A later reader waits behind the contender, and makes no attempt.
    sleep(ms(400)).await;
    let second = spawn(&client, "read", Acquire::new());
    sleep(ms(500)).await;
    assert_eq!(gives_way(&fake).len(), 2);
    fake.next("read", BUSY);
    sleep(ms(100)).await;
    assert_eq!(gives_way(&fake), ["1", "1", "0"], "a second is over");
    sleep(ms(700)).await;
    assert_eq!(gives_way(&fake).len(), 3, "others hold it");
    fake.times(2, "read", || HELD);
    fake.listener().missed();
    let guards = [got(ms(25), first).await, got(ms(25), second).await];
    fake.times(2, "_release", || int(0));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    // The acquire is a member of a group acquire that has already waited this long.
    for (waited, way) in [(ms(0), "1"), (ms(900), "1"), (secs(1), "0")] {
        fake.next("read", int(-5));
        let mut how = Acquire::new().wait(ms(0));
        how.waited_before = waited;
        assert!(client.rw("x").read().acquire(how).await.unwrap().is_none());
        assert_eq!(gives_way(&fake).pop().unwrap(), way, "{waited:?}");
    }
    sleep(secs(6)).await;
    done(client, &fake).await;
}

/// Each hold of a reader has its own lease, which other clients may shorten. So rounds of renewal include long explicit
/// leases.
#[tokio::test(start_paused = true)]
async fn read_holds_have_separate_leases() {
    let (client, fake) = client(|_| ());
    let (lock, me) = (client.rw("x").read(), client.owner());
    let how = || Acquire::new().owner(&me);
    // The reply teaches the client the server's clock.
    fake.next("read", Fate::Answer(Reply::List(vec![Reply::Int(-7), Reply::Int(1_700_000_000_000)])));
    fake.times(4, "read", || HELD);
    let renewals = |fake: &Fake| fake.sent("rwlock/renew").len();
    let brief = lock.acquire(how().lease(secs(10))).await.unwrap().unwrap();
    client.renew_now().await;
    assert_eq!(renewals(&fake), 0);
    let long = lock.acquire(how().lease(secs(50))).await.unwrap().unwrap();
    fake.next("renew", Fate::Answer(Reply::List(vec![Reply::Int(1)])));
    assert_eq!(client.renew_now().await.renewed, 0, "kept up only");
    assert_eq!(renewals(&fake), 1);
    let third = lock.acquire(how()).await.unwrap().unwrap();
    let last = lock.acquire(how().lease(secs(20))).await.unwrap().unwrap();
    assert_eq!(fake.sent("read").pop().unwrap().text(1), "20000");
    // The release sends the longest lease of the remaining holds, not what is left of it.
    fake.next("_release", int(3));
    last.unlock().await.unwrap();
    let sent = fake.sent("_release").pop().unwrap();
    let (lease, least) = (sent.text(2).parse::<i64>().unwrap(), sent.text(6).parse::<i64>().unwrap());
    assert!((49_000..=50_100).contains(&lease) && least == lease, "{sent:?}");
    for (left, guard) in [(2, long), (1, brief), (0, third)] {
        fake.next("_release", int(left));
        guard.unlock().await.unwrap();
    }
    done(client, &fake).await;
}

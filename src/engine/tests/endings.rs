//! Endings: an `unlock` that cannot be confirmed, a release that is refused for a while, a client that shuts down.

mod shutdown;

use futures::FutureExt as _;
use tokio::time::{Instant, sleep};

use super::fake::{Fake, Fate};
use super::release::acquire;
use super::{client, done, ms, secs, settle, takes, with_lock, with_lock_and_owner, with_owner};
use crate::error::passing::PASSING;
use crate::{Acquire, Client, Error, Guard, Lost, Released};

async fn leased(client: &Client, lease: u64) -> Guard {
    client.reentrant("x").lock_leased(secs(lease)).await.unwrap()
}

fn refusals() -> impl Iterator<Item = (&'static str, &'static str)> {
    PASSING.iter().map(|row| (row.begins, &*Box::leak(format!("{} and why", row.begins).into_boxed_str())))
}

/// Asserts that the lock stays held while the server refuses, and is free soon after. `case` is for the messages.
async fn free_after_faults(client: Client, fake: &Fake, held: &str, case: &str) {
    sleep(secs(500)).await;
    assert_eq!(fake.held(), [held], "{case}");
    fake.calm();
    sleep(secs(5)).await;
    assert_eq!(fake.held(), Vec::<String>::new(), "{case}");
    done(client, fake).await;
}

/// Acquires, releases and `is_retryable` treat the same refusals as temporary.
#[tokio::test(start_paused = true)]
async fn waiting_acquire_is_retried_after_every_passing_refusal() {
    for (code, refusal) in refusals() {
        let (client, fake) = client(|_| ());
        fake.times(3, "acquire", || Fate::Refused(refusal));
        let lock = client.reentrant("x");
        let error = lock.try_lock().await.unwrap_err();
        assert!(error.is_retryable() && !error.outcome_unknown(), "{code}: {error:?}");
        let guard = lock.lock_for(secs(20)).await.unwrap_or_else(|error| panic!("{code}: {error:?}"));
        assert_eq!(fake.sent("acquire").len(), 4, "{code}");
        drop(guard);
        done(client, &fake).await;
    }
}

/// The retries last as long as the lease, even if it is longer than the watchdog's.
#[tokio::test(start_paused = true)]
async fn refused_release_is_retried_until_its_lease_is_over() {
    for (code, refusal) in refusals() {
        for dropped in [false, true] {
            let (client, fake) = client(|_| ());
            let guard = leased(&client, 600).await;
            fake.times(1_000, "release", || Fate::Refused(refusal));
            if dropped {
                drop(guard);
            } else {
                let error = guard.unlock().await.unwrap_err();
                let Error::ReleasePending { why, .. } = &error else { panic!("{code}: {error:?}") };
                assert!(matches!(&**why, Error::Server { .. }), "{code}: {why:?}");
                assert!(!error.is_retryable() && error.outcome_unknown(), "{code}");
            }
            free_after_faults(client, &fake, "x 1 1", &format!("{code}, dropped: {dropped}")).await;
        }
    }
}

/// The first lease is shorter than the watchdog's, the second is longer.
#[tokio::test(start_paused = true)]
async fn refused_release_is_not_retried_after_its_lease_is_over() {
    for lease in [4, 100] {
        let (client, fake) = client(|_| ());
        let guard = leased(&client, lease).await;
        fake.times(1_000, "release", || Fate::Refused("MISCONF the disk is full"));
        drop(guard);
        sleep(secs(lease + 1)).await;
        let sent = fake.sent("release").len();
        sleep(secs(60)).await;
        assert_eq!(fake.sent("release").len(), sent, "{lease}");
        assert_eq!(client.stats().under_way, 0, "{lease}");
        fake.calm();
        done(client, &fake).await;
    }
}

/// The caller dropped `extend`, but the command reaches the server and lengthens the lease.
#[tokio::test(start_paused = true)]
async fn refused_release_is_retried_for_an_extended_lease() {
    let (client, fake) = client(|_| ());
    let guard = leased(&client, 4).await;
    fake.next("renew", Fate::Late(secs(1)));
    assert!(guard.extend(secs(600)).now_or_never().is_none());
    fake.times(1_000, "release", || Fate::Refused("MISCONF the disk is full"));
    drop(guard);
    free_after_faults(client, &fake, "x 1 1", "a lease that was extended").await;
}

/// `ReleasePending` promises retries. The client retries even if another guard of the owner holds the lock.
#[tokio::test(start_paused = true)]
async fn unlock_of_one_of_two_holds_is_retried_in_the_background() {
    let fates: [fn() -> Fate; 3] = [|| Fate::NotSent, || Fate::Lost(false), || Fate::Refused("MISCONF no disk")];
    for (n, fate) in fates.into_iter().enumerate() {
        let (client, fake, me) = with_owner();
        let (outer, inner) = (acquire(&client, &me).await, acquire(&client, &me).await);
        fake.times(1_000, "release", fate);
        let error = inner.unlock().await.unwrap_err();
        assert!(matches!(error, Error::ReleasePending { .. }), "{n}: {error:?}");
        assert_eq!(fake.held(), ["x 1 2"], "{n}");
        fake.calm();
        sleep(secs(5)).await;
        assert_eq!(fake.held(), ["x 1 1"], "{n}");
        assert_eq!(outer.unlock().await.unwrap(), Released::Free, "{n}");
        done(client, &fake).await;
    }
}

/// A background retry of a release waits its turn among the owner's other commands.
#[tokio::test(start_paused = true)]
async fn refused_release_does_not_block_extend_or_acquire_of_its_owner() {
    for dropped in [false, true] {
        let (client, fake, me) = with_owner();
        let (outer, inner) = (acquire(&client, &me).await, acquire(&client, &me).await);
        fake.times(1_000, "release", || Fate::Refused("OOM command not allowed"));
        if dropped {
            drop(inner);
        } else {
            assert!(matches!(inner.unlock().await, Err(Error::ReleasePending { .. })));
        }
        sleep(secs(2)).await;
        let began = Instant::now();
        outer.extend(secs(60)).await.unwrap();
        let third = acquire(&client, &me).await;
        assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
        assert_eq!(fake.held(), ["x 1 3"]);
        fake.calm();
        sleep(secs(5)).await;
        assert_eq!(fake.held(), ["x 1 2"]);
        drop((outer, third));
        done(client, &fake).await;
    }
}

/// The releases are retried for the longest lease among them, although its release is sent first.
#[tokio::test(start_paused = true)]
async fn refused_releases_of_owner_are_retried_until_longest_lease_is_over() {
    let (client, fake, lock, me) = with_lock_and_owner();
    let hold = async |lease| lock.acquire(Acquire::new().owner(&me).lease(secs(lease))).await.unwrap().unwrap();
    let (long, short) = (hold(600).await, hold(5).await);
    fake.times(1_000, "release", || Fate::Refused("MISCONF the disk is full"));
    drop((long, short));
    free_after_faults(client, &fake, "x 1 2", "two leases").await;
}

/// The acquire requested a lease longer than the watchdog's. Its undo is retried for this whole lease.
#[tokio::test(start_paused = true)]
async fn undo_of_acquire_in_doubt_is_retried_until_its_lease_is_over() {
    let (client, fake) = client(|_| ());
    fake.next("acquire", Fate::Lost(true));
    fake.times(1_000, "release", || Fate::Refused("MISCONF the disk is full"));
    assert!(client.reentrant("x").acquire(Acquire::new().lease(secs(600)).wait(ms(0))).await.is_err());
    free_after_faults(client, &fake, "x 1 1", "an undo").await;
}

/// A server that is out of memory accepts only the last release of an owner, so the refused releases are sent together.
#[tokio::test(start_paused = true)]
async fn refused_releases_of_one_owner_are_retried_in_one_command() {
    let (client, fake, me) = with_owner();
    let (outer, inner) = (acquire(&client, &me).await, acquire(&client, &me).await);
    fake.times(2, "release", || Fate::Refused("OOM command not allowed"));
    drop((outer, inner));
    sleep(secs(5)).await;
    assert_eq!(fake.held(), Vec::<String>::new());
    let sent = fake.sent("release");
    assert!(sent.len() == 3 && sent[2].text(4).len() > sent[0].text(4).len(), "{}", sent.len());
    done(client, &fake).await;
}

/// The server is down, or does not answer, for longer than the lease.
#[tokio::test(start_paused = true)]
async fn unlock_returns_release_pending_when_the_lease_ends_at_the_latest() {
    let fates: [fn() -> Fate; 3] = [|| Fate::NotSent, || Fate::Lost(false), || Fate::Slow(secs(3_600))];
    for (n, fate) in fates.into_iter().enumerate() {
        for lease in [4, 30] {
            let (client, fake) = client(|_| ());
            let guard =
                if lease == 30 { acquire(&client, &client.owner()).await } else { leased(&client, lease).await };
            fake.times(1_000, "release", fate);
            let (began, left) = (Instant::now(), guard.remaining());
            let error = guard.unlock().await.unwrap_err();
            let took = began.elapsed();
            assert!(matches!(error, Error::ReleasePending { .. }), "{n}: {error:?}");
            assert!(
                took <= left + ms(1) && took <= secs(24) || n == 2 && took <= left + ms(60),
                "{n}: {took:?} of {left:?}"
            );
            fake.calm();
            fake.delete("x");
            sleep(secs(4_000)).await;
            done(client, &fake).await;
        }
    }
}

/// No task watches an explicit lease, so its end may not be recorded yet.
#[tokio::test(start_paused = true)]
async fn unlock_after_a_loss_returns_lost_at_once() {
    let (client, fake) = client(|_| ());
    for n in 0..3 {
        let guard = leased(&client, 4).await;
        sleep(if n == 0 { ms(3_970) } else { secs(5) }).await;
        assert!(!guard.is_held());
        fake.times(1_000, "release", if n == 1 { || Fate::NotSent } else { || Fate::Slow(secs(3)) });
        let error = guard.unlock().now_or_never().expect("at once").unwrap_err();
        assert!(matches!(error, Error::Lost { why: Lost::Expired, .. }), "{error:?}");
        // The release is still sent, because the server may have the hold.
        settle().await;
        assert!(!fake.sent("release").is_empty());
        fake.calm();
        sleep(secs(10)).await;
    }
    let guard = acquire(&client, &client.owner()).await;
    fake.delete("x");
    client.renew_now().await;
    let error = guard.unlock().now_or_never().expect("at once").unwrap_err();
    assert!(matches!(error, Error::Lost { why: Lost::Gone, .. }), "{error:?}");
    done(client, &fake).await;
}

/// The command is in flight until the lease ends, so the error names the server's trouble instead of a failed attempt.
#[tokio::test(start_paused = true)]
async fn unlock_at_a_server_without_connections_names_the_server() {
    let (client, fake) = client(|_| ());
    let guard = leased(&client, 4).await;
    fake.next("release", Fate::Slow(secs(3_600)));
    *fake.trouble.lock() = Some("fake: Connection refused".to_owned());
    let error = guard.unlock().await.unwrap_err();
    let Error::ReleasePending { why, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(&**why, Error::Connection { message, .. } if message.contains("fake")), "{why:?}");
    sleep(secs(4_000)).await;
    done(client, &fake).await;
}

/// `lock` waits for a holder without limit. For an unreachable server, it waits as long as the docs of `DistLock::lock`
/// say.
#[tokio::test(start_paused = true)]
async fn lock_fails_when_the_server_is_away_for_longer_than_its_retries_last() {
    let fates: [fn() -> Fate; 2] = [|| Fate::NotSent, || Fate::Refused("MISCONF the disk is full")];
    for fate in fates {
        let (client, fake, lock) = with_lock();
        let options = client.options().clone();
        let most = (options.command_timeout + options.retry_delay.1) * options.retry_attempts;
        fake.times(1_000, "acquire", fate);
        let time = most - options.retry_delay.1..most + options.command_timeout + ms(1);
        let error = takes(time, lock.lock()).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        fake.calm();
        done(client, &fake).await;
    }
}

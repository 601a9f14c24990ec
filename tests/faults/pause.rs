//! Servers and networks that stand still for a while, and come back.

use std::time::{Duration, Instant};

use distlock::{Error, Lost, Released};
use distlock_support::proxy::{Mode, Proxy};

use bed::fault::{WATCHDOG, brisk, count, warm};
use bed::harm::TIMEOUT;
use bed::{eventually, idle, ms, reentrant, secs};

/// A server frozen for less than the lease: acquires that are under way end in their time, what is held stays held.
#[tokio::test]
async fn a_server_frozen_for_less_than_the_lease_loses_nothing() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url())).await;
        warm(&client).await;
        let guard = client.reentrant("held").lock().await.unwrap();
        let waiting = client.clone();
        for _ in 0..2 {
            bed.server.stop();
            let start = Instant::now();
            let error = client.reentrant("a").try_lock().await.unwrap_err();
            assert!(error.outcome_unknown() && start.elapsed() < TIMEOUT + secs(1), "{error:?}");
            let waiting = tokio::spawn({
                let lock = waiting.reentrant("b");
                async move { lock.lock().await }
            });
            // Through at least one renewal that fails.
            tokio::time::sleep(WATCHDOG / 2).await;
            assert!(guard.is_held());
            bed.server.cont();
            let waited = waiting.await.unwrap().unwrap();
            waited.unlock().await.unwrap();
            let renewed = async || bed.admin.pttl("held").await > i64::try_from(WATCHDOG.as_millis() / 2).unwrap();
            eventually("it is renewed", renewed).await;
        }
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        idle(&client).await;
        assert_eq!(bed.admin.keys().await, Vec::<String>::new());
    })
    .await;
}

/// A server frozen for longer than the lease: the loss is told by the local clock, in time, while the server says
/// nothing; a reply that comes after the lease counts as none.
#[tokio::test]
async fn a_server_frozen_beyond_the_lease_is_told_in_time() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url())).await;
        let (guard, leased) =
            (client.reentrant("a").lock().await.unwrap(), client.reentrant("b").lock_leased(secs(2)).await.unwrap());
        let (deadline, until) = (guard.deadline(), leased.deadline());
        bed.server.stop();
        let expiring = guard.expiring();
        let lost = leased.lost().await;
        let late = Instant::now().saturating_duration_since(until);
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }) && late < ms(500), "{lost:?}, {late:?} late");
        expiring.await;
        assert!(guard.is_held(), "told a third of the lease before");
        // Renewals that were confirmed before the freeze moved it.
        let deadline = deadline.max(guard.deadline());
        let outcome = guard.run(std::future::pending::<()>()).await;
        let late = Instant::now().saturating_duration_since(deadline);
        assert!(matches!(outcome, Err(Error::Lost { why: Lost::Expired, .. })) && late < ms(500), "{late:?} late");
        println!("told {late:?} after the deadline");
        bed.server.cont();
        assert!(!guard.is_held() && !leased.is_held(), "an end is final");
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        assert!(matches!(leased.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        for name in ["a", "b"] {
            client.reentrant(name).lock().await.unwrap().unlock().await.unwrap();
        }
    })
    .await;
}

/// `CLIENT PAUSE`: no wait takes longer than it may, and nothing stays behind, whether all commands stand still or only
/// those that write.
#[tokio::test]
async fn client_pause_keeps_waits_in_bounds() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).retry_attempts(20)).await;
        warm(&client).await;
        for mode in ["ALL", "WRITE"] {
            let held = client.reentrant("held").lock().await.unwrap();
            bed.admin.pause(1500, mode).await;
            let paused = Instant::now();
            let (busy, free) = (client.reentrant("held"), client.reentrant("free"));
            let timed = async |wait: Duration, lock: &distlock::ReentrantLock| {
                let start = Instant::now();
                let outcome = lock.lock_for(wait).await;
                let took = start.elapsed();
                assert!(took >= wait && took < wait + ms(500), "{mode}: {took:?}, wanted {wait:?}");
                outcome
            };
            let (busy, free_yet) = tokio::join!(timed(ms(200), &busy), timed(ms(500), &free));
            // That one is held by this very client, which knows without asking; of the other nobody has told it.
            assert!(matches!(busy, Ok(None)), "{mode}: {busy:?}");
            assert!(free_yet.as_ref().is_err_and(Error::outcome_unknown), "{mode}: {free_yet:?}");
            let guard = free.lock().await.unwrap();
            println!("{mode}: acquired {:?} after the start of the pause", paused.elapsed());
            assert!(paused.elapsed() > secs(1), "it was paused");
            assert!(held.is_held());
            held.unlock().await.unwrap();
            guard.unlock().await.unwrap();
            idle(&client).await;
            assert_eq!(bed.admin.keys().await, Vec::<String>::new(), "{mode}");
        }
    })
    .await;
}

/// A black hole swallows all that a client sends and hears, new connections as well, and then lets everything through
/// again: acquires end in their time, the loss is told, and all heals.
#[tokio::test]
async fn a_black_hole_is_survived() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url())).await;
        let other = bed.connect(brisk(&bed.server.url())).await;
        warm(&client).await;
        for round in 0..2 {
            let guard = client.reentrant("a").lock().await.unwrap();
            proxy.blackhole(true);
            let start = Instant::now();
            assert!(client.reentrant("b").try_lock().await.is_err());
            assert!(start.elapsed() < TIMEOUT + ms(500));
            let lost = guard.lost().await;
            assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }));
            // The other one gets it when the server's clock has ended it too.
            let theirs = other.reentrant("a").lock_for(WATCHDOG).await.unwrap().expect("the lease is over");
            proxy.blackhole(false);
            let healed = Instant::now();
            client.reentrant("b").lock_for(secs(5)).await.unwrap().expect("healed").unlock().await.unwrap();
            println!("round {round}: healed after {:?}", healed.elapsed());
            drop(guard);
            idle(&client).await;
            // What came out of the black hole late has not touched the new holder's lock.
            assert!(theirs.is_held());
            assert_eq!(count(&bed.admin, "a").await, 1);
            assert_eq!(theirs.unlock().await.unwrap(), Released::Free);
        }
    })
    .await;
}

/// Only what the server says stands still, or only what it is told: the same.
#[tokio::test]
async fn a_half_open_connection_is_survived() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url())).await;
        warm(&client).await;
        for way in ["up", "down"] {
            let set = |mode| match way {
                "up" => proxy.set_upstream_mode(mode),
                _ => proxy.set_downstream_mode(mode),
            };
            for round in 0..2 {
                set(Mode::Hang);
                let error = client.reentrant("a").try_lock().await.unwrap_err();
                assert!(error.outcome_unknown(), "{error:?}");
                let wait = ms(700);
                let start = Instant::now();
                assert!(client.reentrant("b").lock_for(wait).await.is_err());
                assert!(start.elapsed() >= wait && start.elapsed() < wait + ms(700), "{:?}", start.elapsed());
                set(Mode::Pass);
                let guard = client.reentrant("b").lock_for(secs(5)).await.unwrap().expect("healed");
                guard.unlock().await.unwrap();
                idle(&client).await;
                assert_eq!(bed.admin.keys().await, Vec::<String>::new(), "{way}, round {round}");
            }
        }
    })
    .await;
}

/// Only the connection for messages is silent: nobody tells a waiter, who looks for itself within the poll cap.
#[tokio::test]
async fn silence_of_messages_is_bounded_by_the_poll_cap() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let (cap, holder) = (ms(800), bed.client().await);
        let waiter = bed.connect(brisk(&proxy.url()).poll_cap(cap).watchdog(secs(30)).subscription_linger(ms(0))).await;
        for round in 0..5 {
            let subscribers = async || bed.admin.numsub("redisson_lock__channel:{a}").await;
            eventually("nobody listens yet", async || subscribers().await == 0).await;
            let guard = holder.reentrant("a").lock().await.unwrap();
            let lock = waiter.reentrant("a");
            let waiting = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
            eventually("the waiter listens", async || subscribers().await == 1).await;
            proxy.set_downstream_mode(Mode::DropMessages);
            guard.unlock().await.unwrap();
            let released = Instant::now();
            let (guard, granted) = waiting.await.unwrap();
            let late = granted.saturating_duration_since(released);
            println!("round {round}: granted {late:?} after the release");
            assert!(late < cap + ms(300), "{late:?}");
            guard.unlock().await.unwrap();
            proxy.set_downstream_mode(Mode::Pass);
        }
    })
    .await;
}

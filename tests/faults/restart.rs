//! Servers that are killed, and come back with or without their data.

use std::time::Instant;

use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard, Lost, Released, Result};
use distlock_support::proxy::{Mode, Proxy};
use distlock_support::{RedisServer, must};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};

use bed::fault::{WATCHDOG, brisk, count, warm};
use bed::harm::TIMEOUT;
use bed::{Bed, eventually, idle, ms, reentrant, run_on, secs};

/// `kill -9` and a restart with the data: what is held is held still, and is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_a_restart_with_data() {
    run_on(
        durable(),
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let client = bed.connect(brisk(&bed.server.url())).await;
            let owner = client.owner();
            let lock = client.reentrant("a");
            let guard = lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
            for round in 0..3 {
                let again = lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
                restart(bed);
                let restarted = Instant::now();
                // By the connection's coming back, not by the next regular round.
                let renewed = async || bed.admin.pttl("a").await > i64::try_from(WATCHDOG.as_millis()).unwrap() - 300;
                let after = eventually("it is renewed", renewed).await;
                println!("renewed {after:?} after the restart");
                assert_eq!(again.unlock().await.unwrap(), Released::StillHeld(1), "round {round}");
                // Past the lease of the acquire.
                tokio::time::sleep_until((restarted + WATCHDOG / 2).into()).await;
                assert!(guard.is_held() && count(&bed.admin, "a").await == 1, "round {round}");
                assert!(other(bed).await.reentrant("a").try_lock().await.unwrap().is_none());
            }
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        },
    )
    .await;
}

/// `kill -9` and a restart without the data: the holder hears of it as soon as the connection is back, and whoever waits
/// gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_lost_in_a_restart_without_data() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).watchdog(secs(30))).await;
        let waiter = bed.connect(brisk(&bed.server.url()).watchdog(secs(30))).await;
        for round in 0..3 {
            let guard = client.reentrant("a").lock().await.unwrap();
            let leased = client.reentrant("b").lock_leased(secs(30)).await.unwrap();
            let waiting = tokio::spawn({
                let waiter = waiter.clone();
                async move { (waiter.reentrant("a").lock().await.unwrap(), Instant::now()) }
            });
            eventually("the waiter waits", async || waiter.stats().waiting == 1).await;
            restart(bed);
            let restarted = Instant::now();
            let lost = tokio::time::timeout(secs(3), guard.lost()).await.expect("far before the lease ends");
            println!("round {round}: lost {:?} after the restart", restarted.elapsed());
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(!guard.is_held() && matches!(guard.unlock().await, Err(Error::Lost { .. })));
            let (got, granted) = waiting.await.unwrap();
            println!("round {round}: granted {:?} after the restart", granted.saturating_duration_since(restarted));
            assert!(granted < restarted + secs(3));
            got.unlock().await.unwrap();
            // Nobody renews it, so nobody looks before its release.
            assert!(leased.is_held());
            assert!(matches!(leased.unlock().await, Err(Error::NotHeld { .. })));
        }
    })
    .await;
}

/// The server goes away for good while a client runs: every operation ends in its time with an error that says so.
#[tokio::test]
async fn a_server_that_goes_away_is_told_in_time() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).retry_attempts(3)).await;
        let lock = client.reentrant("a");
        let (guard, extended) = (lock.lock().await.unwrap(), client.reentrant("b").lock().await.unwrap());
        bed.server.kill9();
        let patience = (TIMEOUT + ms(100)) * 3;
        // Of a busy machine; what never ended would take far longer.
        let slack = secs(4);
        let start = Instant::now();
        told(lock.try_lock().await);
        assert!(start.elapsed() < TIMEOUT + slack, "{:?}", start.elapsed());
        let start = Instant::now();
        told(lock.state().await);
        told(lock.force_unlock().await);
        // What is known never to have left is tried again: with fred nothing is.
        let most = if bed::is_direct() { patience + 2 * TIMEOUT } else { 2 * TIMEOUT };
        assert!(start.elapsed() < most + slack, "{:?}", start.elapsed());
        let start = Instant::now();
        told(client.reentrant("c").lock().await);
        let took = start.elapsed();
        assert!(took > patience / 2 && took < patience + TIMEOUT + slack, "{took:?}");
        let start = Instant::now();
        told(client.reentrant("c").lock_for(ms(500)).await);
        let took = start.elapsed();
        assert!(took >= ms(500) && took < ms(500) + slack, "{took:?}");
        let lost = tokio::time::timeout(WATCHDOG, guard.lost()).await.expect("by the lease");
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }));
        // Taken a moment later, it is held for a moment longer.
        let lost = tokio::time::timeout(WATCHDOG, extended.lost()).await.expect("by the lease");
        assert!(matches!(lost, Error::Lost { .. }));
        assert!(matches!(extended.extend(secs(5)).await, Err(Error::Lost { .. })));
        // Whether the server has it still cannot be told.
        assert!(guard.unlock().await.is_err());
        drop(extended);
        bed.server.restart();
        lock.lock_for(secs(5)).await.unwrap().expect("back").unlock().await.unwrap();
        idle(&client).await;
    })
    .await;
}

/// A release while the server is away is reported as in doubt, and goes on in the background until it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_goes_on_when_the_server_is_back() {
    run_on(
        durable(),
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let client = bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).retry_attempts(2)).await;
            let guard = client.reentrant("a").lock().await.unwrap();
            let dropped = client.reentrant("b").lock().await.unwrap();
            bed.server.kill9();
            drop(dropped);
            told(guard.unlock().await);
            assert_eq!(client.stats().holds, 2, "both are being released still");
            restart(bed);
            let gone = eventually("both are released", async || bed.admin.keys().await.is_empty()).await;
            println!("released {gone:?} after the restart");
            idle(&client).await;
        },
    )
    .await;
}

/// 20 kills in a row under contention: never two holders, and nobody waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contention_goes_on_through_restarts_with_data() {
    const TASKS: usize = 8;
    run_on(
        durable(),
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let counter = std::sync::Arc::new(bed::Counter::default());
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let mut tasks = Vec::new();
            for _ in 0..2 {
                let client = bed.connect(brisk(&bed.server.url()).watchdog(secs(10)).retry_attempts(50)).await;
                for _ in 0..TASKS / 2 {
                    let (lock, counter, stop) = (client.reentrant("hot"), counter.clone(), stop.clone());
                    tasks.push(tokio::spawn(async move {
                        let mut mine = 0;
                        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                            let guard = lock.lock().await.expect("within the retries");
                            counter.bump(ms(1)).await;
                            mine += 1;
                            // In doubt when the server died just then; the client goes on releasing.
                            if let Err(error) = guard.unlock().await {
                                assert!(error.is_retryable(), "{error:?}");
                            }
                        }
                        mine
                    }));
                }
            }
            for _ in 0..20 {
                let before = counter.get();
                restart(bed);
                eventually("it goes on", async || counter.get() > before + 3).await;
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let mut total = 0;
            for task in tasks {
                total += tokio::time::timeout(secs(20), task).await.expect("nobody waits for ever").unwrap();
            }
            println!("{total} locks through 20 kills");
            must(counter.get() == total, "two were inside at once");
        },
    )
    .await;
}

/// A server that loses nothing when it is killed. With `everysec` a write can be put off for as long as an fsync is under
/// way, and a kill just then loses it although it was answered.
fn durable() -> RedisServer {
    RedisServer::builder().aof(true).arg("--appendfsync", "always").start()
}

fn restart(bed: &Bed) {
    tokio::task::block_in_place(|| bed.server.restart());
}

async fn other(bed: &Bed) -> Client {
    bed.connect(brisk(&bed.server.url())).await
}

/// The server could not be reached.
#[track_caller]
fn told<T>(outcome: Result<T, Error>) {
    match outcome {
        Err(error @ (Error::Connection { .. } | Error::Timeout { .. })) => assert!(error.is_retryable()),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("the server is away"),
    }
}

/// A server that has forgotten the script is sent its text: both commands together have the time of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_takes_no_longer_where_the_script_was_forgotten() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url()).command_timeout(secs(3)).watchdog(secs(30))).await;
        warm(&client).await;
        proxy.set_downstream_mode(Mode::Delay(ms(2_600)));
        bed.admin.script_flush().await;
        let (single, owner) = (client.reentrant("a"), client.owner());
        let several = client.multi(["c", "d"]);
        let tries: [(&str, BoxFuture<'_, Result<Option<Guard>>>); 3] = [
            ("single", single.try_lock().boxed()),
            ("as an owner", single.acquire(Acquire::new().owner(&owner).wait(ms(0))).boxed()),
            ("several", several.try_lock().boxed()),
        ];
        let began = Instant::now();
        let tries = tries.map(|(what, tried)| async move { (what, tried.await, began.elapsed()) });
        for (what, outcome, took) in join_all(tries).await {
            println!("{what}: {outcome:?} after {took:?}");
            // The second reply would be here after 5.2 s.
            assert!(took < ms(4_500), "{what}: {outcome:?} after {took:?}");
            assert!(matches!(outcome, Err(Error::Timeout { .. })), "{what}: {outcome:?}");
        }
        proxy.heal();
        idle(&client).await;
    })
    .await;
}

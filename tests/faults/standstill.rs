//! Standstills of the client's own process: its answers were there, and nobody to read them. No server is called silent
//! for that.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Client, DistLock, Error, Flavour, Guard, RedLock, Result};
use distlock_support::RedisServer;
use distlock_support::proxy::{Mode, Proxy};
use futures::executor::block_on;
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use bed::fault::{brisk, warm};
use bed::{Bed, eventually, idle, ms, reentrant, secs};

/// The end of the wait is passed while the one command is under way.
#[tokio::test]
async fn a_wait_that_ends_while_the_runtime_stands_still_has_run_out() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let other = bed.client().await;
        for kind in ["single", "multi", "striped", "redlock"] {
            let lock: Arc<dyn DistLock> = match kind {
                "multi" => Arc::new(client.multi(["a", "b"])),
                "striped" => Arc::new(client.striped("a", 1)),
                "redlock" => Arc::new(RedLock::over(vec![client.clone()], Flavour::Reentrant, "a")),
                _ => Arc::new(client.reentrant("a")),
            };
            lock.lock().await.unwrap().unlock().await.unwrap();
            let stands_still = async || {
                tokio::task::yield_now().await;
                std::thread::sleep(ms(300));
            };
            // Too short for the server to count as silent at its end, and long enough.
            for wait in [ms(20), ms(150)] {
                let (outcome, ()) = tokio::join!(lock.lock_for(wait), stands_still());
                println!("{kind}, {wait:?}: {outcome:?}");
                // In it is, where the answer was read first.
                assert!(outcome.is_ok(), "{kind}, {wait:?}: {outcome:?}");
                drop(outcome);
                idle(&client).await;
                let next = other.reentrant("a").try_lock().await.unwrap().expect("free");
                next.unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// The wait of whoever asks in these ways, while another client holds the lock.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    /// Waits for the end of the lease, or a message.
    Rests,
    /// Waits for its turn among those of this process.
    IsBehind,
    /// Is behind in the one line of a striped lock.
    IsInLine,
    /// Waits at one of several servers.
    IsAtOne,
}

const WAITERS: [Waiter; 4] = [Waiter::Rests, Waiter::IsBehind, Waiter::IsInLine, Waiter::IsAtOne];

/// The process stands still within the wait and beyond its end, with a command of another task under way.
async fn stands_still_within(bed: &Bed, waiter: Waiter, wait: Duration, still: Duration) -> Result<Option<Guard>> {
    let proxy = Proxy::start(bed.server.addr());
    let client = bed.connect(brisk(&proxy.url()).command_timeout(secs(2)).watchdog(secs(30))).await;
    warm(&client).await;
    let other = bed.client().await;
    let held: Arc<dyn DistLock> = match waiter {
        Waiter::IsInLine => Arc::new(other.striped("a", 1).all()),
        _ => Arc::new(other.reentrant("a")),
    };
    let held = held.lock().await.unwrap();
    let lock: Arc<dyn DistLock> = match waiter {
        Waiter::IsInLine => Arc::new(client.striped("a", 1)),
        Waiter::IsAtOne => Arc::new(RedLock::over(vec![client.clone()], Flavour::Reentrant, "a")),
        _ => Arc::new(client.reentrant("a")),
    };
    let first = matches!(waiter, Waiter::IsBehind | Waiter::IsInLine).then(|| wait_for(&lock, secs(60)));
    if first.is_some() {
        eventually("the first waits", async || client.stats().waiting > 0).await;
        idle_but_waiting(&client).await;
    }
    proxy.set_upstream_mode(Mode::Delay(ms(30)));
    let waiting = wait_for(&lock, wait);
    tokio::time::sleep(wait / 2).await;
    idle_but_waiting(&client).await;
    let asking = tokio::spawn({
        let y = client.reentrant("y");
        async move { y.try_lock().await.map(drop) }
    });
    tokio::task::yield_now().await;
    std::thread::sleep(still);
    let outcome = waiting.await.unwrap();
    println!("{waiter:?}, {still:?}: {outcome:?}");
    asking.await.unwrap().expect("the server is healthy");
    if let Some(first) = first {
        first.abort();
        let _ = first.await;
    }
    held.unlock().await.unwrap();
    idle(&client).await;
    outcome
}

fn wait_for(lock: &Arc<dyn DistLock>, wait: Duration) -> JoinHandle<Result<Option<Guard>>> {
    let lock = Arc::clone(lock);
    tokio::spawn(async move { lock.lock_for(wait).await })
}

async fn idle_but_waiting(client: &Client) {
    eventually("no command is under way", async || client.stats().under_way == 0).await;
}

#[tokio::test]
async fn a_standstill_within_a_wait_is_not_the_servers() {
    reentrant(async |bed| {
        let mut blamed = Vec::new();
        for waiter in WAITERS {
            // Far beyond the end, and not so far.
            for still in [500, 200] {
                let outcome = stands_still_within(bed, waiter, ms(300), ms(still)).await;
                if !matches!(outcome, Ok(None)) {
                    blamed.push((waiter, still, outcome));
                }
            }
        }
        assert!(blamed.is_empty(), "{blamed:?}");
    })
    .await;
}

/// Also one that ends shortly after the command's own limit.
#[tokio::test]
async fn a_try_is_given_a_moment_after_a_standstill() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url()).command_timeout(ms(300)).watchdog(secs(30))).await;
        warm(&client).await;
        proxy.set_downstream_mode(Mode::Delay(ms(3)));
        let (single, striped) = (client.reentrant("a"), client.striped("b", 1));
        let locks: [&dyn DistLock; 2] = [&single, &striped];
        for still in [316, 332, 334, 336, 338, 345, 360, 500] {
            for lock in locks {
                let me = client.owner();
                let stands_still = async || {
                    for _ in 0..10 {
                        tokio::task::yield_now().await;
                    }
                    std::thread::sleep(ms(still));
                };
                let once = Acquire::new().owner(&me).wait(ms(0));
                let (outcome, ()) = tokio::join!(lock.acquire(once), stands_still());
                // Found overdue by less, a command's limit is one.
                let may_be_over = still < 330 && matches!(outcome, Err(Error::Timeout { .. }));
                assert!(may_be_over || matches!(outcome, Ok(Some(_))), "{still} ms: {outcome:?}");
                drop(outcome);
                idle(&client).await;
            }
        }
    })
    .await;
}

/// Asked for on another executor, a wait begins when the client's runtime comes to it. One that has ended says so, whatever is
/// asked.
#[test]
fn a_runtime_that_stands_still_takes_nothing_of_a_wait() {
    let server = RedisServer::start();
    let home = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = home.block_on(brisk(&server.url()).connect()).unwrap();
    home.block_on(warm(&client));
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write] {
        for n in 0..3 {
            let (begun, begins) = std::sync::mpsc::channel();
            let still = home.spawn(async move {
                begun.send(()).unwrap();
                std::thread::sleep(ms(400));
            });
            begins.recv().unwrap();
            let outcome = block_on(client.lock(flavour, &format!("{flavour} {n}")).lock_for(ms(300)));
            assert!(matches!(outcome, Ok(Some(_))), "{flavour}: {outcome:?}");
            home.block_on(still).unwrap();
            home.block_on(outcome.unwrap().unwrap().unlock()).unwrap();
        }
    }
    home.block_on(client.shutdown(secs(5))).unwrap();
    drop(home);
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write] {
        let lock = client.lock(flavour, "gone");
        for outcome in
            [block_on(lock.try_lock()), block_on(lock.lock_for(ms(10))), block_on(lock.lock_leased(ms(1))).map(Some)]
        {
            assert!(matches!(outcome, Err(Error::RuntimeGone)), "{flavour}: {outcome:?}");
        }
    }
}

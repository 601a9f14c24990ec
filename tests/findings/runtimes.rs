//! Runtimes that end, and executors of others (findings 11, 14).

mod own;
mod wakers;

use std::sync::Arc;
use std::time::Duration;

use bed::{self, eventually, idle, ms, reentrant, secs};
use distlock::{Acquire, Client, DistLock, Error, Flavour, Lost, RedLock, Released};
use distlock_sim::{LinkOptions, SimServer};
use distlock_support::{Action, Matcher, Proxy, RedisServer};
use futures::executor::block_on;
use futures::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};

/// A runtime beside that of the test, where clients do not live.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

type Work = fn(Arc<dyn DistLock>) -> BoxFuture<'static, ()>;

/// What may be under way when a runtime ends.
const WORKS: [(&str, Work); 6] = [
    ("lock", |lock| Box::pin(async move { drop(lock.lock().await) })),
    ("lock, as an owner of its own", |lock| {
        Box::pin(async move {
            let owner = "7d9e0c47-6b0c-4a2b-9a35-1f6b5b6f0b11:5".parse().unwrap();
            drop(lock.acquire(Acquire::new().owner(&owner)).await);
        })
    }),
    ("lock_for", |lock| Box::pin(async move { drop(lock.lock_for(secs(5)).await) })),
    ("unlock", |lock| {
        Box::pin(async move {
            let guard = lock.lock().await.unwrap();
            drop(guard.unlock().await);
        })
    }),
    ("extend", |lock| {
        Box::pin(async move {
            let guard = lock.lock().await.unwrap();
            drop(guard.extend(secs(20)).await);
        })
    }),
    ("force_unlock", |lock| Box::pin(async move { drop(lock.force_unlock().await) })),
];

/// Has the server know the scripts, so that a command of the test is sent once.
async fn learn(client: &Client, flavour: Flavour) {
    let lock = client.lock(flavour, "known");
    let guard = lock.lock().await.unwrap();
    guard.extend(secs(20)).await.unwrap();
    guard.unlock().await.unwrap();
    lock.force_unlock().await.unwrap();
}

/// 11: work that was begun on a runtime that then ends is carried through on the client's own.
#[tokio::test]
async fn n11_a_runtime_that_ends_with_a_command_under_way_leaves_nothing() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url())).await;
        for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Write] {
            learn(&client, flavour).await;
            for (what, work) in WORKS {
                for nth in [1, 2] {
                    let name = format!("{flavour} {what} {nth}").replace(' ', "-");
                    let lock = client.lock(flavour, &name);
                    let slow = proxy.on_request(
                        Matcher::command("EVALSHA").containing(&name).nth(nth),
                        Action::DelayReply(ms(150)),
                    );
                    let there = runtime();
                    let task = there.spawn(work(Arc::clone(&lock)));
                    let sent = async || slow.has_fired() || task.is_finished();
                    eventually("a command is under way", sent).await;
                    slow.disarm();
                    there.shutdown_background();
                    let freed = async || !bed.admin.exists(&name).await;
                    tokio::time::timeout(secs(3), async {
                        while !freed().await {
                            tokio::time::sleep(ms(5)).await;
                        }
                    })
                    .await
                    .unwrap_or_else(|_| panic!("{name} is left behind; {:?}", client.stats()));
                    idle(&client).await;
                    let next = lock.lock_for(secs(2)).await.unwrap();
                    next.unwrap_or_else(|| panic!("{name} cannot be had")).unlock().await.unwrap();
                }
            }
        }
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// 11: as above, with a command whose answer never comes, so that what cleans up needs timers of its own.
#[tokio::test]
async fn n11_a_lost_command_of_a_runtime_that_ended_is_cleaned_up() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let options = Client::builder(&proxy.url()).watchdog(secs(6)).command_timeout(ms(300));
        let client = bed.connect(options.retry_delay((ms(20), ms(40)))).await;
        learn(&client, Flavour::Reentrant).await;
        for (what, work) in WORKS {
            let name = format!("of {what}").replace(' ', "-");
            let lock = client.lock(Flavour::Reentrant, &name);
            let lost = proxy.on_request(Matcher::command("EVALSHA").containing(&name), Action::HangReply);
            let there = runtime();
            let task = there.spawn(work(Arc::clone(&lock)));
            let sent = async || lost.has_fired() || task.is_finished();
            eventually("a command is under way", sent).await;
            there.shutdown_background();
            idle(&client).await;
            // What a shared owner may hold is the server's alone to know: nobody else may take it back.
            let shared = what.contains("owner");
            assert!(shared || !bed.admin.exists(&name).await, "{what}: left behind");
            bed.admin.cmd::<u64>(&["DEL", &name]).await;
            proxy.close_all();
        }
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// 11: who stands in a striped lock's line is served although the one who began the line went with its runtime.
#[tokio::test]
async fn n11_a_striped_line_outlives_the_runtime_that_began_it() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = client.striped("s", 2);
        let held = [striped.lock().await.unwrap(), striped.lock().await.unwrap()];
        let there = runtime();
        let first = striped.clone();
        there.spawn(async move { first.lock().await.unwrap() });
        eventually("it waits", async || client.stats().waiting >= 2).await;
        let second = bed::waiter(striped.clone());
        tokio::time::sleep(ms(50)).await;
        there.shutdown_background();
        for guard in held {
            guard.unlock().await.unwrap();
        }
        let (guard, _) = tokio::time::timeout(secs(2), second).await.expect("never served").unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// 11, in the simulator: a runtime ends after every number of steps that its work may have come to.
#[test]
fn n11_simulated_a_runtime_may_end_after_any_step() {
    let server = SimServer::new(11);
    let home = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let link = server.link(LinkOptions::default());
    let client = home.block_on(async { link.client(|_| {}) }).unwrap();
    for (what, work) in WORKS {
        for steps in 0..24 {
            let lock = client.lock(Flavour::Reentrant, what);
            // A clock that is not paused, and that nobody waits for.
            let there = Builder::new_current_thread().enable_all().build().unwrap();
            let task = there.spawn(work(lock));
            for _ in 0..steps {
                there.block_on(tokio::task::yield_now());
                home.block_on(async { tokio::time::sleep(Duration::from_micros(100)).await });
            }
            drop((there, task));
            home.block_on(async {
                let mut rounds = 0;
                while client.stats().under_way + client.stats().holds + client.stats().waiting > 0 {
                    rounds += 1;
                    assert!(rounds < 100, "{what}, {steps} steps: {:?}", client.stats());
                    tokio::time::sleep(ms(5)).await;
                }
            });
            assert!(server.keys().is_empty(), "{what}, {steps} steps: {:?}", server.keys());
        }
    }
    home.block_on(client.shutdown(secs(5))).unwrap();
}

/// All that can be asked of a lock, on an executor that is not tokio's.
fn on_no_runtime(what: &str, lock: &dyn DistLock, other: &dyn DistLock) {
    let guard = block_on(lock.lock()).unwrap();
    assert!(block_on(lock.is_locked()).unwrap(), "{what}");
    assert!(block_on(lock.remaining_ttl()).unwrap().is_some(), "{what}");
    // Waits out, with timers.
    assert!(block_on(other.try_lock()).unwrap().is_none(), "{what}");
    assert!(block_on(other.lock_for(ms(100))).unwrap().is_none(), "{what}");
    block_on(guard.extend(secs(20))).unwrap();
    let lost = guard.lost();
    assert_eq!(block_on(guard.run(async { 7 })).unwrap(), 7);
    assert_eq!(block_on(guard.unlock()).unwrap(), Released::Free, "{what}");
    drop(lost);
    // Dropped.
    drop(block_on(lock.lock_leased(secs(20))).unwrap());
    let guard = block_on(other.lock_for(secs(5))).unwrap().unwrap_or_else(|| panic!("{what}: not given back"));
    // Waits, and is woken by the release.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(lock.lock()).unwrap());
        std::thread::sleep(ms(50));
        assert!(!waiter.is_finished(), "{what}");
        block_on(guard.unlock()).unwrap();
        block_on(waiter.join().unwrap().unlock()).unwrap();
    });
    let guard = block_on(lock.lock()).unwrap();
    let lost = guard.lost();
    assert!(block_on(other.force_unlock()).unwrap(), "{what}");
    let lost = block_on(lost);
    assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{what}: {lost:?}");
    drop(guard);
    let guard = block_on(lock.lock()).unwrap();
    let owner = guard.into_owner();
    assert_eq!(block_on(lock.release(&owner)).unwrap(), Released::Free, "{what}");
}

/// 14: locks work on any executor: what needs a runtime is done on the client's.
#[test]
fn n14_locks_work_without_a_runtime_of_ones_own() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let home = runtime();
    let connect = || -> Vec<Client> {
        let quick = |server: &RedisServer| Client::builder(&server.url()).watchdog(ms(1800)).command_timeout(ms(600));
        servers.iter().map(|server| home.block_on(quick(server).connect()).unwrap()).collect()
    };
    let (ours, theirs) = (connect(), connect());
    for flavour in Flavour::ALL {
        if *flavour != Flavour::Read {
            let name = format!("one-{flavour}");
            on_no_runtime(&name, &*ours[0].lock(*flavour, &name), &*theirs[0].lock(*flavour, &name));
        }
    }
    on_no_runtime("multi", &ours[0].multi(["a", "b"]), &theirs[0].multi(["b", "a"]));
    on_no_runtime("redlock", &RedLock::new(ours.clone(), "red"), &RedLock::new(theirs.clone(), "red"));
    on_no_runtime("striped", &ours[0].striped("s", 1), &theirs[0].striped("s", 1));
    assert!(block_on(ours[0].fenced("one-fenced").last_token()).unwrap() > 0);
    assert!(block_on(ours[0].fair("one-fair").queue()).unwrap().is_empty());
    let rw = ours[0].rw("rw");
    let writing = block_on(rw.write().lock()).unwrap();
    let reading = block_on(writing.downgrade()).unwrap();
    assert_eq!(block_on(ours[0].renew_now()).renewed, 1);
    assert_eq!(block_on(reading.unlock()).unwrap(), Released::Free);
    for client in ours.iter().chain(&theirs) {
        block_on(client.shutdown(secs(5))).unwrap();
    }
}

/// 14: connecting needs a runtime to live on, and says so.
#[test]
fn n14_connecting_without_a_runtime_is_an_error() {
    let server = RedisServer::start();
    let refused = block_on(Client::connect(&server.url()));
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    let refused = block_on(Client::builder(&server.url()).connect_lazily());
    assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
}

/// 14: a future that was begun on one runtime may go on anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n14_a_future_may_move_between_executors() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let holder = bed.client().await.reentrant("x");
        let guard = holder.lock().await.unwrap();
        let lock = client.reentrant("x");
        let mut waiting = Box::pin(async move { lock.lock_for(secs(10)).await });
        assert!(futures::poll!(&mut waiting).is_pending());
        let moved = std::thread::spawn(move || block_on(waiting));
        tokio::time::sleep(ms(100)).await;
        guard.unlock().await.unwrap();
        let guard = tokio::task::spawn_blocking(|| moved.join()).await.unwrap().expect("panicked").unwrap().unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

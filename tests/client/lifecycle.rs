//! Clients from beginning to end: connecting, shutting down, being dropped, outliving their runtime.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bed::wire::{Wire, arrives};
use bed::{Bed, QUICK, enter, eventually, ms, reentrant, secs};
use distlock::{Acquire, Client, Error, Guard, Released};
use distlock_support::{Action, Matcher, Numbers, Proxy};
use futures::FutureExt as _;
use tokio::task::JoinSet;

/// The connections of clients.
async fn connections(bed: &Bed) -> BTreeSet<u64> {
    bed.admin.others().await.into_iter().map(|client| client.id).collect()
}

async fn shut_down_with_ten_locks(bed: &Bed) {
    let client = bed.client().await;
    let me = client.owner();
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..10 {
        let lock = client.reentrant(&format!("job {n}"));
        guards.push(match n {
            0..4 => lock.lock().await.unwrap(),
            4..7 => lock.lock_leased(secs(60)).await.unwrap(),
            _ => lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap(),
        });
    }
    // One of them twice.
    guards.push(client.reentrant("job 9").acquire(Acquire::new().owner(&me)).await.unwrap().unwrap());
    let lost: Vec<_> = guards.iter().map(Guard::lost).collect();
    let start = Instant::now();
    client.shutdown(secs(5)).await.unwrap();
    println!("shut down in {:?}", start.elapsed());
    assert!(start.elapsed() < secs(2), "{:?}", start.elapsed());
    // At once: not a moment later, not at the end of a lease.
    assert_eq!(bed.admin.keys().await, [""; 0]);
    for (guard, lost) in guards.into_iter().zip(lost) {
        assert!(!guard.is_held());
        assert!(matches!(lost.now_or_never(), Some(Error::Closed)));
        assert!(matches!(guard.run(async {}).await, Err(Error::Closed)));
        assert!(matches!(guard.unlock().await, Err(Error::Closed)));
    }
}

#[tokio::test]
async fn a_shutdown_frees_what_is_held_on_one_thread() {
    reentrant(shut_down_with_ten_locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_frees_what_is_held_on_threads() {
    reentrant(shut_down_with_ten_locks).await;
}

/// An acquire that was given up may come in late. What looks for it later does so before the connections close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_the_last_look_after_doubt() {
    reentrant(async |bed| {
        for _ in 0..5 {
            let proxy = Proxy::start(bed.server.addr());
            let client = bed.connect(Client::builder(&proxy.url()).watchdog(secs(9)).command_timeout(secs(3))).await;
            let (lock, me) = (client.reentrant("a"), client.owner());
            enter(&lock, &me).await.unlock().await.unwrap();
            let wire = Wire::tap(&bed.server).await;
            proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
            assert!(lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.is_err());
            bed::idle(&client).await;
            assert!(!bed.admin.exists("a").await);
            let acquire = wire.calls(bed).await.remove(0);
            arrives(bed, &acquire).await;
            assert!(bed.admin.exists("a").await, "not too late yet");
            client.shutdown(secs(5)).await.unwrap();
            assert_eq!((client.stats().holds, bed.admin.exists("a").await), (0, false));
        }
    })
    .await;
}

/// Releases that were queued by dropping guards are sent before the connections close.
#[tokio::test]
async fn a_shutdown_waits_for_queued_releases() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mut guards = Vec::new();
        for n in 0..300 {
            guards.push(client.reentrant(&format!("job {n}")).lock().await.unwrap());
        }
        drop(guards);
        client.shutdown(secs(5)).await.unwrap();
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// A server that does not answer: the shutdown keeps its time, says so, and closes all the same.
#[tokio::test]
async fn a_shutdown_keeps_its_time() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let guard = client.reentrant("job").lock().await.unwrap();
        bed.server.stop();
        let start = Instant::now();
        let late = client.shutdown(ms(500)).await;
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
        assert!(start.elapsed() < secs(2), "{:?}", start.elapsed());
        assert!(!guard.is_held());
        bed.server.cont();
        // What could not be released ends with its lease.
        eventually("the lease ends", async || bed.admin.keys().await.is_empty()).await;
    })
    .await;
}

async fn drop_the_last_handle(bed: &Bed) {
    let before = connections(bed).await;
    let client = bed.quick_builder().connect().await.unwrap();
    let (lock, other) = (client.reentrant("job"), client.reentrant("other"));
    let guard = lock.lock().await.unwrap();
    let lost = guard.lost();
    let copy = client.clone();
    drop((client, copy, lock));
    // A guard keeps its client going, its watchdog as well.
    tokio::time::sleep(QUICK + QUICK / 3).await;
    assert!(guard.is_held() && bed.admin.exists("job").await);
    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    // And so does a lock.
    let guard = other.lock().await.unwrap();
    drop(other);
    assert!(guard.is_held());
    drop(guard);
    // The guard was the last: its lock is released, and then the connections close.
    eventually("the connections are closed", async || connections(bed).await == before).await;
    assert_eq!(bed.admin.keys().await, [""; 0]);
    assert!(lost.now_or_never().is_none(), "a release was taken for a loss");
}

#[tokio::test]
async fn dropping_the_last_handle_shuts_down_on_one_thread() {
    reentrant(drop_the_last_handle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_shuts_down_on_threads() {
    reentrant(drop_the_last_handle).await;
}

#[tokio::test]
async fn a_hundred_clients_come_and_go_without_a_trace() {
    reentrant(async |bed| {
        let before = connections(bed).await;
        for round in 0..10 {
            let mut clients = JoinSet::new();
            for n in 0..10 {
                let builder = bed.builder();
                clients.spawn(async move {
                    let client = builder.connect().await.unwrap();
                    let lock = client.reentrant(&format!("job {n}"));
                    // Used a little, in different ways, and dropped; or not used at all.
                    match n % 4 {
                        0 => lock.lock().await.unwrap().unlock().await.map(drop).unwrap(),
                        1 => drop(lock.lock().await.unwrap()),
                        2 => {
                            // Somebody waits in vain, which subscribes.
                            let guard = lock.lock().await.unwrap();
                            assert!(bed::in_vain(&lock.lock_for(ms(20)).await));
                            drop(guard);
                        }
                        _ => {}
                    }
                });
            }
            while let Some(done) = clients.join_next().await {
                done.unwrap();
            }
            eventually("no connection is left", async || connections(bed).await == before).await;
            assert_eq!(bed.admin.keys().await, [""; 0], "round {round}");
        }
    })
    .await;
}

/// Connecting, dropped at any moment.
#[tokio::test]
async fn a_connect_given_up_leaves_nothing() {
    reentrant(async |bed| {
        let before = connections(bed).await;
        let start = Instant::now();
        bed.client().await.shutdown(secs(5)).await.unwrap();
        let full = start.elapsed();
        let mut made = 0;
        for n in 0..60 {
            let connect = bed.builder().connect();
            if let Ok(client) = tokio::time::timeout(full * n / 40, connect).await {
                drop(client.unwrap());
                made += 1;
            }
        }
        println!("{made} of 60 were made in time, which is {full:?} as a rule");
        assert!(made < 60);
        eventually("no connection is left", async || connections(bed).await == before).await;
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// The runtime that a client was connected on ends first. What is left of it errs, and does not hang or panic.
#[tokio::test]
async fn a_client_without_its_runtime_errs_and_does_not_hang() {
    reentrant(async |bed| {
        let builder = bed.quick_builder();
        let made = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                let client = builder.connect().await.unwrap();
                let guard = client.reentrant("job").lock().await.unwrap();
                (client, guard)
            })
        });
        let (client, guard): (Client, Guard) = made.join().unwrap();
        let lock = client.reentrant("other");
        let start = Instant::now();
        assert!(lock.try_lock().await.is_err());
        assert!(lock.lock_for(ms(500)).await.is_err());
        assert!(lock.lock().await.is_err());
        // Nobody renews any more, and the local clock says so.
        tokio::time::timeout(QUICK * 2, guard.lost()).await.expect("told");
        assert!(!guard.is_held());
        assert!(guard.unlock().await.is_err());
        let shut = tokio::time::timeout(secs(10), client.shutdown(secs(1))).await.expect("no hang");
        println!("{:?}, and the shutdown: {shut:?}", start.elapsed());
        drop(lock);
        drop(client);
        eventually("the lease ends", async || bed.admin.keys().await.is_empty()).await;
    })
    .await;
}

/// Used from a runtime that is not the one it was connected on, which goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_works_from_another_runtime() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let there = client.clone();
        let (here, elsewhere) = (client.reentrant("job"), there.reentrant("job"));
        let guard = here.lock().await.unwrap();
        let waiter = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let guard = elsewhere.lock_for(secs(20)).await.unwrap().expect("woken across runtimes");
                tokio::time::sleep(QUICK).await;
                assert!(guard.is_held(), "renewed by the first runtime");
                drop(guard);
                drop(there);
            });
        });
        eventually("it waits", async || client.stats().waiting == 1).await;
        guard.unlock().await.unwrap();
        while !waiter.is_finished() {
            tokio::time::sleep(ms(10)).await;
        }
        waiter.join().unwrap();
        assert!(here.lock_for(secs(2)).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn connecting_may_be_dropped_at_any_point() {
    reentrant(async |bed| {
        let mut numbers = Numbers::new(7);
        let mut dropped = 0;
        for _ in 0..200 {
            let pause = Duration::from_micros(numbers.below(3000));
            match tokio::time::timeout(pause, bed.builder().connect()).await {
                Ok(client) => client.unwrap().shutdown(secs(2)).await.unwrap(),
                Err(_) => dropped += 1,
            }
        }
        assert!(dropped > 0, "none was dropped in time");
        eventually("no connection is left", async || bed.admin.others().await.is_empty()).await;
    })
    .await;
}

/// A guard outlives the runtime of its client: dropping it neither blocks nor panics, and the lease ends the lock.
#[tokio::test]
async fn a_guard_dropped_after_the_end_of_its_runtime_is_harmless() {
    reentrant(async |bed| {
        let url = bed.server.url();
        let guard = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let guard = runtime.block_on(async {
                let builder = Client::builder(&url).watchdog(ms(1200)).command_timeout(ms(400));
                let client = builder.connect().await.unwrap();
                client.reentrant("c0").lock().await.unwrap()
            });
            runtime.shutdown_background();
            guard
        })
        .join()
        .unwrap();
        drop(guard);
        eventually("the lease has ended it", async || bed.admin.keys().await.is_empty()).await;
    })
    .await;
}

//! Much at once over TLS, and servers that stand still: what is encrypted already and has no room in the socket leaves as soon as it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use distlock::{Client, Error};
use distlock_support::Admin;

use crate::pki::When;
use crate::rig::{BOTH, Secure, ms, secs};

/// More than the sockets of both sides take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_frozen_server_has_no_room_for_goes_out_when_it_is_back() {
    const CALLS: usize = 2_000;
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let admin = Admin::connect(&server.server).await;
    for direct in BOTH {
        // No command runs out of time while the server stands still.
        let builder = server.builder(direct, server.tls()).watchdog(secs(90)).command_timeout(secs(30));
        let client = builder.connect().await.unwrap();
        let name = |n: usize| format!("{n}:{}", "x".repeat(4_000));
        server.server.stop();
        let calls: Vec<_> = (0..CALLS)
            .map(|n| {
                let lock = client.reentrant(&name(n));
                tokio::spawn(async move { lock.try_lock().await })
            })
            .collect();
        tokio::time::sleep(ms(500)).await;
        assert!(calls.iter().all(|call| !call.is_finished()));
        server.server.cont();
        let mut guards = Vec::new();
        for call in calls {
            guards.push(call.await.unwrap().unwrap().expect("nobody has it"));
        }
        assert_eq!(admin.cmd::<usize>(&["DBSIZE"]).await, CALLS);
        // Dropped at once, they are released by commands as many.
        drop(guards);
        let free = async || admin.cmd::<usize>(&["DBSIZE"]).await == 0;
        bed::eventually("all are released", free).await;
        client.shutdown(secs(10)).await.unwrap();
    }
}

/// Tasks that contend for a few names while connections are cut again and again: never two at a time, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_exclude_while_connections_are_cut() {
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let admin = Admin::connect(&server.server).await;
    for direct in BOTH {
        let clients = [(); 2].map(|()| server.builder(direct, server.tls()));
        let inside: Arc<[AtomicUsize; 4]> = Arc::default();
        let (until, holds) = (Instant::now() + secs(4), Arc::new(AtomicUsize::new(0)));
        let mut tasks = Vec::new();
        let mut all: Vec<Client> = Vec::new();
        for builder in clients {
            let client = builder.connect().await.unwrap();
            for n in 0..16 {
                let (client, inside, holds) = (client.clone(), Arc::clone(&inside), Arc::clone(&holds));
                tasks.push(tokio::spawn(async move {
                    let lock = client.reentrant(&format!("cut {}", n % 4));
                    while Instant::now() < until {
                        match lock.lock_for(secs(2)).await {
                            Ok(Some(guard)) => {
                                assert_eq!(inside[n % 4].fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                                tokio::time::sleep(ms(1)).await;
                                inside[n % 4].fetch_sub(1, Ordering::SeqCst);
                                holds.fetch_add(1, Ordering::Relaxed);
                                let _ = guard.unlock().await;
                            }
                            Ok(None) | Err(Error::Connection { .. } | Error::Timeout { .. }) => {}
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                }));
            }
            all.push(client);
        }
        while Instant::now() < until {
            tokio::time::sleep(ms(300)).await;
            server.kill_clients().await;
        }
        for task in tasks {
            task.await.unwrap();
        }
        let held = holds.load(Ordering::Relaxed);
        println!("direct: {direct}: {held} holds in 4 s");
        assert!(held > 20, "{held}");
        for client in all {
            client.shutdown(secs(10)).await.unwrap();
        }
        let free = async || admin.cmd::<usize>(&["DBSIZE"]).await == 0;
        bed::eventually("nothing is left", free).await;
    }
}

/// One acquire and release after the other, over fred and over connections of our own, in turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures: run it alone, in a release build"]
async fn measure_fred_and_direct() {
    const PAIRS: u32 = 3_000;
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let plain = format!("redis://127.0.0.1:{}", server.server.port());
    let mut clients = Vec::new();
    for (by_tls, direct) in [(true, false), (true, true), (false, false), (false, true)] {
        let builder = if by_tls {
            server.builder(direct, server.tls())
        } else {
            Client::builder(&plain).password(crate::rig::PASSWORD).direct(direct)
        };
        clients.push((by_tls, direct, builder.connect().await.unwrap(), Vec::new()));
    }
    for _ in 0..7 {
        for (_, _, client, took) in &mut clients {
            let lock = client.reentrant("measured");
            let began = Instant::now();
            for _ in 0..PAIRS {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
            took.push(began.elapsed() / PAIRS);
        }
    }
    for (by_tls, direct, _, mut took) in clients {
        took.sort();
        let [least, median, most]: [Duration; 3] = [took[0], took[took.len() / 2], took[took.len() - 1]];
        println!("TLS {by_tls}, direct {direct}: {median:?} an acquire and release ({least:?} to {most:?})");
    }
}

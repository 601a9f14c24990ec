//! High load over TLS, and frozen servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bed::{Counter, becomes, ends, eventually, ms, secs};
use distlock::{Client, Error};
use distlock_support::Admin;

use crate::pki::When;
use crate::rig::{BOTH, Secure, end};

/// Waits until no key is left, as long as keys disappear.
async fn nothing_is_left(admin: &Admin) {
    let keys = async || admin.cmd::<usize>(&["DBSIZE"]).await;
    let mut left = keys().await;
    while left > 0 {
        eventually(&format!("fewer keys than {left}"), async || keys().await < left).await;
        left = keys().await;
    }
}

/// The test sends more data than the sockets of both sides buffer. Encrypted data that the socket cannot take yet is
/// sent as soon as possible.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_queued_while_the_server_is_frozen_are_sent_after_it_recovers() {
    const CALLS: usize = 800;
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let admin = Admin::connect(&server.server).await;
    for direct in BOTH {
        // Commands, leases and intervals between pings are longer than the test on any machine.
        let builder = server.builder(direct, server.tls()).watchdog(secs(3600)).command_timeout(secs(600));
        let client = builder.configure(|options| options.ping_interval = secs(3600)).connect().await.unwrap();
        let name = |n: usize| format!("{n}:{}", "x".repeat(4_000));
        server.server.stop();
        let calls: Vec<_> = (0..CALLS)
            .map(|n| {
                let lock = client.reentrant(&name(n));
                tokio::spawn(async move { lock.try_lock().await })
            })
            .collect();
        becomes("calls under way", CALLS, async || client.stats().under_way).await;
        tokio::time::sleep(ms(200)).await;
        assert!(calls.iter().all(|call| !call.is_finished()), "a call ended at a frozen server");
        server.server.cont();
        let mut guards = Vec::new();
        for (n, call) in calls.into_iter().enumerate() {
            let outcome = ends("a queued call", call).await.unwrap();
            guards.push(outcome.unwrap_or_else(|error| panic!("call {n}: {error:?}")).expect("nobody has it"));
        }
        assert_eq!(admin.cmd::<usize>(&["DBSIZE"]).await, CALLS);
        // Dropping the guards sends as many releases at once.
        drop(guards);
        nothing_is_left(&admin).await;
        end([client]).await;
    }
}

/// Tasks contend for a few names while connections are cut again and again. Each name has one holder at a time, and
/// nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_exclude_while_connections_are_cut() {
    const TURNS: u64 = 200;
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let admin = Admin::connect(&server.server).await;
    for direct in BOTH {
        let inside: Arc<[Counter; 4]> = Arc::default();
        let turns = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        let mut all: Vec<Client> = Vec::new();
        for _ in 0..2 {
            let client = server.builder(direct, server.tls()).connect().await.unwrap();
            for n in 0..16 {
                let lock = client.reentrant(&format!("cut {}", n % 4));
                let (inside, turns) = (Arc::clone(&inside), Arc::clone(&turns));
                tasks.push(tokio::spawn(async move {
                    while turns.load(Ordering::Relaxed) < TURNS {
                        match lock.lock_for(secs(2)).await {
                            Ok(Some(guard)) => {
                                inside[n % 4].bump(ms(1)).await;
                                turns.fetch_add(1, Ordering::Relaxed);
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
        while turns.load(Ordering::Relaxed) < TURNS {
            tokio::time::sleep(ms(100)).await;
            server.kill_clients().await;
        }
        for task in tasks {
            ends("a contender", task).await.unwrap();
        }
        end(all).await;
        nothing_is_left(&admin).await;
    }
}

//! Locks in a cluster that does not change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bed::becomes;
use distlock::{Acquire, DistLock as _, Flavour, Guard, ServerRole, TopologyKind};
use distlock_support::{Cluster, ClusterOptions};
use futures::future::join_all;

use crate::{FLAVOURS, client, end, exclusive, lock, ms, primaries, secs, turn, waiter, woken, woken_by_messages};

#[tokio::test]
async fn every_flavour_works_on_every_primary() {
    let cluster = primaries(3).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in FLAVOURS {
        for slot in [0, 8_000, 16_000] {
            let name = distlock_support::cluster::key_in(slot, &format!("{flavour}:"));
            let guard = lock(&one, flavour, &name).lock().await.unwrap();
            if flavour != Flavour::Read {
                assert!(lock(&other, flavour, &name).try_lock().await.unwrap().is_none(), "{name}: two holders");
            }
            assert!(guard.is_held());
            guard.unlock().await.unwrap();
            turn(&other, flavour, &name).await;
        }
    }
    end(one).await;
    end(other).await;
}

#[tokio::test]
async fn topology_lists_primaries_and_replicas() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let one = client(&cluster).await;
    one.ping().await.unwrap();
    let topology = one.topology();
    assert_eq!(topology.kind, TopologyKind::Cluster);
    let of = |role| topology.servers.iter().filter(|server| server.role == role).collect::<Vec<_>>();
    let (primaries, replicas) = (of(ServerRole::Primary), of(ServerRole::Replica));
    assert_eq!((primaries.len(), replicas.len()), (3, 3), "{topology:?}");
    assert!(primaries.iter().all(|server| server.epoch.is_some() && server.since.is_some()), "{topology:?}");
    end(one).await;
}

/// Only a message can wake the waiter, whose next poll is an hour away.
#[tokio::test]
async fn release_wakes_the_waiter_of_another_client() {
    let cluster = primaries(3).await;
    let (one, other) = (client(&cluster).await, woken_by_messages(&cluster).connect().await.unwrap());
    // Waiters of plain locks are left out, because they poll.
    for flavour in exclusive().filter(|flavour| *flavour != Flavour::Plain) {
        let name = format!("wake:{flavour}");
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        let waiting = waiter(&other, flavour, &name).await;
        guard.unlock().await.unwrap();
        woken(&name, waiting).await.unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

#[tokio::test]
async fn many_names_are_renewed_and_a_list_of_names_is_locked_together() {
    let cluster = primaries(3).await;
    let one = client(&cluster).await;
    let names: Vec<String> = (0..300).map(|n| format!("many:{n}")).collect();
    let guards = join_all(names.iter().map(async |name| one.reentrant(name).lock().await.unwrap())).await;
    let deadlines: Vec<_> = guards.iter().map(Guard::deadline).collect();
    tokio::time::sleep(ms(10)).await;
    becomes("renewed, failed, lost", (300, 0, 0), async || {
        let round = one.renew_now().await;
        (round.renewed, round.failed, round.lost)
    })
    .await;
    assert!(guards.iter().zip(deadlines).all(|(guard, before)| guard.deadline() > before), "a renewal moves deadlines");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    let guard = one.multi(names.clone()).lock().await.unwrap();
    assert!(lock(&one, Flavour::Reentrant, &names[7]).try_lock().await.unwrap().is_none(), "a member is free");
    guard.unlock().await.unwrap();
    end(one).await;
}

/// Tasks of three clients compete for one name on each primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_name_has_one_holder_at_a_time() {
    let cluster = primaries(3).await;
    let clients = [client(&cluster).await, client(&cluster).await, client(&cluster).await];
    for flavour in exclusive() {
        let names = [0, 1, 2].map(|n| (format!("turns:{flavour}:{n}"), Arc::new(AtomicU32::new(0))));
        let tasks = clients.iter().cycle().take(9).enumerate().map(|(n, client)| {
            let (name, inside) = &names[n / 3];
            let (lock, inside) = (lock(client, flavour, name), Arc::clone(inside));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.acquire(Acquire::new().wait(secs(300))).await.unwrap().expect("the wait ran out");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().await.unwrap();
                }
            })
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
    }
    for client in clients {
        end(client).await;
    }
}

//! What locks do in a cluster where nothing happens to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use distlock::{Acquire, MultiLock, ServerRole, TopologyKind};
use distlock_support::{Cluster, ClusterOptions};
use futures::future::join_all;
use tokio::time::Instant;

use crate::{FLAVOURS, client, end, exclusive, lock, ms, primaries, secs};

#[tokio::test]
async fn every_flavour_on_every_primary() {
    let cluster = primaries(3).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in FLAVOURS {
        // A dozen names are on all three, but for one run in a hundred.
        for n in 0..12 {
            let name = format!("{flavour}:{n}");
            let guard = lock(&one, flavour, &name).lock().await.unwrap();
            if exclusive().any(|one| one == flavour) {
                assert!(lock(&other, flavour, &name).try_lock().await.unwrap().is_none(), "{name}");
            }
            assert!(guard.is_held());
            guard.unlock().await.unwrap();
            lock(&other, flavour, &name).try_lock().await.unwrap().expect("free again").unlock().await.unwrap();
        }
    }
    end(one).await;
    end(other).await;
}

#[tokio::test]
async fn a_client_tells_of_its_servers() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let one = client(&cluster).await;
    one.ping().await.unwrap();
    let told = one.topology();
    assert_eq!(told.kind, TopologyKind::Cluster);
    let of = |role| told.servers.iter().filter(|server| server.role == role).collect::<Vec<_>>();
    let (primaries, replicas) = (of(ServerRole::Primary), of(ServerRole::Replica));
    assert_eq!((primaries.len(), replicas.len()), (3, 3), "{told:?}");
    assert!(primaries.iter().all(|server| server.epoch.is_some() && server.since.is_some()), "{told:?}");
    end(one).await;
}

/// A release wakes who waits at another client, long before it would look for itself.
#[tokio::test]
async fn a_release_wakes_who_waits_elsewhere() {
    let cluster = primaries(3).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    for flavour in exclusive() {
        let name = format!("wake:{flavour}");
        let guard = lock(&one, flavour, &name).lock().await.unwrap();
        let waiter = lock(&other, flavour, &name);
        let waiting = tokio::spawn(async move { waiter.lock().await.map(|guard| (Instant::now(), guard)) });
        while other.stats().waiting == 0 || other.stats().under_way > 0 {
            tokio::time::sleep(ms(5)).await;
        }
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let (at, guard) = waiting.await.unwrap().unwrap();
        assert!(at - released < secs(2), "{flavour}: woken after {:?}", at - released);
        guard.unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

/// Many locks over all slots: each has its own renewal, and a list of them is had together.
#[tokio::test]
async fn many_names_are_renewed_and_listed_names_are_locked_together() {
    let cluster = primaries(3).await;
    let one = bed::builder(&cluster.url()).watchdog(secs(3)).command_timeout(secs(1)).connect().await.unwrap();
    let names: Vec<String> = (0..300).map(|n| format!("many:{n}")).collect();
    let locks: Vec<_> = names.iter().map(|name| lock(&one, distlock::Flavour::Reentrant, name)).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    tokio::time::sleep(secs(4)).await;
    assert!(guards.iter().all(distlock::Guard::is_held), "beyond the first lease");
    let renewed = one.renew_now().await;
    assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (300, 0, 0));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    let multi: MultiLock = one.multi(names.clone());
    let guard = distlock::DistLock::lock(&multi).await.unwrap();
    assert!(lock(&one, distlock::Flavour::Reentrant, &names[7]).try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    end(one).await;
}

/// Tasks of several clients, one name on each primary: nobody is in beside another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time_for_each_name() {
    let cluster = primaries(3).await;
    let clients = [client(&cluster).await, client(&cluster).await, client(&cluster).await];
    for flavour in exclusive() {
        let names = [0, 1, 2].map(|n| (format!("turns:{flavour}:{n}"), Arc::new(AtomicU32::new(0))));
        let tasks = clients.iter().flat_map(|client| {
            names.iter().flat_map(move |(name, inside)| {
                (0..3).map(move |_| {
                    let (lock, inside) = (lock(client, flavour, name), Arc::clone(inside));
                    tokio::spawn(async move {
                        for _ in 0..10 {
                            let wait = Acquire::new().wait(secs(60));
                            let guard = lock.acquire(wait).await.unwrap().expect("a minute is long");
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            tokio::task::yield_now().await;
                            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                            guard.unlock().await.unwrap();
                        }
                    })
                })
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

//! Exclusion: many tasks and clients, one holder at a time.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, Client};
use distlock_support::Numbers;
use tokio::task::JoinSet;

use crate::subject::Subject;
use bed::{Counter, PATIENCE, becomes, ends, idle, ms, secs, waits_in_vain};

async fn crowd(bed: &Subject<'_>, clients: &[Client], tasks: usize, loops: usize, pause: Duration) -> u64 {
    let counter = Arc::new(Counter::default());
    let mut crowd = JoinSet::new();
    for client in clients {
        for _ in 0..tasks {
            let (lock, counter) = (bed.mutex(client, "job"), Arc::clone(&counter));
            crowd.spawn(async move {
                for _ in 0..loops {
                    let guard = lock.lock().await.unwrap();
                    counter.bump(pause).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    crowd.join_all().await;
    counter.get()
}

// testConcurrency_SingleInstance
pub async fn fifteen_tasks_of_one_client_exclude_each_other(bed: &Subject<'_>) {
    let clients = [bed.still_client().await];
    assert_eq!(crowd(bed, &clients, 15, 1, ms(5)).await, 15);
    assert_eq!(crowd(bed, &clients, 15, 40, ms(0)).await, 600);
}

// testConcurrencyLoop_MultiInstance
pub async fn sixteen_clients_exclude_each_other(bed: &Subject<'_>) {
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(bed.still_client().await);
    }
    assert_eq!(crowd(bed, &clients, 1, 40, ms(1)).await, 640);
}

// testConcurrency_MultiInstance
pub async fn hundred_clients_exclude_each_other(bed: &Subject<'_>) {
    let connecting: JoinSet<_> = (0..100).map(|_| bed.builder().connect()).collect();
    let clients: Vec<_> = connecting.join_all().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(crowd(bed, &clients, 1, 1, ms(1)).await, 100);
    for client in clients {
        idle(&client).await;
        client.shutdown(PATIENCE).await.expect("shutdown of an idle client");
    }
}

// testConcurrencyTryLockUnLock
pub async fn held_lock_is_registered_for_renewal(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (client, lock) = (client.clone(), bed.mutex(&client, "job"));
        tasks.spawn(async move {
            let mut held = 0_u32;
            for _ in 0..100 {
                let Some(guard) = lock.try_lock().await.unwrap() else { continue };
                assert!(client.stats().holds > 0, "held, but nothing would renew it");
                guard.unlock().await.unwrap();
                held += 1;
            }
            held
        });
    }
    assert!(tasks.join_all().await.into_iter().sum::<u32>() > 0, "nobody had the lock in 1600 attempts");
    idle(&client).await;
    assert_eq!(client.stats().names, 0);
}

// testSubscriptionsPerConnection; this crate always uses one connection for all subscriptions
pub async fn many_acquires_leave_no_subscription(bed: &Subject<'_>) {
    bed.prepare(&["job 0", "job 1", "job 2", "job 3", "job 4"]).await;
    let builder = || bed.still_builder().configure(|options| options.subscription_linger = ms(200));
    let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
    let counters: Arc<[Counter; 5]> = Arc::default();
    let mut workers = JoinSet::new();
    for worker in 0..32 {
        let client = clients[worker % 2].clone();
        let locks: Vec<_> = (0..5).map(|n| bed.mutex(&client, &format!("job {n}"))).collect();
        let counters = Arc::clone(&counters);
        let mut numbers = Numbers::new(worker as u64);
        workers.spawn(async move {
            for job in (worker..1_500).step_by(32) {
                let guard = locks[job % 5].lock().await.unwrap();
                counters[job % 5].bump(ms(numbers.below(6))).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    workers.join_all().await;
    assert_eq!(counters.iter().map(Counter::get).sum::<u64>(), 1_500);
    becomes("channels", Vec::<String>::new(), async || bed.admin.channels().await).await;
    for client in &clients {
        becomes("names that leave a trace", 0, async || client.stats().names).await;
    }
}

// testSinglePubSub: only messages wake the waiters
pub async fn one_name_does_not_starve_another(bed: &Subject<'_>) {
    bed.prepare(&["one", "two"]).await;
    let builder = || bed.still_builder().configure(|options| options.subscription_linger = ms(1));
    let clients = [bed.connect(builder()).await, bed.connect(builder()).await];
    let mut pairs = JoinSet::new();
    for name in ["one", "two"] {
        for lock in [bed.mutex(&clients[0], name), bed.rival(&clients[1], name)] {
            pairs.spawn(async move {
                let mut numbers = Numbers::new(7);
                for round in 0..80 {
                    let guard = ends(&format!("round {round} on {name}"), lock.lock()).await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    guard.unlock().await.unwrap();
                    // Some pauses are long enough for the subscription to end.
                    tokio::time::sleep(ms(numbers.below(4))).await;
                }
            });
        }
    }
    pairs.join_all().await;
}

pub async fn all_kinds_of_acquire_exclude_each_other(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let lock = bed.mutex(&ours, "job");
    let rivals = [bed.rival(&ours, "job"), bed.rival(&theirs, "job")];
    let mut ways =
        vec![Acquire::new(), Acquire::new().wait(ms(0)), Acquire::new().wait(PATIENCE), Acquire::new().lease(secs(60))];
    if !bed.kind().is_permit {
        ways.push(Acquire::new().owner(&ours.owner()).wait(PATIENCE).lease(secs(60)));
    }
    for how in &ways {
        let guard = lock.acquire(how.clone()).await.unwrap().expect("it is free");
        for handle in &rivals {
            assert!(handle.try_lock().await.unwrap().is_none(), "{how:?}");
            for waits in [Acquire::new(), Acquire::new().lease(secs(60))] {
                waits_in_vain(ms(20), async |wait| handle.acquire(waits.clone().wait(wait)).await).await;
            }
        }
        guard.unlock().await.unwrap();
    }
}

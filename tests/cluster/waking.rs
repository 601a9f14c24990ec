//! A primary that wakes up when another one has its place.

use distlock::{Acquire, Flavour};
use distlock_support::{Cluster, ClusterOptions, slot_of};
use futures::future::join_all;
use tokio::time::Instant;

use crate::{client, lock, ms, secs};

/// A primary stands still for longer than the cluster waits for it, and goes on: who holds what it has granted is told soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_wakes_after_its_promotion_grants_nothing_for_long() {
    let cluster = Cluster::start(ClusterOptions::default().node_timeout(500).require_full_coverage(false)).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let (mut worst, mut granted_at_all) = (ms(0), 0);
    for round in 0..3 {
        let primary = cluster.owner(100).await;
        let tag = (0..).map(|n| n.to_string()).find(|tag| slot_of(tag) < 5_000).unwrap();
        let names: Vec<String> = (0..30).map(|n| format!("{{{tag}}}:{round}:{n}")).collect();
        lock(&one, Flavour::Reentrant, &names[0]).lock().await.unwrap().unlock().await.unwrap();
        cluster.stop(primary).await;
        let asked: Vec<_> = names
            .iter()
            .map(|name| {
                let lock = lock(&one, Flavour::Reentrant, name);
                tokio::spawn(async move { lock.try_lock().await })
            })
            .collect();
        cluster.promotion(primary).await;
        cluster.cont(primary);
        let woken = Instant::now();
        let mut granted = Vec::new();
        for asked in asked {
            if let Ok(Some(guard)) = asked.await.unwrap() {
                granted.push(guard);
            }
        }
        granted_at_all += granted.len();
        let taken = join_all(granted.iter().map(|guard| {
            let lock = lock(&other, Flavour::Reentrant, guard.name());
            async move {
                let theirs = lock.acquire(Acquire::new().wait(secs(3))).await;
                match theirs {
                    Ok(Some(theirs)) => {
                        let both = Instant::now();
                        let lost = tokio::time::timeout(secs(20), guard.lost()).await;
                        let overlap = both.elapsed();
                        drop(theirs);
                        Some((overlap, lost.is_ok()))
                    }
                    _ => None,
                }
            }
        }))
        .await;
        let two: Vec<_> = taken.into_iter().flatten().collect();
        worst = two.iter().map(|(overlap, _)| *overlap).max().unwrap_or_default().max(worst);
        println!(
            "{round}: {} granted, {} of them by two, {:?} since it woke; {two:?}",
            granted.len(),
            two.len(),
            woken.elapsed()
        );
        drop(granted);
        bed::idle(&one).await;
        bed::idle(&other).await;
        cluster.whole().await;
    }
    // It had commands in its sockets, and went on with them before it heard that it is no primary any more.
    assert!(granted_at_all > 0, "nothing was granted: nothing is shown");
    assert!(worst < ms(500), "two holders for {worst:?}");
}

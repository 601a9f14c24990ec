//! Slot maps that contradict each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use distlock::{Acquire, Error, Flavour};
use distlock_support::{Cluster, ClusterOptions, slot_of};
use futures::future::join_all;

use crate::{accepted, client, end, lock, primaries, secs, turn};

/// A primary dies for good and is forgotten. Its slots have no node, and an operator assigns them to a node with a
/// lower config epoch (`CLUSTER ADDSLOTS`). The cluster is complete, so existing and new clients must work.
#[tokio::test]
async fn slots_of_a_forgotten_primary_are_found_at_a_node_of_a_lower_epoch() {
    let cluster = Cluster::start(ClusterOptions::default().primaries(4).replicas(0).require_full_coverage(false)).await;
    let one = client(&cluster).await;
    let gone = &cluster.nodes()[3];
    let name = (0..).map(|n| format!("forgotten:{n}")).find(|name| slot_of(name) > 12_300).unwrap();
    turn(&one, Flavour::Reentrant, &name).await;
    cluster.kill(gone).await;
    for node in &cluster.nodes()[..3] {
        node.admin().cmd::<()>(&["CLUSTER", "FORGET", gone.id()]).await;
    }
    cluster.nodes()[0].admin().cmd::<()>(&["CLUSTER", "ADDSLOTSRANGE", "12288", "16383"]).await;
    bed::eventually("the cluster gives the slots to node 0", async || {
        cluster.owner(slot_of(&name)).await.id() == cluster.nodes()[0].id()
    })
    .await;
    let new = client(&cluster).await;
    turn(&new, Flavour::Reentrant, &name).await;
    end(new).await;
    bed::eventually("the old client finds the slot", async || {
        matches!(lock(&one, Flavour::Reentrant, &name).acquire(Acquire::new().wait(secs(5))).await, Ok(Some(_)))
    })
    .await;
}

/// 500 tasks work in a slot that moves to a server to which the client has no connection. The tasks share a few new
/// connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowd_that_is_redirected_to_a_new_server_shares_its_connections() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let to = cluster.replicas_of(cluster.primary_of("crowd").await).await[0];
    let one = client(&cluster).await;
    let (stop, sections) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let lock = lock(&one, Flavour::Fenced, &format!("{{crowd}}n{n}"));
            let (stop, sections) = (Arc::clone(&stop), Arc::clone(&sections));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    lock.lock().await.unwrap().unlock().await.unwrap();
                    sections.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let progress = async || {
        let before = sections.load(Ordering::Relaxed);
        bed::eventually("the crowd works", async || sections.load(Ordering::Relaxed) > before + 1_000).await;
    };
    progress().await;
    let before = accepted(to.admin()).await;
    cluster.failover(to).await;
    progress().await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let made = accepted(to.admin()).await - before;
    assert!(made < 20, "{made} connections to the new server");
    end(one).await;
}

/// Two servers redirect to each other for a slot. Callers get a retryable error. The pauses limit the number of
/// redirects, also while the client renews other locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_in_a_circle_are_bounded() {
    const WAITERS: u64 = 4;
    let cluster = primaries(2).await;
    let one = bed::builder(&cluster.url()).command_timeout(secs(3)).connect().await.unwrap();
    let slot = slot_of("loop");
    let held = (0..100).map(|n| format!("held:{n}")).filter(|name| slot_of(name) != slot);
    let guards = join_all(held.map(async |name| one.reentrant(&name).lock().await.unwrap())).await;
    let owner = cluster.primary_of("loop").await;
    let other = cluster.other_primary(owner).await;
    owner.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", other.id()]).await;
    let waits = (0..WAITERS).map(|n| {
        let lock = lock(&one, Flavour::Reentrant, &format!("{{loop}}w{n}"));
        async move { lock.acquire(Acquire::new().wait(secs(8))).await }
    });
    for outcome in join_all(waits).await {
        let outcome = outcome.map(|guard| guard.is_some());
        assert!(outcome.as_ref().is_err_and(Error::is_retryable), "{outcome:?}");
    }
    let mut redirects = 0;
    for node in cluster.nodes() {
        let stats: String = node.admin().cmd(&["INFO", "errorstats"]).await;
        let moved = stats.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
        redirects += moved.map_or(0, |count| count.trim().parse::<u64>().unwrap());
    }
    assert!(guards.iter().all(distlock::Guard::is_held));
    // For 8 s, nine redirects in a row are followed by a pause of 0.1 s. A slow machine makes fewer redirects.
    assert!(redirects < WAITERS * 9 * 110, "{redirects} redirects for {WAITERS} waiters");
}

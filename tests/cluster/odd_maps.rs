//! Maps of slots that are not as they should be.

use std::sync::Arc;

use distlock::{Acquire, Error, Flavour};
use distlock_support::{Cluster, ClusterOptions, slot_of};
use tokio::time::Instant;

use crate::{client, end, lock, ms, primaries, secs};

/// A primary dies for good and is forgotten; an operator gives its slots to one that has a lower config epoch (`CLUSTER ADDSLOTS`, as
/// nobody has them). The cluster is whole; new clients work; an old one has to as well.
#[tokio::test]
async fn slots_of_a_forgotten_primary_are_found_at_one_of_a_lower_epoch() {
    let cluster = Cluster::start(ClusterOptions::default().primaries(4).replicas(0).require_full_coverage(false)).await;
    let one = client(&cluster).await;
    let gone = &cluster.nodes()[3];
    let name = (0..).map(|n| format!("forgotten:{n}")).find(|name| slot_of(name) > 12_300).unwrap();
    lock(&one, Flavour::Reentrant, &name).lock().await.unwrap().unlock().await.unwrap();
    cluster.kill(gone).await;
    for node in &cluster.nodes()[..3] {
        node.admin().cmd::<()>(&["CLUSTER", "FORGET", gone.id()]).await;
    }
    cluster.nodes()[0].admin().cmd::<()>(&["CLUSTER", "ADDSLOTSRANGE", "12288", "16383"]).await;
    let began = Instant::now();
    while cluster.owner(slot_of(&name)).await.id() != cluster.nodes()[0].id() {
        assert!(began.elapsed() < secs(20));
        tokio::time::sleep(ms(20)).await;
    }
    let new = client(&cluster).await;
    lock(&new, Flavour::Reentrant, &name).lock().await.unwrap().unlock().await.unwrap();
    end(new).await;
    let got = lock(&one, Flavour::Reentrant, &name).acquire(Acquire::new().wait(secs(14))).await;
    assert!(matches!(got, Ok(Some(_))), "15 s after the cluster is whole: {got:?}");
}

/// A slot goes to a server that the client does not know yet, while a crowd works in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_is_sent_to_a_new_server_makes_no_crowd_of_connections() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let to = cluster.replicas_of(cluster.primary_of("crowd").await).await[0];
    let one = client(&cluster).await;
    let names: Vec<String> = (0..500).map(|n| format!("{{crowd}}n{n}")).collect();
    let stop: Arc<std::sync::atomic::AtomicBool> = Arc::default();
    let tasks: Vec<_> = names
        .iter()
        .map(|name| {
            let (lock, stop) = (lock(&one, Flavour::Fenced, name), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut worst = ms(0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let began = Instant::now();
                    lock.lock().await.unwrap().unlock().await.unwrap();
                    worst = worst.max(began.elapsed());
                }
                worst
            })
        })
        .collect();
    tokio::time::sleep(secs(1)).await;
    async fn received(node: &distlock_support::Node) -> usize {
        let info: String = node.admin().cmd(&["INFO", "stats"]).await;
        let received = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        received.trim().parse::<usize>().unwrap()
    }
    let before = received(to).await;
    cluster.failover(to).await;
    tokio::time::sleep(secs(2)).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut worst = ms(0);
    for task in tasks {
        worst = worst.max(task.await.unwrap());
    }
    let made = received(to).await - before;
    println!("{made} connections, the worst section {worst:?}");
    assert!(made < 20, "{made} connections to the new server");
    end(one).await;
}

/// Two servers that send to each other for a slot: callers are told in time, and the client does not burn the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_send_to_each_other_cost_no_core() {
    let cluster = primaries(2).await;
    let one = client(&cluster).await;
    let mut held = Vec::new();
    let name = "loop".to_owned();
    let slot = slot_of(&name);
    let many = |what: &str, usual: usize| std::env::var(what).map_or(usual, |count| count.parse().unwrap());
    for n in 0..many("HOLDS", 100) {
        let name = format!("held:{n}");
        if slot_of(&name) != slot {
            held.push(lock(&one, Flavour::Reentrant, &name));
        }
    }
    let guards = futures::future::join_all(held.iter().map(|lock| lock.lock())).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    let owner = cluster.primary_of(&name).await;
    let other = cluster.other_primary(owner).await;
    owner.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", other.id()]).await;
    let cpu = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
    };
    tokio::time::sleep(secs(1)).await;
    let refused = async || {
        let mut all = 0;
        for node in cluster.nodes() {
            let stats: String = node.admin().cmd(&["INFO", "errorstats"]).await;
            let moved = stats.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
            all += moved.map_or(0, |count| count.trim().parse::<u64>().unwrap());
        }
        all
    };
    let (before, began) = (cpu(), Instant::now());
    let names: Vec<String> = (0..many("WAITERS", 4)).map(|n| format!("{{loop}}w{n}")).collect();
    let waiting: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = lock(&one, Flavour::Reentrant, name);
            tokio::spawn(async move { lock.acquire(Acquire::new().wait(secs(8))).await })
        })
        .collect();
    for waiting in waiting {
        let told = waiting.await.unwrap().map(|guard| guard.is_some());
        assert!(told.as_ref().is_err_and(Error::is_retryable), "{told:?}");
    }
    let (took, used) = (began.elapsed(), cpu() - before);
    let refused = refused().await;
    println!("{used} ms of CPU in {took:?}, {refused} times MOVED");
    assert!(guards.iter().all(distlock::Guard::is_held));
    // Nine in a row, and then a pause of 0.1 s, from a second before the wait begins to its end.
    assert!(
        refused < names.len() as u64 * 9 * 110,
        "{refused} times MOVED and {used} ms of CPU in {took:?} for four waiters"
    );
}

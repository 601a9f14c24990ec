//! Primaries that go, by themselves and by request.

use std::sync::Arc;

use distlock::{Acquire, Flavour};
use distlock_support::cluster::key_in;
use distlock_support::{Cluster, ClusterOptions};
use futures::future::join_all;
use tokio::time::Instant;

use crate::{client, end, kept, lock, ms, secs};

/// A name that a node serves.
async fn name_at(cluster: &Cluster, node: usize) -> String {
    for n in 0.. {
        let name = format!("at:{node}:{n}");
        if cluster.primary_of(&name).await.id() == cluster.nodes()[node].id() {
            return name;
        }
    }
    unreachable!("slots are spread")
}

/// The promotion that was asked for loses nothing: what is held stays held, for its guard and against others.
#[tokio::test]
async fn a_failover_by_request_loses_nothing() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let names: Vec<String> = (0..20).map(|n| format!("kept:{n}")).collect();
    let locks: Vec<_> = names.iter().map(|name| lock(&one, Flavour::Reentrant, name)).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    for node in 0..3 {
        let replica = cluster.replicas_of(&cluster.nodes()[node]).await[0];
        cluster.failover(replica).await;
    }
    for name in &names {
        let got = lock(&other, Flavour::Reentrant, name).acquire(Acquire::new().wait(ms(300))).await;
        assert!(!matches!(got, Ok(Some(_))), "{name}: two holders");
    }
    kept(&one, 20).await;
    assert!(guards.iter().all(distlock::Guard::is_held));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    end(one).await;
    end(other).await;
}

/// Somebody else gives a lock back right behind the promotion, at the new primary: who waits has it at once, whatever was under way
/// at the old one.
#[tokio::test]
async fn who_waits_is_woken_right_behind_a_failover_by_request() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let mut woken_after = Vec::new();
    // A node has a vote for one replica of a primary in twice the node timeout: each shard by turns, to and fro.
    for slot in [7, 7_000, 14_000].into_iter().cycle().take(6) {
        let primary = cluster.owner(slot).await;
        let replica = cluster.replicas_of(primary).await[0];
        let names: Vec<String> = (0..5).map(|n| key_in(slot, &format!("behind:{n}:"))).collect();
        for name in &names {
            primary.admin().cmd::<u64>(&["HSET", name, "somebody:1", "1"]).await;
            primary.admin().cmd::<u64>(&["PEXPIRE", name, "60000"]).await;
        }
        let mut others = Vec::new();
        for flavour in [Flavour::Spin, Flavour::Fair, Flavour::Write, Flavour::Fenced] {
            let name = key_in(slot, &format!("other:{flavour}:"));
            others.push((lock(&two, flavour, &name).lock().await.unwrap(), lock(&one, flavour, &name)));
        }
        let locks = names.iter().map(|name| lock(&one, Flavour::Reentrant, name));
        let waiting: Vec<_> = locks
            .chain(others.iter().map(|(_, lock)| Arc::clone(lock)))
            .map(|lock| tokio::spawn(async move { lock.lock().await.map(|guard| (Instant::now(), guard)) }))
            .collect();
        bed::eventually("all wait", async || one.stats().waiting == waiting.len()).await;
        cluster.failover(replica).await;
        let released = Instant::now();
        for name in &names {
            replica.admin().cmd::<u64>(&["DEL", name]).await;
            replica.admin().cmd::<u64>(&["SPUBLISH", &format!("redisson_lock__channel:{{{name}}}"), "0"]).await;
        }
        let mut waiting = waiting.into_iter();
        for waiting in waiting.by_ref().take(names.len()) {
            let (at, guard) = waiting.await.unwrap().unwrap();
            woken_after.push(at.saturating_duration_since(released));
            guard.unlock().await.unwrap();
        }
        for ((guard, _), waiting) in others.into_iter().zip(waiting) {
            guard.unlock().await.unwrap();
            waiting.await.unwrap().unwrap().1.unlock().await.unwrap();
        }
    }
    println!("woken after {woken_after:?}");
    woken_after.sort_unstable();
    assert!(woken_after[woken_after.len() / 2] < ms(50), "{woken_after:?}");
    // None waits for a command that was under way at the old primary to time out.
    assert!(*woken_after.last().expect("some") < secs(1), "{woken_after:?}");
    end(one).await;
    end(two).await;
}

/// One of three primaries is killed: at the others nothing is noticed, and at its own slots locks are had soon after the
/// promotion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_stops_its_own_slots_only() {
    let cluster = Cluster::start(ClusterOptions::default().require_full_coverage(false)).await;
    let one = bed::builder(&cluster.url()).command_timeout(secs(1)).connect().await.unwrap();
    let (dead, healthy) = (name_at(&cluster, 0).await, [name_at(&cluster, 1).await, name_at(&cluster, 2).await]);
    for name in healthy.iter().chain([&dead]) {
        lock(&one, Flavour::Reentrant, name).lock().await.unwrap().unlock().await.unwrap();
    }
    let until = Instant::now() + secs(6);
    let at_work = healthy.clone().map(|name| {
        let lock = lock(&one, Flavour::Reentrant, &name);
        tokio::spawn(async move {
            let (mut took, mut failed) = (Vec::new(), 0);
            while Instant::now() < until {
                let began = Instant::now();
                match lock.lock().await {
                    Ok(guard) => {
                        took.push(began.elapsed());
                        failed += u32::from(guard.unlock().await.is_err());
                    }
                    Err(_) => failed += 1,
                }
                tokio::time::sleep(ms(2)).await;
            }
            took.sort_unstable();
            (took[took.len() * 999 / 1000], took.len(), failed)
        })
    });
    let primary = &cluster.nodes()[0];
    cluster.kill(primary).await;
    let killed = Instant::now();
    let waiter = lock(&one, Flavour::Reentrant, &dead);
    let waiting = tokio::spawn(async move { (waiter.lock().await, Instant::now()) });
    let promotion = cluster.promotion(primary).await;
    let promoted = killed + promotion.took;
    let (guard, at) = waiting.await.unwrap();
    println!("promoted after {:?}; first lock {:?} after that", promotion.took, at.saturating_duration_since(promoted));
    guard.unwrap().unlock().await.unwrap();
    for task in at_work {
        let (p999, times, failed) = task.await.unwrap();
        println!("a healthy one: {times} times, p99.9 {p999:?}, {failed} failed");
        assert_eq!(failed, 0);
    }
    end(one).await;
}

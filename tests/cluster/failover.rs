//! Primaries that hand over, die, or return after their replica was promoted.

use distlock::{Acquire, Flavour};
use distlock_support::cluster::key_in;
use distlock_support::{Cluster, ClusterOptions, slot_of};
use futures::future::join_all;

use crate::{client, end, kept, lock, ms, turn, waiter, woken, woken_by_messages};

#[tokio::test]
async fn requested_failover_keeps_every_hold() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let names: Vec<String> = (0..20).map(|n| format!("kept:{n}")).collect();
    let guards = join_all(names.iter().map(async |name| one.reentrant(name).lock().await.unwrap())).await;
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

/// A lock is released at the new primary right after the promotion. The waiter is woken, whatever command it has in
/// flight at the old primary.
#[tokio::test]
async fn release_right_after_a_requested_failover_wakes_the_waiters() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let (one, two) = (woken_by_messages(&cluster).connect().await.unwrap(), client(&cluster).await);
    // A node votes for a replica of one primary at most once in two node timeouts. So the shards fail over one after
    // the other.
    for slot in [7, 7_000, 14_000].into_iter().cycle().take(6) {
        let primary = cluster.owner(slot).await;
        let replica = cluster.replicas_of(primary).await[0];
        let foreign: Vec<String> = (0..5).map(|n| key_in(slot, &format!("behind:{n}:"))).collect();
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for name in &foreign {
            primary.admin().cmd::<u64>(&["HSET", name, "somebody:1", "1"]).await;
            primary.admin().cmd::<u64>(&["PEXPIRE", name, "3600000"]).await;
            waiting.push((name.clone(), waiter(&one, Flavour::Reentrant, name).await));
        }
        for flavour in [Flavour::Spin, Flavour::Fair, Flavour::Write, Flavour::Fenced] {
            let name = key_in(slot, &format!("other:{flavour}:"));
            held.push(lock(&two, flavour, &name).lock().await.unwrap());
            waiting.push((name.clone(), waiter(&one, flavour, &name).await));
        }
        cluster.failover(replica).await;
        for name in &foreign {
            replica.admin().cmd::<u64>(&["DEL", name]).await;
            replica.admin().cmd::<u64>(&["SPUBLISH", &format!("redisson_lock__channel:{{{name}}}"), "0"]).await;
        }
        for guard in held {
            guard.unlock().await.unwrap();
        }
        for (name, waiting) in waiting {
            woken(&name, waiting).await.unlock().await.unwrap();
        }
    }
    end(one).await;
    end(two).await;
}

/// A primary is killed, and no replica has its lock. The holder is idle, and its next renewal is 20 minutes away. The
/// client's regular look at the slot map must notify the holder.
#[tokio::test]
async fn idle_holder_of_a_lock_that_the_new_primary_does_not_know_is_signalled() {
    let cluster = Cluster::start(ClusterOptions::default().require_full_coverage(false)).await;
    let one = woken_by_messages(&cluster).connect().await.unwrap();
    turn(&one, Flavour::Reentrant, "known").await;
    let primary = cluster.primary_of("quiet").await;
    let replica = cluster.replicas_of(primary).await[0];
    cluster.stop(replica).await;
    primary.admin().cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
    let guard = lock(&one, Flavour::Reentrant, "quiet").lock().await.unwrap();
    cluster.kill(primary).await;
    cluster.cont(replica);
    cluster.promotion(primary).await;
    bed::ends("the signal of the loss", guard.lost()).await;
    assert!(guard.unlock().await.is_err(), "a lost lock cannot be released");
    end(one).await;
}

/// A primary is frozen until its replica is promoted. It resumes with commands in its sockets. If both primaries grant
/// a lock, the holder at the old primary is notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_granted_by_a_woken_old_primary_is_signalled() {
    let cluster = Cluster::start(ClusterOptions::default().node_timeout(500).require_full_coverage(false)).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let tag = (0..).map(|n| n.to_string()).find(|tag| slot_of(tag) < 5_000).unwrap();
    for round in 0..3 {
        let primary = cluster.owner(100).await;
        let names: Vec<String> = (0..30).map(|n| format!("{{{tag}}}:{round}:{n}")).collect();
        turn(&one, Flavour::Reentrant, &names[0]).await;
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
        for asked in asked {
            let Ok(Some(guard)) = asked.await.unwrap() else { continue };
            let theirs = lock(&other, Flavour::Reentrant, guard.name()).acquire(Acquire::new().wait(ms(500))).await;
            if let Ok(Some(_theirs)) = theirs {
                bed::ends("the signal of the loss, with two holders", guard.lost()).await;
            }
        }
        bed::idle(&one).await;
        bed::idle(&other).await;
        cluster.whole().await;
    }
}

//! Primaries that hand over to their replicas. In `tests/sim/cluster` and `tests/histories`, primaries die or freeze.

use distlock::{Acquire, Flavour};
use distlock_support::cluster::key_in;
use distlock_support::{Cluster, ClusterOptions};
use futures::future::join_all;

use crate::{client, end, kept, lock, ms, waiter, woken, woken_by_messages};

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

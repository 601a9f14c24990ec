//! Acknowledgement in a cluster, whose slot map lists replicas. Redisson's rule is the default there.

use bed::connections;
use distlock::{Acks, Client, Error, Flavour};
use distlock_support::{Cluster, ClusterOptions, Node};

use crate::{FLAVOURS, acknowledge, connected, end, granted, had, ms, over, secs};

/// The hash tag puts all keys of a flavour on one primary.
const NAME: &str = "{a}";

async fn cluster() -> Cluster {
    let options = ClusterOptions::default().primaries(3).replicas(1).node_timeout(15_000);
    let cluster = Cluster::start(options).await;
    acknowledge(cluster.primary_of("a").await.admin(), 1, "{a}:in-step").await;
    cluster
}

async fn replica<'a>(cluster: &'a Cluster, key: &str) -> &'a Node {
    let primary = cluster.primary_of(key).await;
    cluster.replicas_of(primary).await[0]
}

async fn refused(client: &Client, flavour: Flavour) {
    let outcome = client.lock(flavour, NAME).try_lock().await;
    assert!(matches!(outcome, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{flavour}: {outcome:?}");
    bed::idle(client).await;
}

/// The default is Redisson's rule: one replica must acknowledge, if any replica is connected. `All` and `AtLeast` also
/// count replicas of the map that are not connected.
#[tokio::test]
async fn one_connected_replica_must_acknowledge_by_default() {
    let cluster = cluster().await;
    let primary = cluster.primary_of("a").await.admin();
    let client = bed::builder(&cluster.url())
        .configure(|options| options.ack_timeout = ms(200))
        .retry_attempts(1)
        .connect()
        .await
        .unwrap();
    assert_eq!(client.options().acks, Acks::Redisson);
    let all = over(&cluster.url(), Acks::All).connect().await.unwrap();
    let least = over(&cluster.url(), Acks::AtLeast(1)).connect().await.unwrap();
    primary.reset_stats().await;
    for flavour in FLAVOURS {
        had(&*client.lock(flavour, NAME)).await.unlock().await.unwrap();
    }
    assert!(primary.calls("wait").await >= FLAVOURS.len() as u64, "each has a WAIT");
    for flavour in FLAVOURS {
        had(&*all.lock(flavour, NAME)).await.unlock().await.unwrap();
    }
    let node = replica(&cluster, "a").await;
    cluster.stop(node).await;
    for flavour in FLAVOURS {
        refused(&client, flavour).await;
    }
    // No replica is connected. Acquires succeed, and the client does not send a WAIT for each of them.
    cluster.kill(node).await;
    connected(primary, 0).await;
    client.lock(Flavour::Reentrant, NAME).lock().await.unwrap().unlock().await.unwrap();
    primary.reset_stats().await;
    for _ in 0..50 {
        client.lock(Flavour::Reentrant, NAME).lock().await.unwrap().unlock().await.unwrap();
    }
    assert!(primary.calls("wait").await < 25, "{} times in a moment", primary.calls("wait").await);
    granted(&client, FLAVOURS[0]).await;
    // The strict modes count the failed replica of the map, because it may be promoted after its return.
    for flavour in FLAVOURS {
        refused(&all, flavour).await;
        refused(&least, flavour).await;
    }
    cluster.restart(node);
    connected(primary, 1).await;
    let asks = async || {
        had(&client.reentrant(NAME)).await.unlock().await.unwrap();
        primary.reset_stats().await;
        had(&client.reentrant(NAME)).await.unlock().await.unwrap();
        primary.calls("wait").await >= 1
    };
    bed::eventually("acquires have a WAIT again once the replica is back", asks).await;
    for client in [client, all, least] {
        end(client).await;
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Goes {
    FrozenForAWhile,
    KilledAndBack,
    KilledAndForgotten,
}

#[tokio::test]
async fn acks_all_counts_old_primary_until_back_or_forgotten() {
    let options = ClusterOptions::default().primaries(3).replicas(2).node_timeout(2_000);
    let cluster = Cluster::start(options).await;
    let all = over(&cluster.url(), Acks::All).connect().await.unwrap();
    let least = over(&cluster.url(), Acks::AtLeast(1)).connect().await.unwrap();
    for goes in [Goes::FrozenForAWhile, Goes::KilledAndBack, Goes::KilledAndForgotten] {
        whole(&all).await;
        let before = cluster.primary_of("a").await;
        match goes {
            Goes::FrozenForAWhile => cluster.stop(before).await,
            Goes::KilledAndBack | Goes::KilledAndForgotten => cluster.kill(before).await,
        }
        let (promoted, ()) = futures::future::join(cluster.promotion(before), never_granted(&all)).await;
        let primary = promoted.node;
        connected(primary.admin(), 1).await;
        let goes_on = async || matches!(least.reentrant(NAME).try_lock().await, Ok(Some(_)));
        bed::eventually("AtLeast(1) is granted", goes_on).await;
        bed::idle(&least).await;
        match goes {
            Goes::FrozenForAWhile => cluster.cont(before),
            Goes::KilledAndBack => cluster.restart(before),
            Goes::KilledAndForgotten => {
                for node in cluster.nodes().iter().filter(|node| node.is_running()) {
                    node.admin().cmd::<()>(&["CLUSTER", "FORGET", before.id()]).await;
                }
                continue;
            }
        }
        connected(primary.admin(), 2).await;
    }
    whole(&all).await;
    end(all).await;
    end(least).await;
}

/// Tries without pause, from before a promotion until the new primary has refused several times. No attempt may
/// succeed.
async fn never_granted(all: &Client) {
    let mut refused = 0;
    let refusals = async || {
        for flavour in FLAVOURS {
            match all.lock(flavour, NAME).try_lock().await {
                Err(Error::Replicas { wanted, .. }) => {
                    assert_eq!(wanted, 2, "{flavour}");
                    refused += 1;
                }
                // There is no primary yet, or the machine was suspended.
                Err(error) if refused == 0 || error.is_retryable() => {}
                outcome => panic!("{flavour}, after {refused} refusals: {outcome:?}"),
            }
            bed::idle(all).await;
        }
        refused > 60
    };
    bed::eventually("the new primary refuses", refusals).await;
}

/// Waits until acquires of every flavour succeed with `All`.
async fn whole(all: &Client) {
    for flavour in FLAVOURS {
        let granted = async || matches!(all.lock(flavour, NAME).try_lock().await, Ok(Some(_)));
        bed::eventually("All is granted", granted).await;
    }
    bed::idle(all).await;
}

#[tokio::test]
async fn acquire_behind_an_ask_is_acknowledged_by_the_replicas_of_the_target() {
    let cluster = cluster().await;
    let strict = over(&cluster.url(), Acks::AtLeast(1)).connect().await.unwrap();
    let slot = distlock_support::slot_of("a");
    let source = cluster.owner(slot).await;
    let target = cluster.other_primary(source).await;
    had(&strict.reentrant(NAME)).await.unlock().await.unwrap();
    cluster.open_slot(slot, target).await;
    target.admin().reset_stats().await;
    for flavour in [Flavour::Reentrant, Flavour::Spin, Flavour::Plain] {
        let guard = had(&*strict.lock(flavour, NAME)).await;
        guard.unlock().await.unwrap();
    }
    assert!(target.admin().calls("wait").await >= 3, "each has a WAIT at the target");
    let there = cluster.replicas_of(target).await[0];
    cluster.stop(there).await;
    for flavour in [Flavour::Reentrant, Flavour::Spin, Flavour::Plain] {
        refused(&strict, flavour).await;
    }
    cluster.cont(there);
    cluster.close_slot(slot).await;
    end(strict).await;
}

/// One command renews locks in many slots, and one `WAIT` acknowledges it.
#[tokio::test]
async fn renewals_of_many_slots_share_a_wait() {
    let cluster = cluster().await;
    let primary = cluster.primary_of("a").await.admin();
    let strict = over(&cluster.url(), Acks::AtLeast(1))
        .watchdog(secs(3600))
        .configure(|options| options.ack_timeout = secs(5))
        .connect()
        .await
        .unwrap();
    let mut guards = Vec::new();
    for n in 0..60 {
        guards.push(had(&strict.reentrant(&format!("many:{n}"))).await);
    }
    let all_renewed = async || strict.renew_now().await.renewed == 60;
    bed::eventually("all are renewed", all_renewed).await;
    bed::eventually("a round of renewals has one WAIT", async || {
        primary.reset_stats().await;
        all_renewed().await && primary.calls("wait").await == 1
    })
    .await;
    let node = replica(&cluster, "a").await;
    cluster.stop(node).await;
    let renewed = strict.renew_now().await;
    assert!(renewed.failed > 0 && renewed.renewed > 0 && renewed.lost == 0, "{renewed:?}");
    cluster.cont(node);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    end(strict).await;
}

/// A client has two connections and at most three lanes to each primary, and none to former primaries.
#[tokio::test]
async fn lanes_end_with_their_primary_and_with_their_client() {
    let cluster = cluster().await;
    let strict = over(&cluster.url(), Acks::AtLeast(1))
        .retry_attempts(100)
        .configure(|options| options.ack_timeout = secs(1))
        .connect()
        .await
        .unwrap();
    for round in 0..4 {
        let all = (0..64).map(|n| strict.lock(FLAVOURS[n % FLAVOURS.len()], &format!("ends:{n}")));
        let guards = futures::future::join_all(all.map(async |lock| lock.lock().await.unwrap())).await;
        let primary = cluster.primary_of("a").await;
        cluster.failover(cluster.replicas_of(primary).await[0]).await;
        let confirmed = async || strict.renew_now().await.failed == 0;
        bed::eventually(&format!("round {round}: the new primary has renewed all"), confirmed).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    }
    let few = async || (3 * 2 + 1..=3 * (2 + 3)).contains(&connections(&cluster).await);
    bed::eventually("two connections and at most three lanes a primary", few).await;
    end(strict).await;
    bed::eventually("no connection is left", async || connections(&cluster).await == 0).await;
}

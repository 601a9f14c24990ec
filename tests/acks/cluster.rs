//! In a cluster, whose map tells of replicas; there Redisson's rule is the default.

use std::time::Instant;

use bed::connections;
use distlock::{Acks, Client, Error, Flavour};
use distlock_support::{Admin, Cluster, ClusterOptions, Node};

use crate::{FLAVOURS, end, granted, ms, over, secs};

/// A name of the first primary's, with braces, so that all of a flavour's keys are there.
const NAME: &str = "{a}";

async fn cluster() -> Cluster {
    let options = ClusterOptions::default().primaries(3).replicas(1).node_timeout(15_000);
    let cluster = Cluster::start(options).await;
    let primary = cluster.primary_of("a").await.admin();
    let acknowledges = async || {
        primary.cmd::<()>(&["SET", "{a}:in-step", "1", "PX", "1"]).await;
        primary.cmd::<usize>(&["WAIT", "1", "5000"]).await == 1
    };
    bed::eventually("replicas acknowledge", acknowledges).await;
    cluster
}

async fn replica<'a>(cluster: &'a Cluster, key: &str) -> &'a Node {
    let primary = cluster.primary_of(key).await;
    cluster.replicas_of(primary).await[0]
}

async fn connected(primary: &Admin, count: usize) {
    let line = format!("connected_slaves:{count}");
    let knows = async || {
        let info: String = primary.cmd(&["INFO", "replication"]).await;
        info.lines().any(|said| said == line)
    };
    bed::eventually("the primary knows its replicas", knows).await;
}

async fn refused(client: &Client, flavour: Flavour) {
    let outcome = client.lock(flavour, NAME).try_lock().await;
    assert!(matches!(outcome, Err(Error::Replicas { got: 0, wanted: 1 })), "{flavour}: {outcome:?}");
    bed::idle(client).await;
}

/// As Redisson: one replica, where there is one connected.
#[tokio::test]
async fn by_default_one_replica_has_to_have_it_where_one_is_connected() {
    let cluster = cluster().await;
    let primary = cluster.primary_of("a").await.admin();
    let client = bed::builder(&cluster.url()).ack_timeout(ms(200)).retry_attempts(1).connect().await.unwrap();
    assert_eq!(client.options().acks, Acks::Redisson);
    primary.reset_stats().await;
    for flavour in FLAVOURS {
        client.lock(flavour, NAME).lock().await.unwrap().unlock().await.unwrap();
    }
    assert!(primary.calls("wait").await >= FLAVOURS.len() as u64, "each has a WAIT");
    let node = replica(&cluster, "a").await;
    cluster.stop(node).await;
    for flavour in FLAVOURS {
        refused(&client, flavour).await;
    }
    // None is connected: that is fine, and is not asked for again and again.
    cluster.kill(node).await;
    connected(primary, 0).await;
    client.lock(Flavour::Reentrant, NAME).lock().await.unwrap().unlock().await.unwrap();
    primary.reset_stats().await;
    for _ in 0..50 {
        client.lock(Flavour::Reentrant, NAME).lock().await.unwrap().unlock().await.unwrap();
    }
    assert!(primary.calls("wait").await < 25, "{} times in a moment", primary.calls("wait").await);
    // Other shards are as they were.
    granted(&client, FLAVOURS[0]).await;
    cluster.restart(node);
    connected(primary, 1).await;
    let asks = async || {
        client.lock(Flavour::Reentrant, NAME).lock().await.unwrap().unlock().await.unwrap();
        primary.reset_stats().await;
        client.lock(Flavour::Reentrant, NAME).lock().await.unwrap().unlock().await.unwrap();
        primary.calls("wait").await == 1
    };
    bed::eventually("it is asked again once it is back", asks).await;
    end(client).await;
}

/// One that has failed may be promoted when it is back.
#[tokio::test]
async fn all_are_those_of_the_map() {
    let cluster = cluster().await;
    let primary = cluster.primary_of("a").await.admin();
    let all = over(&cluster.url(), Acks::All).connect().await.unwrap();
    let least = over(&cluster.url(), Acks::AtLeast(1)).connect().await.unwrap();
    for flavour in FLAVOURS {
        all.lock(flavour, NAME).lock().await.unwrap().unlock().await.unwrap();
    }
    let node = replica(&cluster, "a").await;
    cluster.kill(node).await;
    connected(primary, 0).await;
    for flavour in FLAVOURS {
        refused(&all, flavour).await;
        refused(&least, flavour).await;
    }
    end(all).await;
    end(least).await;
}

/// How the primary of before goes away, and what becomes of it.
#[derive(Clone, Copy, PartialEq)]
enum Goes {
    FrozenForAWhile,
    KilledAndBack,
    KilledAndForgotten,
}

/// With `All` that one is missed until it is back, or is told to leave. With `AtLeast(1)` nobody waits for it.
#[tokio::test]
async fn the_primary_of_before_is_one_of_all() {
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
        bed::eventually("one is enough", goes_on).await;
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

/// Tries without pause, from before a promotion until four seconds behind its first word of the new primary.
async fn never_granted(all: &Client) {
    let (began, mut heard) = (Instant::now(), None::<Instant>);
    while heard.is_none_or(|heard| heard.elapsed() < secs(4)) {
        assert!(began.elapsed() < secs(60), "the new primary is never heard of");
        for flavour in FLAVOURS {
            match all.lock(flavour, NAME).try_lock().await {
                Err(Error::Replicas { wanted, .. }) => {
                    assert_eq!(wanted, 2, "{flavour}");
                    heard.get_or_insert_with(Instant::now);
                }
                // Nobody is there yet.
                Err(_) if heard.is_none() => {}
                outcome => panic!("{flavour}: {outcome:?}"),
            }
            bed::idle(all).await;
        }
    }
}

/// Every replica acknowledges what is acquired.
async fn whole(all: &Client) {
    for flavour in FLAVOURS {
        let granted = async || matches!(all.lock(flavour, NAME).try_lock().await, Ok(Some(_)));
        bed::eventually("all acknowledge", granted).await;
    }
    bed::idle(all).await;
}

/// Commands that are led by an `ASK` to the server that a slot comes to are acknowledged there.
#[tokio::test]
async fn what_is_acquired_where_a_slot_comes_to_is_acknowledged_there() {
    let cluster = cluster().await;
    let strict = over(&cluster.url(), Acks::AtLeast(1)).command_timeout(secs(1)).connect().await.unwrap();
    let slot = distlock_support::slot_of("a");
    let source = cluster.owner(slot).await;
    let target = cluster.other_primary(source).await;
    strict.reentrant(NAME).lock().await.unwrap().unlock().await.unwrap();
    cluster.open_slot(slot, target).await;
    target.admin().reset_stats().await;
    for flavour in [Flavour::Reentrant, Flavour::Spin, Flavour::Plain] {
        let guard = strict.lock(flavour, NAME).lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert!(target.admin().calls("wait").await >= 3, "each has a WAIT, there");
    let there = cluster.replicas_of(target).await[0];
    cluster.stop(there).await;
    for flavour in [Flavour::Reentrant, Flavour::Spin, Flavour::Plain] {
        refused(&strict, flavour).await;
    }
    cluster.cont(there);
    cluster.close_slot(slot).await;
    end(strict).await;
}

/// Renewals of locks in many slots are one command, and acknowledged.
#[tokio::test]
async fn renewals_over_slots_are_acknowledged() {
    let cluster = cluster().await;
    let primary = cluster.primary_of("a").await.admin();
    let strict = over(&cluster.url(), Acks::AtLeast(1)).connect().await.unwrap();
    let mut guards = Vec::new();
    for n in 0..60 {
        guards.push(strict.reentrant(&format!("many:{n}")).lock().await.unwrap());
    }
    assert_eq!(strict.renew_now().await.renewed, 60);
    primary.reset_stats().await;
    assert_eq!(strict.renew_now().await.renewed, 60);
    assert_eq!(primary.calls("wait").await, 1);
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

/// Two connections to each primary, and three for acknowledgement at the most; and none to those that were.
#[tokio::test]
async fn lanes_end_with_their_primary_and_with_their_client() {
    let cluster = cluster().await;
    let strict =
        over(&cluster.url(), Acks::AtLeast(1)).retry_attempts(50).ack_timeout(secs(1)).connect().await.unwrap();
    for round in 0..4 {
        let all = (0..64).map(|n| strict.lock(FLAVOURS[n % FLAVOURS.len()], &format!("ends:{n}")));
        let guards = futures::future::join_all(all.map(async |lock| lock.lock().await.unwrap())).await;
        let primary = cluster.primary_of("a").await;
        cluster.failover(cluster.replicas_of(primary).await[0]).await;
        let confirmed = async || strict.renew_now().await.failed == 0;
        bed::eventually(&format!("round {round}: renewed by the new primary"), confirmed).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    }
    let few = async || (3 * 2 + 1..=3 * (2 + 3)).contains(&connections(&cluster).await);
    bed::eventually("as many as there may be", few).await;
    end(strict).await;
    bed::eventually("none is left", async || connections(&cluster).await == 0).await;
}

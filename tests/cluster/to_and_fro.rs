//! Who waits in a slot that goes to another server and comes back.

use std::time::Duration;

use distlock::{Client, Flavour};
use distlock_support::{Action, Cluster, ClusterOptions, Matcher, Mode, slot_of};
use tokio::time::Instant;

use crate::{client, end, lock, ms, secs};

async fn waits(client: &Client, name: &str) -> tokio::task::JoinHandle<Instant> {
    let waiter = lock(client, Flavour::Reentrant, name);
    let waiting = tokio::spawn(async move {
        let guard = waiter.lock().await.unwrap();
        let at = Instant::now();
        guard.unlock().await.unwrap();
        at
    });
    while client.stats().waiting == 0 || client.stats().under_way > 0 {
        tokio::time::sleep(ms(5)).await;
    }
    waiting
}

/// The slot goes to a server whose messages are slow for a while, and comes back: the first one is well all the time.
/// `reconnect`: then its connections break once. Returns how long after the release the waiter was woken.
async fn there_and_back(reconnect: bool) -> Duration {
    let cluster = Cluster::start(ClusterOptions::default().primaries(2).replicas(0).proxies(true)).await;
    let one = client(&cluster).await;
    let other = bed::builder(&cluster.url()).scan_interval(ms(100)).connect().await.unwrap();
    let name = "there:and:back";
    let slot = slot_of(name);
    let from = cluster.primary_of(name).await;
    let to = cluster.other_primary(from).await;
    let guard = lock(&one, Flavour::Reentrant, name).lock().await.unwrap();
    let waiting = waits(&other, name).await;
    let _armed = to.proxy().on_request(Matcher::command("SSUBSCRIBE"), Action::HangReply);
    cluster.open_slot(slot, to).await;
    cluster.move_keys(slot, &[name]).await;
    let text = slot.to_string();
    if reconnect {
        // The client hears of it from the target first, and from the source that the subscription is ended.
        from.proxy().set_downstream_mode(Mode::Delay(ms(600)));
        tokio::time::sleep(ms(700)).await;
    }
    to.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &text, "NODE", to.id()]).await;
    from.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &text, "NODE", to.id()]).await;
    tokio::time::sleep(ms(if reconnect { 900 } else { 300 })).await;
    from.proxy().heal();
    cluster.move_slot(slot, from).await;
    tokio::time::sleep(ms(700)).await;
    println!("channels at the first one: {:?}", from.admin().shard_channels().await);
    if reconnect {
        tokio::time::sleep(secs(9)).await;
        println!("channels at the first one: {:?}", from.admin().shard_channels().await);
        from.proxy().close_all();
        tokio::time::sleep(secs(2)).await;
        println!("channels at the first one: {:?}", from.admin().shard_channels().await);
    }
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let took = waiting.await.unwrap().saturating_duration_since(released);
    end(one).await;
    end(other).await;
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_not_deaf_while_a_server_that_had_the_slot_is_slow() {
    let took = there_and_back(false).await;
    assert!(took < secs(1), "woken {took:?} after the release");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_not_deaf_after_the_connection_has_broken() {
    let took = there_and_back(true).await;
    assert!(took < secs(1), "woken {took:?} after the release");
}

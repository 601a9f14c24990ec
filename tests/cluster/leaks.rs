//! Leftovers of cluster changes and of clients that end.

use distlock::{Acks, Client, Flavour};
use distlock_support::leak::alive_tasks;
use distlock_support::{Cluster, ClusterOptions, Mode, Node, slot_of};

use crate::{becomes, client, connections, end, eventually, lock, ms, primaries, secs};

async fn work(client: &Client) {
    for n in 0..12 {
        lock(client, Flavour::Fair, &format!("left:{n}")).lock().await.unwrap().unlock().await.unwrap();
    }
}

async fn channels(cluster: &Cluster) -> usize {
    let mut all = 0;
    for node in cluster.nodes() {
        all += node.admin().channels().await.len() + node.admin().shard_channels().await.len();
    }
    all
}

async fn promote(cluster: &Cluster, round: usize) {
    let primary = cluster.owner([0, 6_000, 12_000][round % 3]).await;
    let replica = cluster.replicas_of(primary).await[0];
    cluster.failover(replica).await;
}

/// Opens a slot for a move, and uses a lock whose keys do not exist yet. The target of the move serves this lock.
async fn open<'a>(cluster: &'a Cluster, one: &Client, name: &str) -> (&'a Node, &'a Node) {
    let from = cluster.primary_of(name).await;
    let to = cluster.other_primary(from).await;
    cluster.open_slot(slot_of(name), to).await;
    let beside = lock(one, Flavour::Reentrant, &format!("{{{name}}}:beside"));
    beside.lock().await.unwrap().unlock().await.unwrap();
    (from, to)
}

/// Moves a slot while a lock in it is held and waited for.
async fn move_away(cluster: &Cluster, one: &Client, other: &Client, name: &str) {
    let guard = lock(one, Flavour::Reentrant, name).lock().await.unwrap();
    let waiter = lock(other, Flavour::Reentrant, name);
    let waiting = tokio::spawn(async move { waiter.lock().await.unwrap().unlock().await.unwrap() });
    eventually("somebody waits", async || other.stats().waiting == 1 && other.stats().under_way == 0).await;
    open(cluster, one, name).await;
    let keys = cluster.keys_in_slot(slot_of(name)).await;
    cluster.move_keys(slot_of(name), &keys).await;
    cluster.close_slot(slot_of(name)).await;
    guard.unlock().await.unwrap();
    waiting.await.unwrap();
}

/// Begins a move of a slot and aborts it.
async fn break_off(cluster: &Cluster, one: &Client, name: &str) {
    let (from, to) = open(cluster, one, name).await;
    for node in [to, from] {
        node.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot_of(name).to_string(), "STABLE"]).await;
    }
}

#[tokio::test]
async fn cluster_changes_leak_no_connection_subscription_or_task() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let connect = || {
        bed::builder(&cluster.url())
            .acks(Acks::Off)
            .configure(|options| {
                options.subscription_linger = ms(100);
                options.scan_interval = Some(secs(1));
            })
            .connect()
    };
    let (one, other) = (connect().await.unwrap(), connect().await.unwrap());
    let settled = async || {
        work(&one).await;
        work(&other).await;
        eventually("two connections to each primary", async || connections(&cluster).await == 2 * 3 * 2).await;
        eventually("no subscription", async || channels(&cluster).await == 0).await;
    };
    settled().await;
    let before = alive_tasks();
    for round in 0..100 {
        let name = format!("change:{round}");
        match round % 5 {
            0 => promote(&cluster, round / 5).await,
            1 | 2 => move_away(&cluster, &one, &other, &name).await,
            _ => break_off(&cluster, &one, &name).await,
        }
        work(&one).await;
    }
    settled().await;
    eventually("no task more", async || alive_tasks() <= before).await;
    for client in [one, other] {
        end(client).await;
    }
    eventually("nothing is left", async || connections(&cluster).await == 0).await;
}

/// A client is shut down while it queries the map, and its handle is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_during_a_query_of_the_map_leaves_no_connection() {
    let cluster = Cluster::start(ClusterOptions::default().replicas(0).proxies(true)).await;
    let mut handles = Vec::new();
    for n in 0..10 {
        let one = bed::builder(&cluster.url())
            .configure(|options| options.scan_interval = Some(ms(100)))
            .connect()
            .await
            .unwrap();
        work(&one).await;
        // The network has latency.
        for node in cluster.nodes() {
            node.proxy().set_downstream_mode(Mode::Delay(ms(60)));
        }
        tokio::time::sleep(ms(200 + n * 13)).await;
        one.shutdown(bed::PATIENCE).await.unwrap();
        for node in cluster.nodes() {
            node.proxy().heal();
        }
        handles.push(one);
    }
    becomes("connections of clients that are shut down", 0, async || connections(&cluster).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_clients_leave_no_task() {
    let cluster = primaries(2).await;
    let before = alive_tasks();
    for shut in [true, false] {
        for _ in 0..20 {
            let one = client(&cluster).await;
            work(&one).await;
            if shut {
                end(one).await;
            }
        }
        eventually("no task more than before", async || alive_tasks() <= before).await;
    }
}

//! The cluster fixture against real nodes: formation, slot moves, promotions.

use std::time::Duration;

use distlock_support::cluster::{SLOTS, key_in};
use distlock_support::{Admin, Cluster, ClusterOptions, Node, Numbers, slot_of};
use redis::Value;

fn bare() -> ClusterOptions {
    ClusterOptions::default().replicas(0)
}

async fn answer(node: &Node, command: &[&str]) -> String {
    match node.admin().raw(command).await {
        Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

/// Whether a reply is the error with this code that redirects to that node.
fn leads(answer: &str, code: &str, slot: u16, to: &Node) -> bool {
    answer.to_uppercase().contains(code) && answer.contains(&format!("{slot} {}", to.addr()))
}

async fn set(node: &Node, key: &str) {
    node.admin().cmd::<()>(&["SET", key, "v"]).await;
}

#[tokio::test]
async fn clusters_form_with_replicas_and_stay_separate() {
    let (cluster, other) = tokio::join!(Cluster::start(ClusterOptions::default()), Cluster::start(bare().primaries(4)));
    for (cluster, nodes) in [(&cluster, 6), (&other, 4)] {
        assert_eq!((cluster.nodes().len(), cluster.nodes()[0].view().await.0.len()), (nodes, nodes));
    }
    assert!(cluster.url().starts_with(&format!("redis-cluster://{},", cluster.nodes()[0].addr())));
    let map = cluster.agreed().await;
    assert_eq!((map.served(), map.ranges.len()), (usize::from(SLOTS), 3));
    for (n, primary) in cluster.nodes()[..3].iter().enumerate() {
        assert!(primary.is_primary().await && primary.server().port() <= 20_999);
        let replicas = cluster.replicas_of(primary).await;
        assert_eq!(replicas.iter().map(|node| node.id()).collect::<Vec<_>>(), [cluster.nodes()[3 + n].id()]);
        let key = key_in(*map.ranges[n].0.end(), "k");
        assert_eq!(cluster.primary_of(&key).await.id(), primary.id());
        set(primary, &key).await;
        // All replicas are connected from the start, so `WAIT` does not wait for one to connect.
        assert_eq!(primary.admin().cmd::<u64>(&["WAIT", "1", "90000"]).await, 1);
        assert_eq!(replicas[0].admin().keys().await, [key]);
    }
    // A frozen node can be killed.
    let frozen = &cluster.nodes()[4];
    cluster.stop(frozen).await;
    cluster.kill(frozen).await;
    assert!(!frozen.is_running());
}

#[tokio::test]
async fn options_reach_node_and_slots_match_server() {
    let options = bare().primaries(1).node_timeout(1_234).require_full_coverage(false);
    let options =
        options.config("client-output-buffer-limit normal 1mb 1mb 60").config("cluster-announce-hostname \"\"");
    let cluster = Cluster::start(options.config("appendonly yes")).await;
    let node = &cluster.nodes()[0];
    for (name, value) in [
        ("cluster-node-timeout", "1234"),
        ("cluster-require-full-coverage", "no"),
        ("appendonly", "yes"),
        ("cluster-announce-hostname", ""),
    ] {
        assert_eq!(node.admin().cmd::<Vec<String>>(&["CONFIG", "GET", name]).await, [name, value]);
    }
    let limits: Vec<String> = node.admin().cmd(&["CONFIG", "GET", "client-output-buffer-limit"]).await;
    assert!(limits[1].contains("normal 1048576 1048576 60"), "{limits:?}");

    let mut numbers = Numbers::new(7);
    for _ in 0..500 {
        // Keys with many braces, because braces determine the slot.
        let key: Vec<u8> = (0..numbers.below(12)).map(|_| b"{}{}ab\0\xff"[numbers.below(8) as usize]).collect();
        let told: u16 = node.admin().cmd_bytes(&[b"CLUSTER", &b"KEYSLOT"[..], &key]).await;
        assert_eq!(slot_of(&key), told, "{key:?}");
    }
    // A restarted node has its keys from the append-only file, and its slots from nodes.conf.
    set(node, "k").await;
    cluster.kill(node).await;
    cluster.restart(node);
    cluster.whole().await;
    assert_eq!(answer(node, &["GET", "k"]).await, "v");
}

#[tokio::test]
async fn slot_moves_key_by_key() {
    let cluster = Cluster::start(bare()).await;
    let (a, b) = ("{tag}a", "{tag}b");
    let slot = slot_of(a);
    let from = cluster.primary_of(a).await;
    let to = cluster.other_primary(from).await;
    set(from, a).await;
    set(from, b).await;

    cluster.open_slot(slot, to).await;
    cluster.move_keys(slot, &[a]).await;
    assert_eq!(cluster.keys_in_slot(slot).await, [b.as_bytes()]);
    let asked = answer(from, &["GET", a]).await;
    assert!(leads(&asked, "ASK", slot, to), "{asked}");
    assert_eq!(answer(from, &["GET", b]).await, "v");
    let both = answer(from, &["MGET", a, b]).await;
    assert!(both.to_uppercase().contains("TRYAGAIN"), "{both}");
    let moved = answer(to, &["GET", a]).await;
    assert!(leads(&moved, "MOVED", slot, from), "{moved}");
    to.admin().cmd::<()>(&["ASKING"]).await;
    assert_eq!(answer(to, &["GET", a]).await, "v");
    assert_eq!(cluster.owner(slot).await.id(), from.id());

    cluster.move_keys(slot, &[b]).await;
    cluster.close_slot(slot).await;
    assert_eq!(cluster.owner(slot).await.id(), to.id());
    assert_eq!(answer(to, &["MGET", a, b]).await, answer(to, &["MGET", b, a]).await);
    let moved = answer(from, &["GET", b]).await;
    assert!(leads(&moved, "MOVED", slot, to), "{moved}");

    // Moves the slot back, with more keys than one command takes.
    for n in 0..250 {
        set(to, &format!("{{tag}}{n}")).await;
    }
    cluster.move_slot(slot, from).await;
    assert_eq!(cluster.keys_in_slot(slot).await.len(), 252);
    assert_eq!((from.admin().keys().await.len(), to.admin().keys().await.len()), (252, 0));
}

#[tokio::test]
async fn slot_migrates_atomically_where_server_supports_it() {
    let cluster = Cluster::start(bare()).await;
    let from = cluster.primary_of("k").await;
    let to = cluster.other_primary(from).await;
    let slot = slot_of("k");
    set(from, "k").await;
    let known = answer(from, &["CLUSTER", "HELP"]).await.contains("MIGRATESLOTS");
    match cluster.migrate_atomically(slot..=slot, to).await {
        Ok(()) => assert_eq!(answer(to, &["GET", "k"]).await, "v"),
        Err(why) => assert!(!known, "{why}"),
    }
    assert_eq!(cluster.owner(slot).await.id() == to.id(), known);
}

#[tokio::test]
async fn replica_takes_over_from_killed_and_frozen_primaries_and_on_request() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let first = cluster.primary_of("k").await;
    let second = cluster.replicas_of(first).await[0];
    set(first, "k").await;
    assert_eq!(first.admin().cmd::<u64>(&["WAIT", "1", "90000"]).await, 1);
    cluster.kill(first).await;
    assert!(!first.is_running());
    assert_eq!(cluster.promotion(first).await.node.id(), second.id());
    cluster.whole().await;
    assert_eq!(cluster.primary_of("k").await.id(), second.id());
    assert_eq!(answer(second, &["GET", "k"]).await, "v");

    cluster.restart(first);
    cluster.whole().await;
    assert_eq!(cluster.replicas_of(second).await[0].id(), first.id());
    assert_eq!(first.admin().keys().await, ["k"]);

    cluster.stop(second).await;
    assert_eq!(cluster.promotion(second).await.node.id(), first.id());
    cluster.cont(second);
    cluster.whole().await;
    assert_eq!(cluster.replicas_of(first).await[0].id(), second.id());

    cluster.failover(second).await;
    assert_eq!(cluster.primary_of("k").await.id(), second.id());
    assert_eq!(cluster.replicas_of(second).await[0].id(), first.id());

    let to = cluster.other_primary(second).await;
    cluster.move_slot(slot_of("k"), to).await;
    assert_eq!(cluster.primary_of("k").await.id(), to.id());
    assert_eq!(to.admin().cmd::<u64>(&["WAIT", "1", "90000"]).await, 1);
    assert_eq!(cluster.replicas_of(to).await[0].admin().keys().await, ["k"]);
}

/// After the promotion a slot moves on, so two messages tell the killed node of its slots' new owners.
#[tokio::test]
async fn restarted_node_follows_promoted_replica_if_slots_have_two_owners() {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let dead = cluster.owner(0).await;
    let other = cluster.other_primary(dead).await;
    cluster.kill(dead).await;
    let promoted = cluster.promotion(dead).await.node;
    cluster.agreed().await;
    cluster.move_slot(0, other).await;
    cluster.restart_behind(dead, promoted).await;
    cluster.whole().await;
    let replicas: Vec<_> = cluster.replicas_of(promoted).await.into_iter().map(Node::id).collect();
    assert_eq!(replicas, [dead.id()]);
}

#[tokio::test]
async fn blackholed_proxy_cuts_off_clients_but_not_cluster_bus() {
    let cluster = Cluster::start(ClusterOptions::default().replicas(1).proxies(true).node_timeout(4_000)).await;
    let primary = cluster.primary_of("k").await;
    let other = cluster.other_primary(primary).await;
    assert_eq!(primary.addr(), primary.proxy().addr());
    let moved = answer(other, &["GET", "k"]).await;
    assert!(leads(&moved, "MOVED", slot_of("k"), primary), "{moved}");

    let client = Admin::from_url(&primary.url()).await;
    primary.proxy().blackhole(true);
    let silent = tokio::time::timeout(Duration::from_millis(100), client.raw(&["PING"])).await;
    assert!(silent.is_err(), "{silent:?}");
    // Checks for twice as long as a node that does not answer the others would stay a primary.
    for _ in 0..160 {
        assert_eq!(cluster.primary_of("k").await.id(), primary.id());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The primary's replica does not get the write, because the proxy also cuts off replicas.
    set(primary, "k").await;
    assert_eq!(primary.admin().cmd::<u64>(&["WAIT", "1", "100"]).await, 0);
    primary.proxy().heal();
    cluster.whole().await;
    assert_eq!(primary.admin().cmd::<u64>(&["WAIT", "1", "90000"]).await, 1);
    assert_eq!(client.cmd::<String>(&["GET", "k"]).await, "v");
}

#[tokio::test]
async fn partitioned_primary_goes_down_and_returns_as_replica() {
    let cluster = Cluster::start(ClusterOptions::default().cuttable(true)).await;
    let primary = cluster.primary_of("k").await;
    let replica = cluster.replicas_of(primary).await[0];
    cluster.cut_off(primary, true);
    set(primary, "k").await;
    crate::until("the replica to take over", async || replica.is_primary().await).await;
    // The old primary does not know of the promotion, and notices that it is in the minority.
    assert!(primary.is_primary().await);
    let is_down = async || answer(primary, &["GET", "k"]).await.to_uppercase().contains("CLUSTERDOWN");
    crate::until("the old primary to refuse", is_down).await;
    cluster.cut_off(primary, false);
    cluster.whole().await;
    assert_eq!(cluster.primary_of("k").await.id(), replica.id());
    assert_eq!(cluster.replicas_of(replica).await[0].id(), primary.id());
}

/// One administrator of a cluster sees it as one server with all the data.
#[tokio::test]
async fn admin_sees_all_primaries_of_cluster_as_one_server() {
    let cluster = Cluster::start(bare()).await;
    let admin = Admin::of_cluster(&cluster).await;
    let keys: Vec<String> = [0, 8_000, 16_000].map(|slot| key_in(slot, "k")).into();
    for key in &keys {
        admin.cmd::<()>(&["SET", key, "v"]).await;
    }
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(admin.keys().await, sorted);
    for (node, key) in cluster.nodes().iter().zip(&keys) {
        assert_eq!(&node.admin().keys().await, std::slice::from_ref(key), "at its own primary");
        assert_eq!(admin.pttl(key).await, -1);
        assert_eq!(admin.cmd::<String>(&["EVAL", "return redis.call('get', KEYS[1])", "1", key]).await, "v");
    }
    // Counts are summed, under the names of a single server.
    assert!(admin.calls("set").await == 3 && admin.calls("eval").await == 3);
    admin.cmd::<u64>(&["SPUBLISH", &keys[0], "m"]).await;
    admin.cmd::<u64>(&["PUBLISH", &keys[1], "m"]).await;
    assert!(admin.calls("publish").await == 2 && admin.calls("spublish").await == 0);
    admin.reset_stats().await;
    assert_eq!(admin.calls("set").await, 0);

    // One connection to each node. All are visible, and one is closed.
    let mut open = Vec::new();
    for node in cluster.nodes() {
        open.push(crate::connection(&node.url()).await);
    }
    let others = admin.others().await;
    assert_eq!(others.len(), 3);
    assert!(admin.client_kill(others[2].id).await);
    let ids = |others: Vec<distlock_support::admin::ClientInfo>| others.iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(admin.others().await), ids(others)[..2]);

    // Both kinds of channels are counted.
    let mut listener = tokio::net::TcpStream::connect(cluster.nodes()[2].addr()).await.expect("it connects");
    let subscribe = format!("SSUBSCRIBE {}\r\nSUBSCRIBE plain\r\n", keys[2]);
    tokio::io::AsyncWriteExt::write_all(&mut listener, subscribe.as_bytes()).await.expect("it writes");
    let listens = async || admin.channels().await == [keys[2].clone(), "plain".to_owned()];
    crate::until("two channels", listens).await;
    assert!(admin.numsub(&keys[2]).await == 1 && admin.numsub("plain").await == 1);
    assert!(admin.publish(&keys[2], b"m").await == 1 && admin.numsub(&keys[0]).await == 0);
    drop(open);
}

//! Clusters whose servers announce host names.

use distlock::{Client, Flavour};
use distlock_support::{Cluster, slot_of};

use crate::{client, end, eventually, kept, lock, primaries, turn};

async fn announce(cluster: &Cluster, preferred: &str) {
    for node in cluster.nodes() {
        node.admin().config_set("cluster-announce-hostname", "localhost").await;
        node.admin().config_set("cluster-preferred-endpoint-type", preferred).await;
    }
    for node in cluster.nodes() {
        eventually("every node has heard of the names", async || {
            let nodes: String = node.admin().cmd(&["CLUSTER", "NODES"]).await;
            nodes.lines().all(|line| line.contains(",localhost"))
        })
        .await;
    }
}

fn are_at(client: &Client, host: &str) -> bool {
    client.topology().servers.iter().all(|server| server.address.starts_with(host))
}

/// A client uses the name that a server announces only if the servers prefer names. A redirect by that name leads to a
/// server that the client already knows.
#[tokio::test]
async fn announced_host_name_is_used_where_servers_prefer_it() {
    let cluster = primaries(2).await;
    let knows_names = cluster.nodes()[0].admin().raw(&["CONFIG", "GET", "cluster-announce-hostname"]).await;
    if !matches!(knows_names, Ok(redis::Value::Array(found)) if !found.is_empty()) {
        println!("skipped: this server announces no names");
        return;
    }
    announce(&cluster, "ip").await;
    let by_address = client(&cluster).await;
    assert!(are_at(&by_address, "127.0.0.1:"), "{:?}", by_address.topology());
    announce(&cluster, "hostname").await;
    let by_name = client(&cluster).await;
    assert!(are_at(&by_name, "localhost:"), "{:?}", by_name.topology());
    for n in 0..20 {
        turn(&by_name, Flavour::Reentrant, &format!("name:{n}")).await;
    }
    // The redirect contains the server's name. Both clients follow it to a known server.
    let guards = [
        lock(&by_name, Flavour::Reentrant, "one").lock().await.unwrap(),
        lock(&by_address, Flavour::Fair, "two").lock().await.unwrap(),
    ];
    for name in ["one", "two"] {
        let from = cluster.primary_of(name).await;
        cluster.move_slot(slot_of(name), cluster.other_primary(from).await).await;
    }
    kept(&by_name, 1).await;
    kept(&by_address, 1).await;
    assert_eq!((by_name.topology().servers.len(), by_address.topology().servers.len()), (2, 2));
    assert!(are_at(&by_name, "localhost:") && are_at(&by_address, "127.0.0.1:"));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    end(by_name).await;
    end(by_address).await;
}

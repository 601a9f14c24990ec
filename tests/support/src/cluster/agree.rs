//! Waits until the nodes agree.

use futures::future::join_all;

use super::Cluster;
use super::node::Node;
use super::view::{SlotMap, View};
use crate::until::until;

impl Cluster {
    /// Waits until all running nodes have the same slot map, and returns it. In this map, a killed or frozen node may
    /// still own slots. [`Cluster::promotion`] waits until a replica has taken the slots over.
    pub async fn agreed(&self) -> SlotMap {
        until("one slot map", async || {
            let maps = join_all(self.running().map(async |node| node.view().await.slot_map())).await;
            match maps.split_first() {
                Some((first, rest)) if rest.iter().all(|map| map == first) => Ok(first.clone()),
                Some(_) => Err(format!("{maps:?}")),
                None => Err("no node runs".to_owned()),
            }
        })
        .await
    }

    /// Waits until the running nodes form a whole cluster: one slot map, `cluster_state:ok` at every node, all nodes
    /// linked with each other, none suspected, each known by its role, and all replicas up to date with their
    /// primaries.
    pub async fn whole(&self) {
        until("a whole cluster", async || {
            let nodes: Vec<&Node> = self.running().collect();
            let views = join_all(nodes.iter().map(|node| node.view())).await;
            let map = views.first().map(View::slot_map).unwrap_or_default();
            for (node, view) in nodes.iter().zip(&views) {
                if view.slot_map() != map {
                    return Err(format!("{} has another slot map: {view:?}", node.addr()));
                }
                if let Some(why) = nodes.iter().zip(&views).find_map(|(other, own)| doubt(view, other, own)) {
                    return Err(format!("{}: {why}", node.addr()));
                }
                let state = node.admin().field(&["CLUSTER", "INFO"], "cluster_state").await;
                if state != "ok" {
                    return Err(format!("{}: cluster_state:{state}", node.addr()));
                }
                if let Some(primary) = &view.myself().primary {
                    // Replicas are counted over all views, because the views checked so far may lack some replicas of
                    // this primary.
                    let Some(position) = nodes.iter().position(|other| other.id() == primary) else { continue };
                    replication(node, nodes[position], &views).await?;
                }
            }
            Ok(())
        })
        .await;
    }
}

/// The first difference between this node's view of another running node and that node's own view.
fn doubt(view: &View, other: &Node, own: &View) -> Option<String> {
    let Some(seen) = view.node(other.id()) else { return Some(format!("does not know {}", other.addr())) };
    let linked = seen.linked || seen.is("myself");
    let doubted = ["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| seen.is(flag));
    // A node that still sees this replica as a primary would not vote for it.
    let same = seen.primary == own.myself().primary && seen.addr == other.told().to_string();
    (!linked || doubted || !same).then(|| format!("sees {seen:?}"))
}

/// Checks that a replica's link is up, and that its primary counts all its replicas as online.
async fn replication(replica: &Node, primary: &Node, views: &[View]) -> Result<(), String> {
    let link = replica.admin().field(&["INFO", "replication"], "master_link_status").await;
    if link != "up" {
        return Err(format!("{}: master_link_status:{link}", replica.addr()));
    }
    let info: String = primary.admin().cmd(&["INFO", "replication"]).await;
    let online = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count();
    let replicas = views.iter().filter(|view| view.myself().primary.as_deref() == Some(primary.id())).count();
    if online < replicas {
        return Err(format!("{} has {online} of {replicas} replicas online", primary.addr()));
    }
    Ok(())
}

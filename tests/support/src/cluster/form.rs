//! Forms a cluster, without redis-cli.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::bus::{Bus, CutOff};
use super::node::Node;
use super::options::ClusterOptions;
use super::slot::SLOTS;
use crate::Admin;
use crate::replicas::Member;
use crate::until::until;

/// After about this time, nodes forget a handshake that failed.
const MEET_AGAIN: Duration = Duration::from_secs(2);

/// Starts the servers, all at once: first the primaries, then each primary's first replica, then each primary's second
/// replica.
pub(super) async fn launch(options: &ClusterOptions, cut_off: &Arc<CutOff>) -> Vec<Node> {
    let count = options.primaries * (1 + options.replicas);
    let buses: Vec<_> = (0..count).map(|_| options.cuttable.then(|| Bus::start(Arc::clone(cut_off)))).collect();
    let wanted = buses.iter().map(|bus| options.node(bus.as_ref().map(Bus::port)));
    let members = Member::launch(wanted.collect()).await;
    join_all(members.into_iter().zip(buses).map(|(member, bus)| Node::new(member, bus))).await
}

pub(super) async fn form(nodes: &[Node], primaries: usize) {
    let ranges = shares(primaries);
    for (n, node) in nodes.iter().enumerate() {
        // Before the nodes meet, because a node that knows other nodes refuses an epoch. Primaries with the same epoch
        // would first have to resolve the conflict.
        node.admin().cmd::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]).await;
        if let Some((first, last)) = ranges.get(n) {
            add_slots(node.admin(), *first..=*last).await;
        }
    }
    meet(nodes).await;
    join_all(nodes[primaries..].iter().enumerate().map(|(n, replica)| {
        let primary = &nodes[n % primaries];
        async move { replica.admin().cmd::<()>(&["CLUSTER", "REPLICATE", primary.id()]).await }
    }))
    .await;
}

/// The slots of each primary, first and last.
fn shares(primaries: usize) -> Vec<(u16, u16)> {
    let first = |n: usize| u16::try_from(n * usize::from(SLOTS) / primaries).unwrap_or(SLOTS);
    (0..primaries).map(|n| (first(n), first(n + 1) - 1)).collect()
}

/// Assigns these slots to a node, one by one, because Redis 6.2 takes no ranges.
pub async fn add_slots(admin: &Admin, slots: RangeInclusive<u16>) {
    let words = ["CLUSTER", "ADDSLOTS"].map(str::to_owned).into_iter().chain(slots.map(|slot| slot.to_string()));
    admin.cmd_bytes::<(), _>(&words.collect::<Vec<_>>()).await;
}

/// Introduces each node to every other node. Gossip alone takes longer with more nodes.
async fn meet(nodes: &[Node]) {
    let mut introduced = None;
    until("nodes to know each other", async || {
        let views = join_all(nodes.iter().map(Node::view)).await;
        let knows = |a: usize, b: usize| views[a].node(nodes[b].id()).is_some_and(|seen| !seen.is("handshake"));
        let pairs = (0..nodes.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let strangers: Vec<_> = pairs.filter(|&(a, b)| !knows(a, b) || !knows(b, a)).collect();
        if strangers.is_empty() {
            return Ok(());
        }
        if introduced.is_none_or(|at: Instant| at.elapsed() > MEET_AGAIN) {
            introduced = Some(Instant::now());
            // A handshake makes both nodes known to each other.
            for &(a, b) in &strangers {
                let (port, bus) = (nodes[b].bus_base().to_string(), nodes[b].bus_port().to_string());
                nodes[a].admin().cmd::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
            }
        }
        Err(format!("{} pairs are strangers yet", strangers.len()))
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_slots_exactly_once() {
        for primaries in [1, 2, 3, 5, 7, 100] {
            let shares = shares(primaries);
            assert_eq!((shares[0].0, shares[primaries - 1].1), (0, SLOTS - 1));
            assert!(shares.windows(2).all(|two| two[0].1 + 1 == two[1].0), "{shares:?}");
        }
    }
}

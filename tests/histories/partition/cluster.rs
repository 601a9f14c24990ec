//! A primary of a cluster that is cut off from all other nodes and half of the processes. It serves the other half
//! until it notices that it is in the minority.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use distlock::Acks;
use distlock_support::{Cluster, ClusterOptions, Node, Proxy};

use super::LEASE;
use crate::check::Failover;
use crate::resource::now;
use crate::run::{Rules, Scene, rounds, run};
use crate::worker::Way;
use crate::{TURN, secs};

/// All locks live at the primary that is cut off, because processes on its side reach no other node.
const TAG: &str = "{apart}";

/// The longest section.
const LONG: Duration = secs(5);

/// Nodes behind proxies, which the other nodes and every second process use. The other processes use the proxies in
/// `apart`.
struct Split {
    cluster: Cluster,
    apart: Vec<Proxy>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_primary_with_acks_causes_no_overlap() {
    let _turn = TURN.lock().await;
    let rules = Rules::of(Acks::AtLeast(1)).watchdog(LEASE);
    run(&Split::start().await, rules, rounds(1), "cluster, cut off").await;
}

/// The control: without acknowledgement, the new primary issues the old primary's last tokens again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_primary_without_acks_repeats_tokens() {
    let _turn = TURN.lock().await;
    let rules = Rules { acks: Acks::Off, watchdog: LEASE, is_control: true };
    // The old primary stops after its node timeout. On a slow machine, no process may get a grant before that.
    for _ in 0..5 {
        if run(&Split::start().await, rules, 1, "cluster, cut off, a control").await.repeated > 0 {
            return;
        }
    }
    panic!("no token is repeated in five partitions: the checks see nothing");
}

impl Split {
    async fn start() -> Self {
        let options = ClusterOptions::default().require_full_coverage(false).proxies(true).cuttable(true);
        let cluster = Cluster::start(options).await;
        let apart = cluster.nodes().iter().map(|node| Proxy::start(node.server().addr())).collect();
        Self { cluster, apart }
    }

    fn cut(&self, primary: &Node, is_off: bool) {
        self.cluster.cut_off(primary, is_off);
        primary.proxy().blackhole(is_off);
        for (node, apart) in self.cluster.nodes().iter().zip(&self.apart) {
            if node.id() != primary.id() {
                apart.blackhole(is_off);
            }
        }
    }
}

impl Scene for Split {
    /// Every second process is on the primary's side.
    fn way(&self, process: usize) -> Way {
        let nodes = self.cluster.nodes().iter().zip(&self.apart);
        let map = nodes.map(|(node, apart)| (node.addr().to_string(), apart.addr().to_string()));
        let map = if process.is_multiple_of(2) { HashMap::new() } else { map.collect() };
        Way { url: self.cluster.url(), map, names: TAG }
    }

    async fn failover(&self, _round: usize) -> (Failover, Duration) {
        let primary = self.cluster.primary_of(TAG).await;
        let slots = primary.view().await.myself().slots.clone();
        let replica = self.cluster.replicas_of(primary).await[0];
        // Wait until the first long sections end. Until then few sections enter, and the old primary stops after a
        // second.
        tokio::time::sleep(LONG).await;
        let (cause, gone) = (Instant::now(), now());
        self.cut(primary, true);
        bed::eventually("the replica takes over", async || replica.is_primary().await).await;
        let took = cause.elapsed();
        assert!(primary.is_primary().await, "the old primary does not know the new one");
        // Longer than any lease and any section.
        tokio::time::sleep(LEASE * 2).await;
        self.cut(primary, false);
        self.cluster.whole().await;
        (Failover { at: gone, slots }, took)
    }
}

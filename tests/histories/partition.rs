//! A primary that is cut off from its replicas, its sentinels and half of the processes, and still serves the other
//! half.

mod cluster;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use distlock::Acks;
use distlock_support::{Proxy, ReplicasOptions, Sentinels, SentinelsOptions};

use crate::check::Failover;
use crate::resource::now;
use crate::run::{Rules, Scene, rounds, run};
use crate::worker::Way;
use crate::{TURN, secs};

/// Leases on the old primary end within the partition.
const LEASE: Duration = secs(3);

/// Servers behind the proxies of `bed`. Every second process instead reaches servers and sentinels through a second
/// set of proxies.
struct Split {
    bed: Sentinels,
    servers: Vec<Proxy>,
    sentinels: Vec<Proxy>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_primary_with_acks_causes_no_overlap() {
    let _turn = TURN.lock().await;
    let rules = Rules::of(Acks::AtLeast(1)).watchdog(LEASE);
    run(&Split::start().await, rules, rounds(1), "sentinels, cut off").await;
}

/// The control: without acknowledgement this partition causes overlaps and repeated tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_primary_without_acks_causes_overlaps() {
    let _turn = TURN.lock().await;
    let rules = Rules { acks: Acks::Off, watchdog: LEASE, is_control: true };
    // On a slow machine, the old side may pause during the whole partition.
    for _ in 0..5 {
        let outcome = run(&Split::start().await, rules, 1, "sentinels, cut off, a control").await;
        if !outcome.overlaps.is_empty() && outcome.repeated > 0 {
            return;
        }
    }
    panic!("no overlap with repeated tokens in five partitions: the checks see nothing");
}

impl Split {
    async fn start() -> Self {
        let servers = ReplicasOptions::default().proxies(true);
        let bed = Sentinels::start(SentinelsOptions::default().servers(servers).swift()).await;
        let servers = bed.servers().nodes().iter().map(|node| Proxy::start(node.server().addr())).collect();
        let sentinels = bed.sentinels().iter().map(|sentinel| Proxy::start(sentinel.addr())).collect();
        Self { bed, servers, sentinels }
    }

    fn cut(&self, primary: usize, is_off: bool) {
        self.bed.server(primary).proxy().blackhole(is_off);
        let others = self.servers.iter().enumerate().filter(|(n, _)| *n != primary).map(|(_, proxy)| proxy);
        for proxy in others.chain(&self.sentinels) {
            proxy.blackhole(is_off);
        }
    }
}

impl Scene for Split {
    /// Every second process is on the primary's side.
    fn way(&self, process: usize) -> Way {
        if process.is_multiple_of(2) {
            return Way { url: self.bed.url(), map: HashMap::new(), names: "" };
        }
        let sentinels: Vec<SocketAddr> = self.bed.sentinels().iter().map(|sentinel| sentinel.addr()).collect();
        let called = self.bed.servers().addrs().into_iter().chain(sentinels);
        let reached = self.servers.iter().chain(&self.sentinels).map(Proxy::addr);
        let map = called.zip(reached).map(|(called, reached)| (called.to_string(), reached.to_string())).collect();
        Way { url: self.bed.url(), map, names: "" }
    }

    async fn failover(&self, _round: usize) -> (Failover, Duration) {
        let old = self.bed.primary().await;
        let (cause, gone) = (Instant::now(), now());
        self.cut(old, true);
        let switched = self.bed.switched(cause).await.at;
        // Longer than any lease and any section.
        tokio::time::sleep(LEASE * 2).await;
        self.cut(old, false);
        self.bed.whole().await;
        (Failover { at: gone, slots: vec![0..=16_383] }, switched - cause)
    }
}

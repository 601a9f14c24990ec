//! A primary that is cut off from its replicas, its sentinels and half of the processes, and lives on for the others.

mod cluster;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use distlock::Acks;
use distlock_support::{Proxy, ReplicasOptions, Sentinels, SentinelsOptions};

use crate::check::{Failover, PROMOTED_AFTER};
use crate::resource::{at, now};
use crate::run::{Rules, Scene, rounds, run};
use crate::worker::Way;
use crate::{TURN, secs};

/// What is held at the primary that is cut off ends within the partition.
const LEASE: Duration = secs(3);

/// Servers that everybody reaches by proxies of their own, but for every other process, which has proxies of its own to all servers and
/// sentinels.
struct Split {
    bed: Sentinels,
    servers: Vec<Proxy>,
    sentinels: Vec<Proxy>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_nobody_is_inside_with_another_when_the_primary_is_cut_off_and_lives_on() {
    let _turn = TURN.lock().await;
    let rules = Rules::of(Acks::AtLeast(1)).watchdog(LEASE);
    run(&Split::start().await, rules, rounds(1), "sentinels, cut off").await;
}

/// The control: without acknowledgements this partition lets many in beside others, so the checks would see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_acknowledgements_many_are_inside_with_others_when_the_primary_is_cut_off_and_lives_on() {
    let _turn = TURN.lock().await;
    let rules = Rules { acks: Acks::Off, watchdog: LEASE, is_control: true };
    let outcome = run(&Split::start().await, rules, 1, "sentinels, cut off, a control").await;
    assert!(!outcome.overlaps.is_empty() && outcome.repeated > 0);
}

impl Split {
    async fn start() -> Self {
        let servers = ReplicasOptions::default().proxies(true);
        let bed = Sentinels::start(SentinelsOptions::default().servers(servers).swift()).await;
        let servers = bed.servers().nodes().iter().map(|node| Proxy::start(node.server().addr())).collect();
        let sentinels = bed.sentinels().iter().map(|sentinel| Proxy::start(sentinel.addr())).collect();
        Self { bed, servers, sentinels }
    }

    /// Whether a primary is cut off.
    fn cut(&self, primary: usize, is_off: bool) {
        self.bed.server(primary).proxy().blackhole(is_off);
        let others = self.servers.iter().enumerate().filter(|(n, _)| *n != primary).map(|(_, proxy)| proxy);
        for proxy in others.chain(&self.sentinels) {
            proxy.blackhole(is_off);
        }
    }
}

impl Scene for Split {
    /// Every other process is on the primary's side.
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
        // Longer than any lease, and than any stay.
        tokio::time::sleep(LEASE * 2).await;
        let resumed = Some(now());
        self.cut(old, false);
        self.bed.whole().await;
        let (promoted, slots) = (gone + PROMOTED_AFTER, vec![0..=16_383]);
        (Failover { at: gone, promoted, switched: Some(at(switched)), resumed, slots }, switched - cause)
    }
}

//! A simulated cluster with its clients, the history of holds, and the rules that the history must satisfy.

use crate::history::History;
use crate::prelude::*;
use distlock_sim::SimClusterLink;

pub struct Party {
    pub link: SimClusterLink,
    pub client: Client,
}

pub struct Scene {
    pub cluster: SimCluster,
    pub parties: Vec<Party>,
    pub names: Vec<(Flavour, String)>,
    pub start: Instant,
    pub history: History,
    pub lost: AtomicUsize,
    /// Unexpected errors of calls, and other broken rules.
    pub failed: Mutex<Vec<String>>,
}

impl Scene {
    pub async fn new(seed: u64, primaries: usize, replicas: bool, clients: usize, slowest: Duration) -> Self {
        let cluster = SimCluster::new(seed, primaries, replicas);
        let mut parties = Vec::new();
        for _ in 0..clients {
            let link = cluster.link(LinkOptions { latency_max: slowest, ..LinkOptions::default() });
            let client = link.client(|options| options.watchdog = ms(10_000)).await.expect("the cluster answers");
            parties.push(Party { link, client });
        }
        // Read-write locks are listed as `Write`; an actor picks the half.
        let flavours = EXCLUSIVE.into_iter().chain(EXCLUSIVE).zip(0..);
        let names = flavours.map(|(flavour, n)| (flavour, format!("lock:{n}"))).collect();
        let (history, lost, failed) = Default::default();
        Self { cluster, parties, names, start: Instant::now(), history, lost, failed }
    }

    pub fn say(&self, text: impl FnOnce() -> String) {
        crate::trace::say(|| format!("{:?} {}", self.start.elapsed(), text()));
    }

    pub fn began(&self, name: usize, shared: bool) -> usize {
        let owner = format!("{:?}, hold {}", self.names[name], self.history.len());
        // The far deadline disables the check of `until`, so only the guard's own report ends the interval.
        self.history.begin(name, owner, shared, Instant::now() + Duration::from_secs(1_000_000))
    }

    pub fn ended(&self, hold: usize, lost: bool) {
        self.history.end(hold);
        self.lost.fetch_add(usize::from(lost), Ordering::Relaxed);
    }

    pub fn wrong(&self, what: String) {
        self.say(|| format!("WRONG: {what}"));
        self.failed.lock().push(format!("{:?}: {what}", self.start.elapsed()));
    }

    pub fn left_over(&self) -> String {
        let mut left = String::new();
        for (n, party) in self.parties.iter().enumerate() {
            let busy = busy(&party.client, party.link.in_flight());
            if !busy.is_empty() {
                left += &format!("client {n}: {busy}");
            }
        }
        // The counter of a fenced lock's tokens stays on the server (M3).
        for key in self.cluster.keys().into_iter().filter(|key| !key.starts_with(b"redisson_lock_token:")) {
            let node = self.cluster.node(self.cluster.owner(SimCluster::slot_of(&key)));
            let content =
                [node.command(&[b"hgetall", &key]), node.command(&[b"zrange", &key, b"0", b"-1", b"withscores"])];
            let content = content.into_iter().find(|reply| reply.error().is_none());
            left += &format!("key {} {content:?}, {} ms left; ", String::from_utf8_lossy(&key), node.pttl(&key));
        }
        for (node, channel) in self.cluster.channels() {
            left += &format!("channel {} at node {node}; ", String::from_utf8_lossy(&channel));
        }
        let primaries = self.cluster.primaries();
        for (n, party) in self.parties.iter().enumerate() {
            let connections = party.link.connections();
            // Each primary has one connection, for commands and messages. The extra connection for commands after
            // `ASKING` must be closed.
            if connections.iter().enumerate().any(|(node, n)| *n > usize::from(primaries.contains(&node))) {
                left += &format!("client {n} has connections {connections:?} to primaries {primaries:?}; ");
            }
        }
        left
    }

    pub async fn visit_queues(&self) {
        for (flavour, name) in self.names.iter().filter(|(flavour, _)| *flavour == Flavour::Fair) {
            match lock(&self.parties[0].client, *flavour, name).lock_for(ms(60_000)).await {
                Ok(Some(guard)) => drop(guard.unlock().await),
                odd => self.wrong(format!("W1: {name} at the end: {odd:?}")),
            }
        }
    }

    pub async fn settles(&self, within: Duration) {
        gone(|| self.left_over(), within).await.unwrap_or_else(|left| self.wrong(format!("C1: {left}")));
    }
}

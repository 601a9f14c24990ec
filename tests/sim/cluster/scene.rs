//! A simulated cluster with its clients, who held what when, and what must be true of that.

use std::time::Duration;

use distlock::{Client, Flavour};
use distlock_sim::{LinkOptions, SimCluster, SimClusterLink};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::rig::{lock, ms};

/// A lock that is held by one client, or was.
#[derive(Clone, Debug)]
pub struct Hold {
    pub name: usize,
    pub shared: bool,
    pub from: Instant,
    /// When its release was called, or it was told to be lost.
    pub to: Option<Instant>,
    pub lost: bool,
}

pub struct Party {
    pub link: SimClusterLink,
    pub client: Client,
}

pub struct Scene {
    pub cluster: SimCluster,
    pub parties: Vec<Party>,
    pub names: Vec<(Flavour, String)>,
    pub start: Instant,
    holds: Mutex<Vec<Hold>>,
    /// What calls have failed of, and what else has gone wrong.
    pub failed: Mutex<Vec<String>>,
}

/// One of each flavour but the halves of a read-write lock, which is there as its writers: actors choose what they do with it.
const FLAVOURS: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Fenced, Flavour::Spin, Flavour::Plain];

impl Scene {
    pub async fn new(seed: u64, primaries: usize, replicas: bool, clients: usize, slowest: Duration) -> Self {
        let cluster = SimCluster::new(seed, primaries, replicas);
        let mut parties = Vec::new();
        for _ in 0..clients {
            let link = cluster.link(LinkOptions { latency_max: slowest, ..LinkOptions::default() });
            let client = link.client(|options| options.watchdog = ms(10_000)).await.expect("the cluster answers");
            parties.push(Party { link, client });
        }
        let names = (0..2 * FLAVOURS.len()).map(|n| (FLAVOURS[n % FLAVOURS.len()], format!("lock:{n}"))).collect();
        let (holds, failed) = (Mutex::default(), Mutex::default());
        Self { cluster, parties, names, start: Instant::now(), holds, failed }
    }

    pub fn say(&self, text: impl FnOnce() -> String) {
        crate::trace::say(|| format!("{:?} {}", self.start.elapsed(), text()));
    }

    pub fn began(&self, name: usize, shared: bool) -> usize {
        let mut holds = self.holds.lock();
        holds.push(Hold { name, shared, from: Instant::now(), to: None, lost: false });
        holds.len() - 1
    }

    /// Since when nobody held a name, but for who has it now; None where somebody still does.
    pub fn free_since(&self, name: usize) -> Option<Instant> {
        let holds = self.holds.lock();
        let mut of_name = holds.iter().filter(|hold| hold.name == name);
        of_name.try_fold(self.start, |last, hold| Some(last.max(hold.to?)))
    }

    pub fn ended(&self, hold: usize, lost: bool) {
        let hold = &mut self.holds.lock()[hold];
        hold.to = hold.to.or(Some(Instant::now()));
        hold.lost |= lost;
    }

    pub fn wrong(&self, what: String) {
        self.say(|| format!("WRONG: {what}"));
        self.failed.lock().push(format!("{:?}: {what}", self.start.elapsed()));
    }

    /// Every hold, for a comparison with another run.
    pub fn history(&self) -> Vec<String> {
        let since = |at: Instant| at - self.start;
        let holds = self.holds.lock();
        holds.iter().map(|hold| format!("{} {:?} {:?}", hold.name, since(hold.from), hold.to.map(since))).collect()
    }

    pub fn holds(&self) -> usize {
        self.holds.lock().len()
    }

    /// The guards that were told that their lock is lost.
    pub fn lost(&self) -> usize {
        self.holds.lock().iter().filter(|hold| hold.lost).count()
    }

    /// M1, RW1: two that held one lock at once for longer than `told`, within which the first one was told.
    pub fn overlaps(&self, told: Duration) -> Vec<String> {
        let mut holds = self.holds.lock().clone();
        holds.sort_by_key(|hold| (hold.name, hold.from));
        let now = Instant::now();
        let mut found = Vec::new();
        for (i, first) in holds.iter().enumerate() {
            let beside = holds[i + 1..].iter().take_while(|hold| hold.name == first.name);
            for second in beside.filter(|second| !(first.shared && second.shared)) {
                let until = first.to.unwrap_or(now);
                // Either of them may be the one that the servers know nothing of.
                let overlap = until.min(second.to.unwrap_or(now)).saturating_duration_since(second.from);
                if overlap > told {
                    let span = |hold: &Hold| (hold.from - self.start, hold.to.map(|to| to - self.start), hold.lost);
                    found.push(format!("M1: {:?}: {:?} and {:?}", self.names[first.name], span(first), span(second)));
                }
            }
        }
        found
    }

    /// Everything that is left anywhere, in words; empty when nothing is.
    pub fn left_over(&self) -> String {
        let mut left = String::new();
        for (n, party) in self.parties.iter().enumerate() {
            let (stats, in_flight) = (party.client.stats(), party.link.in_flight());
            if (stats.holds, stats.waiting, stats.names, stats.under_way, in_flight) != (0, 0, 0, 0, 0) {
                left += &format!("client {n}: {stats:?}, {in_flight} commands in flight; ");
            }
        }
        // What counts a fenced lock's sections stays (M3).
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
            // One that carries commands and messages, and for a while one for what comes behind ASKING.
            let odd = connections.iter().enumerate().any(|(node, n)| *n > usize::from(primaries.contains(&node)));
            if odd {
                left += &format!("client {n} has connections {connections:?} to primaries {primaries:?}; ");
            }
        }
        left
    }

    /// Has and gives back every fair lock.
    pub async fn visit_queues(&self) {
        for (flavour, name) in self.names.iter().filter(|(flavour, _)| *flavour == Flavour::Fair) {
            match lock(&self.parties[0].client, *flavour, name).lock_for(ms(60_000)).await {
                Ok(Some(guard)) => drop(guard.unlock().await),
                odd => self.wrong(format!("W1: {name} at the end: {odd:?}")),
            }
        }
    }

    /// Waits until nothing is left.
    pub async fn settles(&self, within: Duration) {
        let begin = Instant::now();
        loop {
            let left = self.left_over();
            if left.is_empty() {
                return;
            }
            if begin.elapsed() > within {
                return self.wrong(format!("C1: left after {within:?}: {left}"));
            }
            sleep(ms(100)).await;
        }
    }
}

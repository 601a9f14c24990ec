//! Checks that nothing is left after a test: keys, subscriptions, connections. Also checks that no hash ever lacks an
//! expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admin::Admin;

/// Interval between two looks of [`assert_nothing_left`] and [`TtlSampler`].
const EVERY: Duration = Duration::from_millis(10);

/// The leftovers that [`assert_nothing_left`] accepts.
#[derive(Clone, Debug)]
#[must_use]
pub struct Baseline {
    keys: Vec<String>,
    clients: BTreeSet<u64>,
    tasks: Option<usize>,
    within: Duration,
}

impl Default for Baseline {
    fn default() -> Self {
        Self::empty()
    }
}

impl Baseline {
    /// Nothing may be left: no key, no subscription, no connection except admin connections.
    pub fn empty() -> Self {
        Self { keys: Vec::new(), clients: BTreeSet::new(), tasks: None, within: Duration::from_secs(90) }
    }

    /// The current connections and tokio tasks may stay. A later connection may not, even if an earlier connection has
    /// closed.
    pub async fn take(admin: &Admin) -> Self {
        let clients = admin.others().await.into_iter().map(|c| c.id).collect();
        Self { clients, tasks: Some(alive_tasks()), ..Self::empty() }
    }

    /// A key that may stay. A `*` at the end matches anything.
    pub fn allow_key(mut self, key: &str) -> Self {
        self.keys.push(key.to_owned());
        self
    }

    /// At most this many tokio tasks may be alive.
    pub fn tasks(mut self, tasks: usize) -> Self {
        self.tasks = Some(tasks);
        self
    }

    /// Time to wait until everything is gone. The default of 90 s is enough on a slow machine.
    pub fn within(mut self, bound: Duration) -> Self {
        self.within = bound;
        self
    }

    fn allows(&self, key: &str) -> bool {
        self.keys.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => key == allowed,
        })
    }
}

/// Number of tasks of the current tokio runtime that have not ended.
pub fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Waits until nothing is left on the server except what `baseline` accepts.
///
/// # Panics
/// When something is left at the end of the wait. The message names all leftovers.
pub async fn assert_nothing_left(admin: &Admin, baseline: &Baseline) {
    let deadline = Instant::now() + baseline.within;
    loop {
        let left = what_is_left(admin, baseline).await;
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left over after {:?}:\n  {}", baseline.within, left.join("\n  "));
        tokio::time::sleep(EVERY).await;
    }
}

/// One line for each thing that `baseline` does not accept. Does not wait.
pub async fn what_is_left(admin: &Admin, baseline: &Baseline) -> Vec<String> {
    let mut left = Vec::new();
    for key in admin.keys().await {
        if !baseline.allows(&key) {
            let kind: String = admin.cmd(&["TYPE", &key]).await;
            let pttl = admin.pttl(&key).await;
            left.push(format!("key {key:?} ({kind}, pttl {pttl} ms)"));
        }
    }
    for channel in admin.channels().await {
        left.push(format!("channel {channel:?} has a subscriber"));
    }
    for channel in admin.shard_channels().await {
        left.push(format!("shard channel {channel:?} has a subscriber"));
    }
    for client in admin.others().await {
        if !baseline.clients.contains(&client.id) {
            left.push(format!("connection {client:?}"));
        }
    }
    if let Some(tasks) = baseline.tasks {
        let alive = alive_tasks();
        if alive > tasks {
            left.push(format!("{alive} tokio tasks, {tasks} are accepted"));
        }
    }
    left
}

/// A hash that was seen without an expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Immortal {
    pub key: String,
    /// Number of samples without an expiry.
    pub samples: u64,
}

/// Checks every 10 ms that every hash has a TTL.
#[derive(Debug)]
pub struct TtlSampler {
    end: Option<oneshot::Sender<()>>,
    task: JoinHandle<(u64, Vec<Immortal>)>,
}

impl TtlSampler {
    /// Starts sampling by an admin connection of its own.
    pub async fn start(url: &str) -> Self {
        let admin = Admin::from_url(url).await;
        let (end, ended) = oneshot::channel();
        Self { end: Some(end), task: tokio::spawn(sample(admin, ended)) }
    }

    /// Ends sampling, and returns the hashes without a TTL.
    ///
    /// # Panics
    /// When no sample was taken, which would prove nothing.
    pub async fn stop(mut self) -> Vec<Immortal> {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        let (samples, offenders) = (&mut self.task).await.unwrap_or_else(|e| panic!("the TTL sampler failed: {e}"));
        assert!(samples > 0, "the TTL sampler has taken no sample");
        offenders
    }
}

impl Drop for TtlSampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn sample(admin: Admin, mut ended: oneshot::Receiver<()>) -> (u64, Vec<Immortal>) {
    let mut samples = 0;
    let mut found = BTreeMap::new();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        for key in admin.hash_keys().await {
            if admin.pttl(&key).await == -1 {
                *found.entry(key).or_insert(0) += 1;
            }
        }
        samples += 1;
        tokio::select! {
            _ = tick.tick() => {}
            _ = &mut ended => {
                let found = found.into_iter().map(|(key, samples)| Immortal { key, samples });
                return (samples, found.collect());
            }
        }
    }
}

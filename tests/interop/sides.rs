//! A client of each side at the same servers: queries and mutual exclusion.

use distlock::{Client, Flavour, Guard};
use distlock_support::agent::{Agent, AgentOptions, CallResult, Kind, Reply};
use serde_json::json;

use crate::rig::{WATCHDOG, builder, connect, lasting, ms, patient, replied, soon, until_is};

/// Kinds of the holder and of the excluded waiter. The waiter of the last pair polls. All other waiters get a message.
pub const RIVALS: [(Kind, Kind); 7] = [
    (Kind::Reentrant, Kind::Reentrant),
    (Kind::Fair, Kind::Fair),
    (Kind::Write, Kind::Write),
    (Kind::Write, Kind::Read),
    (Kind::Read, Kind::Write),
    (Kind::Fenced, Kind::Fenced),
    (Kind::Spin, Kind::Spin),
];

pub fn flavour(kind: Kind) -> Flavour {
    match kind {
        Kind::Fair => Flavour::Fair,
        Kind::Read => Flavour::Read,
        Kind::Write => Flavour::Write,
        Kind::Spin => Flavour::Spin,
        Kind::Fenced => Flavour::Fenced,
        _ => Flavour::Reentrant,
    }
}

pub struct Sides {
    pub java: Agent,
    pub ours: Client,
}

impl Sides {
    /// Connects both sides, with leases that outlast the test.
    pub async fn lasting(version: &str, url: &str) -> Self {
        Self { java: Agent::start(url, patient(lasting(version))).await, ours: connect(builder(url)).await }
    }

    /// Connects both sides, with twice the default watchdog. Redisson's watchdog does not retry before its next round,
    /// and may fail twice during a failover.
    pub async fn watched(version: &str, url: &str) -> Self {
        let (watchdog, limit) = (2 * WATCHDOG, 2 * WATCHDOG / 3);
        let options = AgentOptions {
            watchdog: Some(watchdog),
            timeout: Some(limit),
            sync_timeout: Some(limit),
            ..AgentOptions::version(version)
        };
        let ours = builder(url).watchdog(watchdog).command_timeout(limit);
        Self { java: Agent::start(url, options).await, ours: connect(ours).await }
    }

    pub async fn lock(&self, kind: Kind, name: &str) -> Guard {
        soon(self.ours.lock(flavour(kind), name).lock()).await.expect("lock")
    }

    pub async fn is_free_for_us(&self, kind: Kind, name: &str) -> bool {
        let lock = self.ours.lock(flavour(kind), name);
        // During a failover the call may fail. `answered` retries Java's calls in the same way.
        let taken = soon(async {
            loop {
                match lock.try_lock().await {
                    Err(error) if error.is_retryable() => tokio::time::sleep(ms(20)).await,
                    outcome => return outcome.expect("try_lock"),
                }
            }
        });
        let Some(guard) = taken.await else { return false };
        guard.unlock().await.expect("unlock");
        true
    }

    pub async fn is_free_for_java(&self, kind: Kind, name: &str) -> bool {
        let java = self.java.at(kind, name, 77);
        let is_free = answered(async || java.start("try_lock", json!({})).await).await.value == true;
        if is_free {
            replied(java.unlock()).await;
        }
        is_free
    }

    pub async fn waits(&self, waiters: usize) {
        let stats = async || self.ours.stats();
        until_is("waiters of ours", stats, |stats| stats.waiting == waiters).await;
    }

    /// Shuts our client down. Java's is killed later, after the check for its leftovers.
    pub async fn end(&self) {
        self.waits(0).await;
        bed::end(self.ours.clone()).await;
    }
}

/// Returns true if Redisson's call failed because of the failover. There are four causes: Redisson was closing the
/// connection to the old primary; the slot was between two primaries; the old primary aborted the WAIT after the
/// command; no replica acknowledged the command.
pub fn came_to_nothing(answer: &CallResult) -> bool {
    const SAID: [&str; 4] =
        ["RedisClient is shutdown", "hasn't been discovered yet", "UNBLOCKED", "None of slaves were synced"];
    answer.as_ref().is_err_and(|error| SAID.iter().any(|said| error.message.contains(said)))
}

/// Java's reply. Repeats a call that failed because of the failover.
pub async fn answered(ask: impl AsyncFn() -> CallResult) -> Reply {
    soon(async {
        loop {
            let answer = ask().await;
            if !came_to_nothing(&answer) {
                return answer.expect("an operation in Java");
            }
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await
}

//! Replicas that take over.

use std::time::{Duration, Instant};

use super::{Event, Sentinels};
use crate::until::until_within;

/// A failover that fails is tried again after twice its timeout.
const WITHIN: Duration = Duration::from_secs(60);

/// A replica that has become a primary.
#[derive(Clone, Copy, Debug)]
pub struct Promotion {
    /// The new primary.
    pub server: usize,
    /// When it was asked for, or its cause came.
    pub cause: Instant,
    /// When the new primary was seen to be one.
    pub at: Instant,
    /// The time between.
    pub took: Duration,
}

impl Promotion {
    fn new(server: usize, cause: Instant) -> Self {
        let at = Instant::now();
        Self { server, cause, at, took: at - cause }
    }
}

impl Sentinels {
    /// Waits until a replica has taken over from a primary that is killed or frozen, and says how long after that it had, if
    /// this is called in time. Sentinels have to hear of it yet: see [`Sentinels::switched`] and [`Sentinels::whole`].
    ///
    /// # Panics
    /// When nobody takes over, or the server runs.
    pub async fn promotion(&self, of: usize) -> Promotion {
        let Some(cause) = self.server(of).away_since() else {
            panic!("{} runs: nobody takes over from it", self.server(of).addr())
        };
        self.promoted(of, cause).await
    }

    /// Has a replica take over from the primary (`SENTINEL FAILOVER`), and waits until it has and all are at one again.
    ///
    /// # Panics
    /// When that fails.
    pub async fn failover(&self) -> Promotion {
        let old = self.primary().await;
        let cause = self.ask_for_failover().await;
        let promotion = self.promoted(old, cause).await;
        self.switched(cause).await;
        self.whole().await;
        promotion
    }

    /// Asks a sentinel to have a replica take over (`SENTINEL FAILOVER`), and returns when it has agreed to, with the moment
    /// before.
    pub async fn ask_for_failover(&self) -> Instant {
        until_within(WITHIN, "a sentinel to begin a failover", async || {
            let Some(sentinel) = self.running().into_iter().next() else { return Err("none runs".to_owned()) };
            let cause = Instant::now();
            let answer = sentinel.admin().raw(&["SENTINEL", "FAILOVER", self.name()]).await;
            answer.map(|_| cause).map_err(|e| e.to_string())
        })
        .await
    }

    /// The first `+switch-master` of any sentinel since then, as soon as there is one.
    ///
    /// # Panics
    /// When there is none.
    pub async fn switched(&self, since: Instant) -> Event {
        until_within(WITHIN, "a sentinel to tell of a switch", async || {
            let events = self.events();
            let first = events.iter().find(|event| event.at >= since && event.channel == "+switch-master");
            first.cloned().ok_or_else(|| format!("they told {events:?}"))
        })
        .await
    }

    async fn promoted(&self, from: usize, cause: Instant) -> Promotion {
        until_within(WITHIN, "a replica to take over", async || {
            let primaries = self.servers().primaries().await;
            let new = primaries.iter().find(|n| **n != from);
            new.map(|n| Promotion::new(*n, cause)).ok_or_else(|| format!("{:?}", self.events()))
        })
        .await
    }
}

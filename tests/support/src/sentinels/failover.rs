//! Promotions of replicas.

use std::time::{Duration, Instant};

use super::{Event, Sentinels};
use crate::until::until;

/// A replica that has become a primary.
#[derive(Clone, Copy, Debug)]
pub struct Promotion {
    pub server: usize,
    /// When the failover was requested, or its cause happened.
    pub cause: Instant,
    /// When the new primary was seen as a primary.
    pub at: Instant,
    pub took: Duration,
}

impl Promotion {
    fn new(server: usize, cause: Instant) -> Self {
        let at = Instant::now();
        Self { server, cause, at, took: at - cause }
    }
}

impl Sentinels {
    /// Waits until a replica has taken over from a killed or frozen primary. The duration is exact if this is called
    /// before the promotion. Sentinels learn of the promotion later: see [`Sentinels::switched`] and
    /// [`Sentinels::whole`].
    pub async fn promotion(&self, of: usize) -> Promotion {
        let Some(cause) = self.server(of).away_since() else {
            panic!("{} runs: nobody takes over from it", self.server(of).addr())
        };
        self.promoted(of, cause).await
    }

    /// Requests a failover (`SENTINEL FAILOVER`), and waits until a replica has taken over and all agree again.
    pub async fn failover(&self) -> Promotion {
        let old = self.primary().await;
        let (mut cause, mut promotion) = (self.ask_for_failover().await, None);
        let promotion = until("a failover to end", async || {
            let new = self.servers().primaries().await.into_iter().find(|n| *n != old);
            promotion = new.map(|n| promotion.unwrap_or_else(|| Promotion::new(n, cause)));
            let events = self.events();
            let told = |channel: &str| events.iter().any(|e| e.at >= cause && e.channel.starts_with(channel));
            if let Some(promotion) = promotion.filter(|_| told("+switch-master")) {
                return Ok(promotion);
            }
            let missing = self.told_since(cause);
            if told("-failover-abort") {
                // A step took too long, for example because the machine stood still.
                (cause, promotion) = (self.ask_for_failover().await, None);
            }
            Err(missing)
        })
        .await;
        self.whole().await;
        promotion
    }

    /// Requests a failover from a sentinel (`SENTINEL FAILOVER`), and returns when the sentinel has accepted. Returns
    /// the time before the request.
    pub async fn ask_for_failover(&self) -> Instant {
        until("a sentinel to begin a failover", async || {
            let Some(sentinel) = self.running().into_iter().next() else { return Err("none runs".to_owned()) };
            let cause = Instant::now();
            let answer = sentinel.admin().raw(&["SENTINEL", "FAILOVER", self.name()]).await;
            answer.map(|_| cause).map_err(|e| e.to_string())
        })
        .await
    }

    /// Waits for the first `+switch-master` of any sentinel after `since`.
    pub async fn switched(&self, since: Instant) -> Event {
        until("a sentinel to tell of a switch", async || {
            let mut events = self.events().into_iter();
            let first = events.find(|event| event.at >= since && event.channel == "+switch-master");
            first.ok_or_else(|| self.told_since(since))
        })
        .await
    }

    async fn promoted(&self, from: usize, cause: Instant) -> Promotion {
        until("a replica to take over", async || {
            let primaries = self.servers().primaries().await;
            let new = primaries.iter().find(|n| **n != from);
            new.map(|n| Promotion::new(*n, cause)).ok_or_else(|| self.told_since(cause))
        })
        .await
    }

    /// The messages of the sentinels after `since`, one a line, for failure messages.
    pub fn told_since(&self, since: Instant) -> String {
        let events = self.events().into_iter().filter(|event| event.at >= since);
        let line = |event: Event| {
            let Event { at, sentinel, channel, text } = event;
            format!("\n{:?} {sentinel} {channel} {text}", at - since)
        };
        events.map(line).collect()
    }
}

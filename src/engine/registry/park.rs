//! How a waiter sleeps: until its turn, a subscription, the end of a way (`turns.rs`), or a wake-up.

use std::time::Duration;

use super::Waiter;
use super::subscription::Subscribing;
use crate::engine::sync::timeout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    Woken,
    TimedOut,
}

/// The events that end a waiter's sleep. A hand-off always ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The turn, permission to attempt without the turn, or a wake-up.
    Turn,
    /// A change of the subscription, or a wake-up.
    Change,
    /// The end of a way, or a change of the subscription.
    Way,
    /// A wake-up, for example by a message.
    Message,
    /// Only the end of the client, or a hand-off.
    Handed,
}

impl Waiter {
    /// Subscribes, so that messages reach this waiter. Returns after the confirmation, a wake-up, a hand-off, a failure
    /// or `limit`. A subscribe in flight continues in the background.
    pub(crate) async fn listen(&self, limit: Duration) {
        let Some(seat) = &self.seat else { return };
        let settled = async {
            loop {
                match self.registry.subscribe(&self.name, seat) {
                    Subscribing::Done => return,
                    // Another task is changing the subscription, and may be ending it. Check again afterwards.
                    Subscribing::Elsewhere => {
                        self.park(Duration::MAX, Until::Change).await;
                        if !seat.state.lock().changed {
                            return;
                        }
                    }
                    Subscribing::Begun(job) => {
                        tokio::select! {
                            biased;
                            () = job => {}
                            _ = self.park(Duration::MAX, Until::Message) => {}
                        }
                        return;
                    }
                }
            }
        };
        // A timeout is treated like a failure: the caller polls. Boxed because an inline future would make every wait
        // larger.
        let _ = timeout(limit, Box::pin(settled)).await;
    }

    /// Yields to other processes for at most `limit`, while a way is in progress or a release is in flight.
    pub(crate) async fn give_way(&self, limit: Duration) {
        // A waiter without a seat found no slot for the name, so this process knows no competitors.
        let Some(seat) = &self.seat else { return };
        let Some((mut left, mut heard)) = self.way() else { return };
        let waited = async {
            loop {
                let is_deaf = {
                    let shard = self.registry.shard(&self.name).lock();
                    let Some(slot) = shard.get(&self.name) else { return };
                    let Some(way) = slot.turns.way(self.registry.topology.now()) else { return };
                    (left, heard) = way;
                    seat.state.lock().changed = false;
                    slot.turns.counts_messages() && !slot.is_live()
                };
                if is_deaf {
                    self.listen(left).await;
                    if self.is_listening() {
                        continue;
                    }
                }
                let parked = self.park(left, Until::Way).await;
                if parked == Parked::Woken && seat.state.lock().handed.is_some() {
                    return;
                }
                // No message arrived during the pause, so no other process is taking the lock.
                let quiet = self.way().is_none_or(|(_, now)| now == heard);
                if parked == Parked::TimedOut && quiet {
                    return;
                }
            }
        };
        let _ = timeout(limit, Box::pin(waited)).await;
    }

    /// Upper limit of the random pause before the next attempt, so that Java clients have an equal chance. None: no
    /// pause. `woken`: the attempt follows a message.
    pub(crate) fn window(&self, woken: bool) -> Option<Duration> {
        self.seat.as_ref().filter(|_| self.registry.yield_after_release)?;
        let shard = self.registry.shard(&self.name).lock();
        shard.get(&self.name)?.turns.window(woken, self.registry.topology.now())
    }

    fn way(&self) -> Option<(Duration, u64)> {
        let shard = self.registry.shard(&self.name).lock();
        shard.get(&self.name)?.turns.way(self.registry.topology.now())
    }

    /// Sleeps until one of the events in `until`, for at most `limit`.
    pub(crate) async fn park(&self, limit: Duration, until: Until) -> Parked {
        let Some(seat) = &self.seat else { return Parked::Woken };
        let woken = async {
            loop {
                {
                    let mut state = seat.state.lock();
                    let come = match until {
                        // `woken` is cleared, because the caller makes one attempt per wake-up. If it stayed set, the
                        // caller would spin.
                        Until::Turn => state.turn || state.joins || std::mem::take(&mut state.woken),
                        Until::Change => state.changed || state.woken,
                        Until::Message => state.woken,
                        Until::Way => state.changed,
                        Until::Handed => *self.registry.closing.borrow(),
                    };
                    if come || state.handed.is_some() {
                        return;
                    }
                }
                seat.notify.notified().await;
            }
        };
        if limit == Duration::MAX {
            woken.await;
            return Parked::Woken;
        }
        match timeout(limit, woken).await {
            Ok(()) => Parked::Woken,
            Err(_) => Parked::TimedOut,
        }
    }
}

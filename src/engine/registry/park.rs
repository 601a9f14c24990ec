//! How a waiter sleeps: until its turn, until messages reach it, while it gives way, until there is news.

use std::time::Duration;

use super::Waiter;
use super::subscription::Subscribing;
use crate::engine::sync::timeout;

/// Why a parked waiter goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// Something came: the turn, a lock that was handed over, a message.
    Woken,
    /// The time was up.
    TimedOut,
}

/// What a parked waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The turn, leave to ask without it, or the end of the client.
    Turn,
    /// A change of the subscription, a message, or a lock handed over.
    Change,
    /// The end of giving way, or a lock handed over.
    Way,
    /// A message, or a lock handed over.
    Message,
    /// A lock handed over, or the end of the client; messages are let pass.
    Handed,
}

impl Waiter {
    /// Has messages reach this waiter. Done when they do, when it was woken or a lock was handed over meanwhile, when they
    /// cannot be had, or when `limit` is over; the subscription goes on then.
    pub(crate) async fn listen(&self, limit: Duration) {
        let Some(seat) = &self.seat else { return };
        let settled = async {
            loop {
                match self.registry.subscribe(&self.name, seat) {
                    Subscribing::Done => return,
                    // Somebody else is just changing the subscription, ending it perhaps: once more after that.
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
        // Out of time is as good as failed: the caller polls.
        // Boxed: it happens once in a wait, and would set the size of all waits.
        let _ = timeout(limit, Box::pin(settled)).await;
    }

    /// Lets other processes have the lock first, where this process had it last and its release was announced to them; for
    /// `limit` at the most.
    pub(crate) async fn give_way(&self, limit: Duration) {
        // Where there was something to know of others, it has a seat from the start.
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
                // No message for as long as that: nobody else takes the lock.
                let quiet = self.way().is_none_or(|(_, now)| now == heard);
                if parked == Parked::TimedOut && quiet {
                    return;
                }
            }
        };
        // Boxed, as above.
        let _ = timeout(limit, Box::pin(waited)).await;
    }

    fn way(&self) -> Option<(Duration, u64)> {
        let shard = self.registry.shard(&self.name).lock();
        shard.get(&self.name)?.turns.way(self.registry.topology.now())
    }

    /// Waits for `until`, for `limit` at the most.
    pub(crate) async fn park(&self, limit: Duration, until: Until) -> Parked {
        let Some(seat) = &self.seat else { return Parked::Woken };
        let woken = async {
            loop {
                {
                    let mut state = seat.state.lock();
                    let come = match until {
                        // One wake-up, one look: a flag that stays would keep this loop's caller spinning.
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

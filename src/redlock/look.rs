//! Looks: a waiter at one server checks whether this is the right server to wait at.
//!
//! A look asks all servers for their holders. A *majority holder* is an owner found on most servers. Then the first
//! case that applies decides:
//!
//! 1. Too many servers failed: ask all servers for the lock.
//! 2. Most other servers are free: ask for the lock. If the holder of this server may be about to acquire those
//!    servers, stay.
//! 3. There is a majority holder: wait at a server where it holds the lock, because no other server reports its
//!    release. Stay if this is such a server, else go to the first one.
//! 4. No holder has a majority. Either several callers are asking right now, or the holders are Redisson's, which have
//!    another name on every server. Stay; after several such looks, go to the next busy server.
//!
//! The waiters on one object share the results of their looks for a second ([`Sightings`]).

use std::sync::Arc;
use std::time::Duration;

use super::RedLock;
use super::votes::silence;
use crate::engine::wait::grown;
use crate::error::Result;
use crate::group::part;
use crate::lock::DistLock;
use crate::owner::moved;
use crate::runtime::standstill::within;
use crate::world::{Moment, World};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

/// Average time from the start of a wait to its first look. Most waits are shorter, so they cost no look.
const EARLY: Duration = Duration::from_millis(40);
/// Average time between later looks.
const LOOK: Duration = Duration::from_secs(1);
/// After more consecutive looks than this without a majority holder, the wait moves to another server.
const IN_VAIN: u32 = 3;

/// Recent findings about where to wait. `settled` and `shunned` name a server, and the time at which the finding
/// expires.
#[derive(Default)]
pub(super) struct Sightings {
    /// A server held by a majority holder: wait here.
    settled: Option<(usize, Moment)>,
    /// A server held only by the leftover of a failed vote: do not wait here.
    shunned: Option<(usize, Moment)>,
    /// A server whose holders hold no majority, these holders, and since when.
    suspect: Option<(usize, Vec<String>, Moment)>,
}

impl Sightings {
    /// Notes that the holders at this server hold no majority. Returns true if an earlier look has found the same
    /// holders there, at least half of [`EARLY`] ago. Then these holds are leftovers of a failed vote: their owners
    /// will not get a majority.
    fn is_lost(&mut self, at: usize, here: &[String], now: Moment) -> bool {
        match &self.suspect {
            Some((known, holders, since)) if *known == at && holders == here => now.since(*since) >= EARLY / 2,
            _ => {
                self.suspect = Some((at, here.to_vec(), now));
                false
            }
        }
    }
}

/// The decision of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Stay,
    /// Ask all servers for the lock.
    Free,
    /// Wait at this server instead.
    At(usize),
}

/// State of the looks of one acquire.
#[derive(Default)]
pub(super) struct Looks {
    made: u32,
    /// True if a look has confirmed this wait's server.
    settled: bool,
    /// Consecutive looks that found neither a majority holder nor enough free servers.
    vain: u32,
    /// True if others hold the lock at so many servers that the rest is no majority, as the last vote or a later
    /// look found.
    pub(super) known_busy: bool,
}

impl Looks {
    /// Starts another wait. `settled`: its server is known to be the right one.
    pub(super) const fn begin(&mut self, settled: bool) {
        self.settled = settled;
    }

    /// Returns the pause before the next look. The pauses grow until a look confirms the server.
    pub(super) fn pause(&self, world: &dyn World) -> Duration {
        let span = if self.settled { LOOK } else { grown((EARLY, LOOK), self.made) };
        span / 2 + world.jitter(span)
    }
}

/// The holders that the servers have reported.
struct Seen {
    each: Vec<(usize, Vec<String>)>,
    away: usize,
}

impl Seen {
    /// Returns the servers held by owners that hold at least this number of servers.
    fn held(&self, needed: usize) -> Vec<usize> {
        let holders = || self.each.iter().flat_map(|(node, holders)| holders.iter().map(|holder| (*node, holder)));
        let most = |holder: &String| holders().filter(|(_, other)| *other == holder).count() >= needed;
        holders().filter(|(_, holder)| most(holder)).map(|(node, _)| node).collect()
    }

    fn taken(&self) -> usize {
        self.each.iter().filter(|(_, holders)| !holders.is_empty()).count()
    }

    fn free(&self, but: usize) -> usize {
        self.each.iter().filter(|(node, holders)| *node != but && holders.is_empty()).count()
    }
}

impl RedLock {
    /// Returns the first of these servers, if possible one that is not shunned.
    pub(super) fn first_of(&self, busy: &[usize], now: Moment) -> Option<usize> {
        let shunned = self.known.lock().shunned.filter(|(_, until)| now < *until).map(|(at, _)| at);
        let first = busy.iter().copied().filter(|at| Some(*at) != shunned).min();
        first.or_else(|| busy.iter().copied().min())
    }

    /// Returns true if a recent look has found that this is the server to wait at.
    pub(super) fn is_settled(&self, at: usize, now: Moment) -> bool {
        self.known.lock().settled.is_some_and(|(known, until)| known == at && now < until)
    }

    /// Finds out where a waiter at this server should wait, if at all.
    pub(super) async fn look(&self, at: usize, busy: &[usize], looks: &mut Looks, world: &dyn World) -> Look {
        looks.made += 1;
        looks.settled = false;
        let needed = self.quorum();
        let seen = self.survey(at, world).await;
        looks.known_busy |= seen.taken() > self.nodes.len() - needed;
        let held = seen.held(needed);
        let first = held.iter().copied().min();
        let here = seen.each.iter().find(|(node, holders)| *node == at && !holders.is_empty());
        let free = seen.free(at) >= needed;
        let now = world.now();
        let mut known = self.known.lock();
        let until = now + LOOK;
        let lost = (free || first.is_some()) && !held.contains(&at);
        let lost = lost && here.is_some_and(|(_, holders)| known.is_lost(at, holders, now));
        if lost {
            known.shunned = Some((at, until));
        }
        if let Some(first) = first.filter(|_| !free) {
            known.settled = Some((first, until));
        }
        drop(known);
        if free || first.is_some() {
            looks.vain = 0;
        }
        if seen.away > self.nodes.len() - needed {
            Look::Free
        } else if free {
            if lost || here.is_none() { Look::Free } else { Look::Stay }
        } else if let Some(first) = first {
            looks.settled = true;
            if held.contains(&at) { Look::Stay } else { Look::At(first) }
        } else {
            looks.vain += 1;
            let next = busy.iter().copied().filter(|other| *other > at).min().or_else(|| busy.iter().copied().min());
            next.filter(|next| looks.vain > IN_VAIN && *next != at).map_or(Look::Stay, Look::At)
        }
    }

    /// Asks every server for its holders, until enough have answered.
    async fn survey(&self, at: usize, world: &dyn World) -> Seen {
        let asking = self.nodes.iter().enumerate();
        let mut asking: FuturesUnordered<_> = asking
            .map(|(node, lock)| async move { (node, within(self.node_timeout, in_the_way(lock)).await) })
            .collect();
        let (began, needed) = (world.now(), self.quorum());
        let mut seen = Seen { each: Vec::new(), away: 0 };
        let mut until: Option<Moment> = None;
        loop {
            let answer = async {
                match until {
                    Some(until) => within(until.since(world.now()), asking.next()).await.flatten(),
                    None => asking.next().await,
                }
            };
            match answer.await {
                Some((node, Some(Ok(holders)))) => {
                    // Converts each holder's text at this server to the owner of the whole lock.
                    seen.each.push((node, holders.iter().map(|holder| moved(holder, node)).collect()));
                }
                Some(_) => seen.away += 1,
                None => return seen,
            }
            if seen.free(at) >= needed {
                return seen;
            }
            if until.is_none() && !seen.held(needed).is_empty() {
                // All waiters must agree on the first server, so the remaining servers get a little time to answer.
                let now = world.now();
                until = Some(now + silence(now.since(began)));
            }
        }
    }
}

/// Returns the owners that keep this lock from being acquired: its holders. For the write half also the readers;
/// for the read half only the writer, because readers share.
async fn in_the_way(lock: &Arc<dyn DistLock>) -> Result<Vec<String>> {
    let rw = part(lock).map(|part| (part.protocol.flavour(), part.client.rw(&part.protocol.name().as_written)));
    let states = match rw {
        Some(("read", rw)) => vec![rw.write().state().await?],
        Some(("write", rw)) => {
            let (writer, readers) = futures::future::try_join(lock.state(), rw.read().state()).await?;
            vec![writer, readers]
        }
        _ => vec![lock.state().await?],
    };
    Ok(states.into_iter().flat_map(|state| state.holders).map(|(holder, _)| holder).collect())
}

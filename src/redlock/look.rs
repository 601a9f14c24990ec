//! Looking round while waiting at one server: who is in the way, and where.

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

/// The time from the beginning of a wait to its first look: longer than most waits take, which cost nothing so, and far shorter
/// than a look that comes only once a second.
const EARLY: Duration = Duration::from_millis(40);
/// The time between the looks of a waiter that goes on waiting.
const LOOK: Duration = Duration::from_secs(1);
/// How many looks in a row may find nobody before another server is tried.
const IN_VAIN: u32 = 3;

/// What is believed for a while of where to wait: a server, and until when.
#[derive(Default)]
pub(super) struct Sightings {
    /// The server where somebody is who holds most of the servers.
    settled: Option<(usize, Moment)>,
    /// The server where nobody is who is worth waiting for.
    shunned: Option<(usize, Moment)>,
    /// A server, and the holders found there that do not hold most of the others, and since when.
    suspect: Option<(usize, Vec<String>, Moment)>,
}

impl Sightings {
    /// Somebody is at a server who does not hold most of the others. True when it has been so for a while: it is not about to
    /// take them, or to leave, but the vote of somebody who lost.
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

/// What a waiter at a server is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Stay,
    /// Ask for the lock: most others could be had, or most are away.
    Free,
    /// Wait at this server instead.
    At(usize),
}

/// What the looks of one acquire have brought.
#[derive(Default)]
pub(super) struct Looks {
    made: u32,
    /// True once a look has found this wait's server to be the right one.
    settled: bool,
    /// Looks in a row that found nobody who holds most of the servers.
    vain: u32,
    /// True when others hold the lock at so many servers that the rest is no majority, as the last vote or a look since found.
    pub(super) known_busy: bool,
}

impl Looks {
    /// Another wait begins, at the right server as far as is known.
    pub(super) const fn begin(&mut self, settled: bool) {
        self.settled = settled;
    }

    /// How long to wait before the next look. Those that settled nothing grow apart: others are quicker, or readers are held
    /// back.
    pub(super) fn pause(&self, world: &dyn World) -> Duration {
        let span = if self.settled { LOOK } else { grown((EARLY, LOOK), self.made) };
        span / 2 + world.jitter(span)
    }
}

/// What the servers have said of who is in the way.
struct Seen {
    each: Vec<(usize, Vec<String>)>,
    away: usize,
}

impl Seen {
    /// The servers where somebody is who holds so many of them.
    fn held(&self, needed: usize) -> Vec<usize> {
        let holders = || self.each.iter().flat_map(|(node, holders)| holders.iter().map(|holder| (*node, holder)));
        let most = |holder: &String| holders().filter(|(_, other)| *other == holder).count() >= needed;
        holders().filter(|(_, holder)| most(holder)).map(|(node, _)| node).collect()
    }

    /// At how many servers somebody is.
    fn taken(&self) -> usize {
        self.each.iter().filter(|(_, holders)| !holders.is_empty()).count()
    }

    fn free(&self, but: usize) -> usize {
        self.each.iter().filter(|(node, holders)| *node != but && holders.is_empty()).count()
    }
}

impl RedLock {
    /// The first of these servers, without one where only somebody was found who is in the way of nobody.
    pub(super) fn first_of(&self, busy: &[usize], now: Moment) -> Option<usize> {
        let shunned = self.known.lock().shunned.filter(|(_, until)| now < *until).map(|(at, _)| at);
        let first = busy.iter().copied().filter(|at| Some(*at) != shunned).min();
        first.or_else(|| busy.iter().copied().min())
    }

    /// True when a look has found of late that this is the server to wait at.
    pub(super) fn is_settled(&self, at: usize, now: Moment) -> bool {
        self.known.lock().settled.is_some_and(|(known, until)| known == at && now < until)
    }

    /// Looks where one who waits at this server should wait, if at all.
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
            // Whoever is found here may be about to take them, and then this is the place to wait.
            if lost || here.is_none() { Look::Free } else { Look::Stay }
        } else if let Some(first) = first {
            looks.settled = true;
            // Elsewhere nobody would hear of its release.
            if held.contains(&at) { Look::Stay } else { Look::At(first) }
        } else {
            // Several ask just now; or they are Redisson's, who have another name on every server, so that nobody knows what
            // they hold: those who wait try one server after the other.
            looks.vain += 1;
            let next = busy.iter().copied().filter(|other| *other > at).min().or_else(|| busy.iter().copied().min());
            next.filter(|next| looks.vain > IN_VAIN && *next != at).map_or(Look::Stay, Look::At)
        }
    }

    /// Asks every server who is in the way there, until enough have said so.
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
                    // The names are those of owners of the whole.
                    seen.each.push((node, holders.iter().map(|holder| moved(holder, node)).collect()));
                }
                Some(_) => seen.away += 1,
                None => return seen,
            }
            if seen.free(at) >= needed {
                return seen;
            }
            if until.is_none() && !seen.held(needed).is_empty() {
                // All who wait are to agree on the first server, so the others get the time to answer; but a silent one does
                // not hold this up.
                let now = world.now();
                until = Some(now + silence(now.since(began)));
            }
        }
    }
}

/// Who keeps one out who asks for this lock: its holders; of a read-write lock those of the other half too, and they alone
/// where this half can be held side by side.
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

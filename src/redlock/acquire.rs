//! One acquire of a RedLock: votes of all servers, and the wait between them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;

use super::RedLock;
use super::look::{Look, Looks};
use super::votes::{Late, Request, Votes};
use crate::acquire::Acquire;
use crate::engine::wait::{Deadline, Patience, grown, pause};
use crate::error::{Error, Result, Step};
use crate::group::{self, Held, PAUSES, are_silent, ask, deadline, how, patience};
use crate::guard::Guard;
use crate::owner::Owner;

/// The longest back-off after the first vote that was split, and the longest after any.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(250));

impl RedLock {
    pub(super) async fn carry_out(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        self.check()?;
        let deadline = deadline(&self.nodes, &asked);
        let owner = asked.owner.clone().or_else(Owner::current);
        let request = Request { owner, asked, deadline: deadline.clone() };
        let needed = self.quorum();
        let most_away = self.nodes.len() - needed;
        let (mut late, mut looks) = (Late::default(), Looks::default());
        let mut first = None;
        let mut patience = Patience::new(patience(&self.nodes));
        let mut splits = 0_u32;
        let mut known_busy = false;
        let mut owner = request.owner.clone().unwrap_or_else(|| group::owner(&self.nodes));
        loop {
            let votes = self.vote(&request, &owner, first.take(), &mut late).await?;
            if votes.held() >= needed {
                return Ok(Some(self.held(owner, votes, late)));
            }
            if votes.cut_off && known_busy {
                return self.ran_out(&deadline).await;
            }
            let Votes { granted, busy, failed, why, .. } = votes;
            let came_late = why.as_ref().is_some_and(Error::is_too_late);
            let granted_by = granted.len();
            let away = (failed > most_away).then(|| Error::NoQuorum {
                name: Arc::clone(&self.name),
                granted: granted_by,
                needed,
                why: Arc::new(why.unwrap_or(Error::Timeout { step: Step::Command })),
            });
            if deadline.is_once() || deadline.is_over() {
                // The votes, dropped, are given back in the background.
                return away.map_or(Ok(None), Err);
            }
            self.give_back(granted, &mut late, &deadline).await;
            let next = request.owner.clone().unwrap_or_else(|| group::owner(&self.nodes));
            if let Some(error) = away {
                known_busy = false;
                let pause = pause(&**deadline.world(), PAUSES, patience.failures());
                let now = deadline.elapsed();
                let enough = if came_late { patience.came_late(now) } else { patience.failed(now) };
                if enough || !error.is_retryable() {
                    return Err(error);
                }
                late.beside(tokio::time::sleep(deadline.at_most(pause))).await;
                if deadline.is_over() {
                    return Err(error);
                }
            } else {
                patience.answered();
                known_busy = true;
                if busy.len() <= most_away {
                    // Nobody has most of them: others ask at the same time, and so that one of them gets through they must
                    // not all come back at once.
                    let rest = deadline.world().jitter(grown(BACKOFF, splits));
                    splits += 1;
                    late.beside(tokio::time::sleep(deadline.at_most(rest))).await;
                }
                if !busy.is_empty() {
                    first = self.wait(busy, &request, &next, &mut looks, &mut late).await?;
                    if first.is_none() && deadline.is_over() {
                        return self.ran_out(&deadline).await;
                    }
                }
            }
            owner = next;
        }
    }

    /// Tells what the end of the wait means: it ran out, unless too few servers have answered of late to know that somebody has
    /// the lock.
    async fn ran_out(&self, deadline: &Deadline) -> Result<Option<Guard>> {
        if !are_silent(&self.nodes, self.nodes.len() - self.quorum(), deadline).await {
            return Ok(None);
        }
        Err(Error::NoQuorum {
            name: Arc::clone(&self.name),
            granted: 0,
            needed: self.quorum(),
            why: Arc::new(Error::Timeout { step: Step::Command }),
        })
    }

    /// Makes the guard of a lock that most servers have granted. The votes of the others are taken in when they come.
    fn held(&self, owner: Owner, votes: Votes, late: Late) -> Guard {
        let guards = votes.granted.into_iter().map(|(_, guard)| guard).collect();
        let held = Held::new(Arc::clone(&self.name), owner, self.quorum(), self.nodes.len(), guards);
        let (mut asking, mut late) = (votes.asking, late.asking);
        if !asking.is_empty() || !late.is_empty() {
            let weak = Arc::downgrade(&held);
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        biased;
                        Some((_, outcome)) = asking.next(), if !asking.is_empty() => join(&weak, outcome),
                        // A guard of an earlier vote, dropped, is given back.
                        Some(_) = late.next(), if !late.is_empty() => {}
                        else => return,
                    }
                }
            });
        }
        Guard::of(held)
    }

    /// Waits for the lock at one of the servers where somebody else holds it, until it is had there, or most of the others
    /// are found to be free.
    ///
    /// One server, and not all of them: there all waiters stand in one queue, and the one that comes first goes on to the others.
    /// If every server told every waiter of a release, all would come back to every server at once, for a split vote. All waiters
    /// agree on the server: the first where somebody is who holds most of them, which a look finds out; before that, simply the
    /// first.
    async fn wait(
        &self,
        busy: Vec<usize>,
        request: &Request,
        owner: &Owner,
        looks: &mut Looks,
        late: &mut Late,
    ) -> Result<Option<(usize, Guard)>> {
        let now = request.deadline.world().now();
        let Some(mut at) = self.first_of(&busy, now) else { return Ok(None) };
        looks.begin(self.is_settled(at, now));
        loop {
            if request.deadline.is_over() {
                return Ok(None);
            }
            let mut how = how(&owner.at(at), &request.asked, &request.deadline);
            how.wait = request.deadline.left();
            let elsewhere = async {
                loop {
                    tokio::time::sleep(looks.pause(&**request.deadline.world())).await;
                    match self.look(at, &busy, looks, &**request.deadline.world()).await {
                        Look::Stay => {}
                        Look::Free => return None,
                        Look::At(other) => return Some(other),
                    }
                }
            };
            let outcome = late.beside(async {
                tokio::select! {
                    biased;
                    (_, outcome) = ask(&self.nodes[at], at, how) => Ok(outcome),
                    elsewhere = elsewhere => Err(elsewhere),
                }
            });
            match outcome.await {
                Ok(Ok(guard)) => return Ok(guard.map(|guard| (at, guard))),
                Ok(Err(error @ (Error::WouldDeadlock { .. } | Error::Config { .. }))) => return Err(error),
                // The next vote tells whether there are enough others. The attempt, dropped, leaves its queue here.
                Ok(Err(_)) | Err(None) => return Ok(None),
                Err(Some(other)) => at = other,
            }
        }
    }

    /// Gives back what was granted in vain, so that the next vote does not find it in its way.
    async fn give_back(&self, granted: Vec<(usize, Guard)>, late: &mut Late, deadline: &Deadline) {
        if granted.is_empty() {
            return;
        }
        let all: Vec<_> = granted.into_iter().map(|(_, guard)| guard.unlocking()).collect();
        let limit = deadline.at_most(self.node_timeout);
        // What is not done by then goes on in the background.
        let _ = late.beside(tokio::time::timeout(limit, futures::future::join_all(all))).await;
    }
}

fn join(held: &Weak<Held>, outcome: Result<Option<Guard>>) {
    // A guard that nobody takes in is given back when it is dropped.
    if let (Ok(Some(guard)), Some(held)) = (outcome, held.upgrade()) {
        held.join(guard);
    }
}

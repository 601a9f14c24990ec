//! One acquire of a RedLock: votes of all servers, and the wait between them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;

use super::RedLock;
use super::look::{Look, Looks};
use super::votes::{LateVotes, Request, Votes};
use crate::acquire::Acquire;
use crate::engine::wait::{Deadline, Patience, grown, pause};
use crate::error::{Error, Result};
use crate::group::{self, Held, PAUSES, are_silent, ask, deadline, how, patience, unanswered};
use crate::guard::Guard;
use crate::owner::Owner;
use crate::runtime::standstill::within;

/// The longest back-off after the first vote that was split, and the longest after any.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(250));

/// How a wait at a server where somebody else holds the lock has ended.
enum Wait {
    /// The lock is had there, or the servers are to be asked again.
    Over(Option<(usize, Guard)>),
    /// This server failed.
    Refused(usize, Error),
}

impl RedLock {
    pub(super) async fn carry_out(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        self.check()?;
        let deadline = deadline(&self.nodes, &asked);
        let owner = asked.owner.clone().or_else(Owner::current);
        let request = Request { owner, asked, deadline: deadline.clone() };
        let needed = self.quorum();
        let most_away = self.nodes.len() - needed;
        let (mut late, mut looks) = (LateVotes::default(), Looks::default());
        let mut first = None;
        let most = patience(&self.nodes);
        let mut patience = Patience::new(most);
        let (mut splits, mut refusals) = (0_u32, 0_u32);
        let mut owner = request.owner.clone().unwrap_or_else(|| group::owner(&self.nodes));
        // False while a server may still have what this acquire was granted in vain: the next vote meets it there as another owner's.
        let mut is_clean = true;
        loop {
            let mut votes = self.vote(&request, &owner, first.take(), &mut late).await?;
            if votes.held() >= needed {
                return Ok(Some(self.held(owner, votes, late)));
            }
            if votes.cut_off && looks.known_busy {
                return self.ran_out(&deadline, None).await;
            }
            let (granted, away) = (std::mem::take(&mut votes.granted), votes.are_away(most_away));
            let granted_by = granted.len();
            if deadline.is_once() || deadline.is_over() {
                // The votes, dropped, are given back in the background.
                let is_busy = !away && is_clean && votes.are_busy(most_away);
                return if is_busy { Ok(None) } else { Err(self.no_quorum(granted_by, votes.why)) };
            }
            let was_clean = std::mem::replace(&mut is_clean, self.give_back(granted, &mut late, &deadline).await);
            let another = || request.owner.clone().unwrap_or_else(|| group::owner(&self.nodes));
            let mut next = another();
            if !away {
                // A server that failed may be free. Busy means that more than `most_away` servers reported a holder.
                looks.known_busy = was_clean && votes.are_busy(most_away);
                if votes.busy.len() <= most_away {
                    // Nobody has most of them: others ask at the same time, and so that one of them gets through they must
                    // not all come back at once.
                    let rest = deadline.world().jitter(grown(BACKOFF, splits));
                    splits += 1;
                    late.beside(tokio::time::sleep(deadline.at_most(rest))).await;
                }
                if !votes.busy.is_empty() {
                    let began = deadline.elapsed();
                    first = self.wait_at_one(&mut votes, &request, &next, &mut looks, &mut late).await?;
                    if first.is_none() && deadline.is_over() {
                        let unknown = (!looks.known_busy).then_some((granted_by, votes.why));
                        return self.ran_out(&deadline, unknown).await;
                    }
                    if first.is_none() {
                        // A wait that was broken off may be granted yet, and is given back: the next vote must not meet it.
                        next = another();
                    }
                    if votes.busy.is_empty() && !votes.are_away(most_away) {
                        // Those that have not answered may decide the next vote.
                        let pause = pause(&**deadline.world(), PAUSES, refusals);
                        refusals += 1;
                        late.beside(tokio::time::sleep(deadline.at_most(pause))).await;
                    } else {
                        refusals = 0;
                    }
                    // A wait that fails has taken as long as its own patience; one that took longer was in order before.
                    if deadline.elapsed().saturating_sub(began) > most * 2 {
                        patience.answered();
                    }
                }
            }
            if !votes.are_away(most_away) {
                patience.answered();
            } else {
                let came_late = votes.why.as_ref().is_some_and(Error::is_too_late);
                let error = self.no_quorum(granted_by, votes.why);
                looks.known_busy = false;
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
            }
            owner = next;
        }
    }

    /// Outcome at the end of the wait. It ran out, unless too few servers answered lately to know that somebody has the lock. `unknown`:
    /// the number of grants and the last error of the last vote, if that vote could not tell.
    async fn ran_out(&self, deadline: &Deadline, unknown: Option<(usize, Option<Error>)>) -> Result<Option<Guard>> {
        if let Some((granted, why)) = unknown {
            return Err(self.no_quorum(granted, why));
        }
        if !are_silent(&self.nodes, self.nodes.len() - self.quorum(), deadline).await {
            return Ok(None);
        }
        Err(self.no_quorum(0, None))
    }

    /// Too few servers have answered. `why`: what one of the others reported, if it said anything.
    fn no_quorum(&self, granted: usize, why: Option<Error>) -> Error {
        if matches!(why, Some(Error::Closed)) {
            return Error::Closed;
        }
        let why = Arc::new(why.unwrap_or_else(|| unanswered(&self.nodes)));
        Error::NoQuorum { name: Arc::clone(&self.name), granted, needed: self.quorum(), why }
    }

    /// Makes the guard of a lock that most servers have granted. The votes of the others are taken in when they come.
    fn held(&self, owner: Owner, votes: Votes, late: LateVotes) -> Guard {
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

    /// Waits for the lock at one of the servers that are busy, and at another where that is refused: a server that answers
    /// and yet lets nobody wait is of no more use to this vote than one that is away, as which it is counted.
    async fn wait_at_one(
        &self,
        votes: &mut Votes,
        request: &Request,
        owner: &Owner,
        looks: &mut Looks,
        late: &mut LateVotes,
    ) -> Result<Option<(usize, Guard)>> {
        let mut refused = Vec::new();
        while !votes.busy.is_empty() && !votes.are_away(self.nodes.len() - self.quorum()) {
            match self.wait(&votes.busy, &refused, request, owner, looks, late).await? {
                Wait::Over(first) => return Ok(first),
                Wait::Refused(at, error) => {
                    tracing::debug!(lock.name = %self.name, node = at, %error, "a server refused the wait for it");
                    refused.push(at);
                    // A look may have led to one that is counted already, or to one that may answer yet.
                    let before = votes.busy.len();
                    votes.busy.retain(|other| *other != at);
                    if votes.busy.len() < before || matches!(error, Error::Config { .. }) {
                        votes.refused(error, self.quorum())?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Waits for the lock at one of the servers where somebody else holds it, until it is had there, or most of the others
    /// are found to be free.
    ///
    /// One server, and not all of them: there all waiters stand in one queue, and the one that comes first goes on to the others.
    /// If every server told every waiter of a release, all would come back to every server at once, for a split vote. All waiters
    /// agree on the server: the first where somebody is who holds most of them, which a look finds out; before that, simply the
    /// first. `refused`: servers where this wait has been tried in vain.
    async fn wait(
        &self,
        busy: &[usize],
        refused: &[usize],
        request: &Request,
        owner: &Owner,
        looks: &mut Looks,
        late: &mut LateVotes,
    ) -> Result<Wait> {
        let now = request.deadline.world().now();
        let Some(mut at) = self.first_of(busy, now) else { return Ok(Wait::Over(None)) };
        looks.begin(self.is_settled(at, now));
        loop {
            if request.deadline.is_over() {
                return Ok(Wait::Over(None));
            }
            let mut how = how(&owner.at(at), &request.asked, &request.deadline);
            how.wait = request.deadline.left();
            // If this server goes away, waiting for it is of no use: the other servers decide.
            how.ends_with_failure = true;
            let elsewhere = async {
                loop {
                    tokio::time::sleep(looks.pause(&**request.deadline.world())).await;
                    match self.look(at, busy, looks, &**request.deadline.world()).await {
                        Look::Stay => {}
                        Look::At(other) if refused.contains(&other) => {}
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
                Ok(Ok(guard)) => return Ok(Wait::Over(guard.map(|guard| (at, guard)))),
                Ok(Err(error)) => return Ok(Wait::Refused(at, error)),
                // The next vote tells whether there are enough others. The attempt, dropped, leaves its queue here.
                Err(None) => return Ok(Wait::Over(None)),
                Err(Some(other)) => at = other,
            }
        }
    }

    /// Releases what was granted in vain, so that the next vote does not find it in its way. False when that was not done in time.
    async fn give_back(&self, granted: Vec<(usize, Guard)>, late: &mut LateVotes, deadline: &Deadline) -> bool {
        if granted.is_empty() {
            return true;
        }
        let all: Vec<_> = granted.into_iter().map(|(_, guard)| guard.unlocking()).collect();
        let limit = deadline.at_most(self.node_timeout);
        // What is not done by then goes on in the background.
        let released = late.beside(within(limit, futures::future::join_all(all))).await;
        released.is_some_and(|each| each.iter().all(Result::is_ok))
    }
}

fn join(held: &Weak<Held>, outcome: Result<Option<Guard>>) {
    // A guard that nobody takes in is given back when it is dropped.
    if let (Ok(Some(guard)), Some(held)) = (outcome, held.upgrade()) {
        held.join(guard);
    }
}

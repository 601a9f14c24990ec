//! One acquire of a RedLock.
//!
//! 1. Vote: ask all servers at once. If most grant, the lock is held; later grants join its guard.
//! 2. Otherwise release the grants.
//! 3. If the servers that are not busy could form a majority, back off for a random time, so that a competing
//!    caller gets through.
//! 4. Wait at one server with another holder, and look at all servers from time to time (`look`). Once that server
//!    grants the lock, or the majority looks free, go to 1.
//! 5. If too many servers are away, pause and go to 1, until the patience is used up.
//!
//! Servers that have not answered are not asked again before they have (`LateVotes`). Unless the user gave an
//! owner, each vote has a fresh one, so that it cannot meet the leftovers of an earlier vote as its own holds.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;

use super::RedLock;
use super::look::{Look, Looks};
use super::votes::{LateVotes, Request, Votes};
use crate::acquire::Acquire;
use crate::engine::wait::{Deadline, Patience, grown, pause};
use crate::error::{Error, Result};
use crate::group::{self, PAUSES, are_silent, ask, deadline, how, patience, unanswered};
use crate::guard::{Guard, Held};
use crate::owner::Owner;
use crate::runtime::standstill::within;

/// The longest back-off after the first split vote, and the longest after any split vote.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(250));

/// How the wait at a server with another holder has ended.
enum Wait {
    /// This server has granted the lock; or, if None, the servers must be asked again.
    Over(Option<(usize, Guard)>),
    Refused(usize, Error),
}

/// What an acquire knows between its votes.
struct Attempts {
    request: Request,
    /// Number of servers that may be away while the rest is a majority.
    most_away: usize,
    late: LateVotes,
    looks: Looks,
    most: Duration,
    patience: Patience,
    splits: u32,
    refusals: u32,
}

/// How the wait after a failed vote has ended.
enum Turn {
    /// The next vote is due. The server has granted the lock already, if any.
    Next(Option<(usize, Guard)>),
    /// The time is over.
    RanOut,
}

impl RedLock {
    pub(super) async fn carry_out(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        self.check()?;
        let deadline = deadline(&self.nodes, &asked);
        let owner = asked.owner.clone().or_else(Owner::current);
        let most = patience(&self.nodes);
        let mut attempts = Attempts {
            request: Request { owner, asked, deadline: deadline.clone() },
            most_away: self.nodes.len() - self.quorum(),
            late: LateVotes::default(),
            looks: Looks::default(),
            most,
            patience: Patience::new(most),
            splits: 0,
            refusals: 0,
        };
        let mut first = None;
        let mut owner = self.next_owner(&attempts.request);
        // False while a server may still have a grant of a failed vote: the next vote would take it for another
        // owner's hold.
        let mut is_clean = true;
        loop {
            let mut votes = self.vote(&attempts.request, &owner, first.take(), &mut attempts.late).await?;
            if votes.held() >= self.quorum() {
                return Ok(Some(self.held(owner, votes, attempts.late)));
            }
            if votes.cut_off && attempts.looks.known_busy {
                return self.ran_out(&deadline, None).await;
            }
            let (granted, away) = (std::mem::take(&mut votes.granted), votes.are_away(attempts.most_away));
            let granted_by = granted.len();
            if deadline.is_once() || deadline.is_over() {
                // Dropped votes are released in the background.
                let is_busy = !away && is_clean && votes.are_busy(attempts.most_away);
                return if is_busy { Ok(None) } else { Err(self.no_quorum(granted_by, votes.why)) };
            }
            let was_clean =
                std::mem::replace(&mut is_clean, self.give_back(granted, &mut attempts.late, &deadline).await);
            owner = self.next_owner(&attempts.request);
            if !away {
                // A server that failed may be free. Busy means that more than `most_away` servers reported a
                // holder.
                attempts.looks.known_busy = was_clean && votes.are_busy(attempts.most_away);
                match self.wait_for_turn(&mut attempts, &mut votes, &mut owner).await? {
                    Turn::Next(grant) => first = grant,
                    Turn::RanOut => {
                        let unknown = (!attempts.looks.known_busy).then_some((granted_by, votes.why));
                        return self.ran_out(&deadline, unknown).await;
                    }
                }
            }
            if votes.are_away(attempts.most_away) {
                self.pause_for_servers(&mut attempts, granted_by, votes.why).await?;
            } else {
                attempts.patience.answered();
            }
        }
    }

    /// The owner of the next vote: the user's, or a fresh one.
    fn next_owner(&self, request: &Request) -> Owner {
        request.owner.clone().unwrap_or_else(|| group::owner(&self.nodes))
    }

    /// After a vote that others have won: backs off, then waits at one busy server. Replaces the owner if its wait may
    /// have left something.
    async fn wait_for_turn(&self, attempts: &mut Attempts, votes: &mut Votes, owner: &mut Owner) -> Result<Turn> {
        let Attempts { request, most_away, late, looks, most, patience, splits, refusals } = attempts;
        let deadline = &request.deadline;
        if votes.busy.len() <= *most_away {
            // The other servers would be a majority, so other callers are asking at the same time. If all callers
            // retried at once, none would get through.
            let rest = deadline.world().jitter(grown(BACKOFF, *splits));
            *splits += 1;
            late.beside(tokio::time::sleep(deadline.at_most(rest))).await;
        }
        if votes.busy.is_empty() {
            return Ok(Turn::Next(None));
        }
        let began = deadline.elapsed();
        let first = self.wait_at_one(votes, request, owner, looks, late).await?;
        if first.is_none() && deadline.is_over() {
            return Ok(Turn::RanOut);
        }
        if first.is_none() {
            // An abandoned wait may still be granted, and is then released. The next vote must not meet that grant.
            *owner = self.next_owner(request);
        }
        if votes.busy.is_empty() && !votes.are_away(*most_away) {
            // Servers that have not answered yet may decide the next vote.
            let pause = pause(&**deadline.world(), PAUSES, *refusals);
            *refusals += 1;
            late.beside(tokio::time::sleep(deadline.at_most(pause))).await;
        } else {
            *refusals = 0;
        }
        // A failing wait lasts as long as its own patience. A wait of twice that time had answers before.
        if deadline.elapsed().saturating_sub(began) > *most * 2 {
            patience.answered();
        }
        Ok(Turn::Next(first))
    }

    /// Pauses because too many servers are away. An error if the patience or the time is used up.
    async fn pause_for_servers(&self, attempts: &mut Attempts, granted: usize, why: Option<Error>) -> Result<()> {
        let Attempts { request, late, looks, patience, .. } = attempts;
        let deadline = &request.deadline;
        let came_late = why.as_ref().is_some_and(Error::is_too_late);
        let error = self.no_quorum(granted, why);
        looks.known_busy = false;
        let pause = pause(&**deadline.world(), PAUSES, patience.failures());
        let now = deadline.elapsed();
        let enough = if came_late { patience.came_late(now) } else { patience.failed(now) };
        if enough || !error.is_retryable() {
            return Err(error);
        }
        late.beside(tokio::time::sleep(deadline.at_most(pause))).await;
        if deadline.is_over() { Err(error) } else { Ok(()) }
    }

    /// Result at the end of the wait. It ran out (`Ok(None)`), unless too few servers answered lately to know
    /// whether others hold the lock. `unknown`: the number of grants and the last error of the last vote, if that
    /// vote could not tell.
    async fn ran_out(&self, deadline: &Deadline, unknown: Option<(usize, Option<Error>)>) -> Result<Option<Guard>> {
        if let Some((granted, why)) = unknown {
            return Err(self.no_quorum(granted, why));
        }
        if !are_silent(&self.nodes, self.nodes.len() - self.quorum(), deadline).await {
            return Ok(None);
        }
        Err(self.no_quorum(0, None))
    }

    /// The error for too few answers. `why`: the error of one of the other servers, if any.
    fn no_quorum(&self, granted: usize, why: Option<Error>) -> Error {
        if matches!(why, Some(Error::Closed)) {
            return Error::Closed;
        }
        let why = Arc::new(why.unwrap_or_else(|| unanswered(&self.nodes)));
        Error::NoQuorum { name: Arc::clone(&self.name), granted, needed: self.quorum(), why }
    }

    /// Makes the guard of a lock that most servers have granted. Later grants join it.
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
                        // A guard of an earlier vote is dropped, and so released.
                        Some(_) = late.next(), if !late.is_empty() => {}
                        else => return,
                    }
                }
            });
        }
        Guard::of(held)
    }

    /// Waits for the lock at a busy server; if that server refuses the wait, at another. A server that answers but
    /// refuses the wait counts as away for this vote.
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
                    tracing::debug!(lock.name = %self.name, node = at, %error, "a server refused the wait");
                    refused.push(at);
                    // A look may have led to a server outside of `busy`: it was counted before, or may still
                    // answer.
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

    /// Waits for the lock at one busy server, until it is granted there or most other servers are found free.
    /// `refused`: servers that have refused this wait.
    ///
    /// Only one server, because there all waiters form one queue, and its head asks the other servers. If every
    /// server woke every waiter at a release, all waiters would ask all servers at once, and split the vote. All
    /// waiters agree on the server: the first one held by a majority holder, which a look finds out. Before the
    /// first look it is the first busy one.
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
            // If this server goes away, waiting here is useless: the other servers decide.
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
                // The next vote shows whether enough servers are free. The dropped attempt leaves its queue here.
                Err(None) => return Ok(Wait::Over(None)),
                Err(Some(other)) => at = other,
            }
        }
    }

    /// Releases the grants of a failed vote, so that the next vote does not meet them. Returns false if some
    /// release has failed or took too long.
    async fn give_back(&self, granted: Vec<(usize, Guard)>, late: &mut LateVotes, deadline: &Deadline) -> bool {
        if granted.is_empty() {
            return true;
        }
        let all: Vec<_> = granted.into_iter().map(|(_, guard)| guard.unlocking()).collect();
        let limit = deadline.at_most(self.node_timeout);
        // A release that takes longer continues in the background.
        let released = late.beside(within(limit, futures::future::join_all(all))).await;
        released.is_some_and(|each| each.iter().all(Result::is_ok))
    }
}

fn join(held: &Weak<Held>, outcome: Result<Option<Guard>>) {
    // A guard that cannot join is dropped, and so released.
    if let (Ok(Some(guard)), Some(held)) = (outcome, held.upgrade()) {
        held.join(guard);
    }
}

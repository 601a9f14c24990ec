//! One acquire of a RedLock.
//!
//! 1. Vote: ask all servers for the lock at once. If most grant it, the lock is held. Later grants join its guard.
//! 2. Otherwise release the grants.
//! 3. If the servers that are not busy could form a majority, back off for a random time, so that a competing caller
//!    can acquire the lock.
//! 4. Wait at one server where another owner holds the lock, and check all servers from time to time (`look`). Once
//!    that server grants the lock, or most other servers look free, go to 1.
//! 5. If so many servers failed or did not answer that the rest is no majority, skip 3 and 4: pause, then go to 1,
//!    until the time for retries (`Patience`) is used up.
//!
//! A server that still owes an answer to an earlier vote is not asked again until it has answered (`LateVotes`). Unless
//! the user gave an owner, each vote uses a fresh one. With the same owner, a server with a grant left over from an
//! earlier vote would grant the next vote as a re-entry.

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

/// Limit of the random back-off after the first split vote (see `wait_for_turn`). It doubles with each split vote, up
/// to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(250));

/// How the wait at a busy server has ended.
enum Wait {
    /// Some: this server has granted the lock. None: all servers must be asked again.
    Over(Option<(usize, Guard)>),
    Refused(usize, Error),
}

/// State of an acquire between its votes.
struct Voting {
    request: Request,
    /// Number of servers that may fail while the rest is a majority.
    most_away: usize,
    late: LateVotes,
    looks: Looks,
    /// Time for retries while too many servers fail.
    most: Duration,
    patience: Patience,
    /// Number of split votes.
    splits: u32,
    /// Number of waits in a row that every busy server refused.
    refusals: u32,
}

/// How the wait after a failed vote has ended.
enum Turn {
    /// Vote again. If Some, this server has granted the lock already.
    Next(Option<(usize, Guard)>),
    /// The wait has run out.
    RanOut,
}

impl RedLock {
    pub(super) async fn carry_out(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        asked.check_no_lock_delay("RedLock")?;
        self.check()?;
        let deadline = deadline(&self.nodes, &asked);
        let owner = asked.owner.clone().or_else(Owner::current);
        let most = patience(&self.nodes);
        let mut voting = Voting {
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
        let mut owner = self.next_owner(&voting.request);
        // False if a release of the last vote's grants has failed or is late. The server may then still have this
        // acquire's grant, and look busy to the next vote, which has a fresh owner.
        let mut is_clean = true;
        loop {
            let mut votes = self.vote(&voting.request, &owner, first.take(), &mut voting.late).await?;
            if votes.held() >= self.quorum() {
                return Ok(Some(self.held(owner, votes, voting.late)));
            }
            if votes.cut_off && voting.looks.known_busy {
                return self.ran_out(&deadline, None).await;
            }
            let (granted, away) = (std::mem::take(&mut votes.granted), votes.are_away(voting.most_away));
            let granted_by = granted.len();
            if deadline.is_once() || deadline.is_over() {
                // Dropping `granted` releases its grants in the background.
                let is_busy = !away && is_clean && votes.are_busy(voting.most_away);
                return if is_busy { Ok(None) } else { Err(self.no_quorum(granted_by, votes.why)) };
            }
            let was_clean =
                std::mem::replace(&mut is_clean, self.release_grants(granted, &mut voting.late, &deadline).await);
            owner = self.next_owner(&voting.request);
            if !away {
                // A failed server may be free, so it does not count as busy.
                voting.looks.known_busy = was_clean && votes.are_busy(voting.most_away);
                match self.wait_for_turn(&mut voting, &mut votes, &mut owner).await? {
                    Turn::Next(grant) => first = grant,
                    Turn::RanOut => {
                        let unknown = (!voting.looks.known_busy).then_some((granted_by, votes.why));
                        return self.ran_out(&deadline, unknown).await;
                    }
                }
            }
            if votes.are_away(voting.most_away) {
                self.pause_for_servers(&mut voting, granted_by, votes.why).await?;
            } else {
                voting.patience.answered();
            }
        }
    }

    /// The owner of the next vote: the user's, or a fresh one.
    fn next_owner(&self, request: &Request) -> Owner {
        request.owner.clone().unwrap_or_else(|| group::owner(&self.nodes))
    }

    /// Called after a failed vote that enough servers answered. Backs off if the vote was split, then waits at one busy
    /// server. If the wait ended without a grant, replaces `owner`, unless the user gave it.
    async fn wait_for_turn(&self, voting: &mut Voting, votes: &mut Votes, owner: &mut Owner) -> Result<Turn> {
        let Voting { request, most_away, late, looks, most, patience, splits, refusals } = voting;
        let deadline = &request.deadline;
        if votes.busy.len() <= *most_away {
            // The servers that are not busy could form a majority, but this vote did not get one. So other callers are
            // probably asking at the same time.
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
            // The server may still grant the abandoned attempt. The next vote must not count this grant as its own.
            *owner = self.next_owner(request);
        }
        if votes.busy.is_empty() && !votes.are_away(*most_away) {
            // Every busy server refused the wait. The pause gives the other servers time to answer, because they may
            // decide the next vote.
            let pause = pause(&**deadline.world(), PAUSES, *refusals);
            *refusals += 1;
            late.beside(tokio::time::sleep(deadline.at_most(pause))).await;
        } else {
            *refusals = 0;
        }
        // A wait at a server that does not answer fails after `most`. So if this took more than twice that time, a
        // server has answered.
        if deadline.elapsed().saturating_sub(began) > *most * 2 {
            patience.answered();
        }
        Ok(Turn::Next(first))
    }

    /// Pauses because too many servers failed. Returns the error if it cannot be retried, or if the time for retries or
    /// the caller's wait is used up.
    async fn pause_for_servers(&self, voting: &mut Voting, granted: usize, why: Option<Error>) -> Result<()> {
        let Voting { request, late, looks, patience, .. } = voting;
        let deadline = &request.deadline;
        let reply_was_late = why.as_ref().is_some_and(Error::is_too_late);
        let error = self.no_quorum(granted, why);
        looks.known_busy = false;
        let pause = pause(&**deadline.world(), PAUSES, patience.failures());
        let now = deadline.elapsed();
        let enough = if reply_was_late { patience.reply_was_late(now) } else { patience.failed(now) };
        if enough || !error.is_retryable() {
            return Err(error);
        }
        late.beside(tokio::time::sleep(deadline.at_most(pause))).await;
        if deadline.is_over() { Err(error) } else { Ok(()) }
    }

    /// The result when the wait has run out: `NoQuorum` if `unknown` is Some, or too many servers are silent; else
    /// `Ok(None)`. `unknown`: Some if neither the last vote nor a later look found the lock busy. It has the number of
    /// grants of that vote, and the error of one of its failed servers.
    async fn ran_out(&self, deadline: &Deadline, unknown: Option<(usize, Option<Error>)>) -> Result<Option<Guard>> {
        if let Some((granted, why)) = unknown {
            return Err(self.no_quorum(granted, why));
        }
        if !are_silent(&self.nodes, self.nodes.len() - self.quorum(), deadline).await {
            return Ok(None);
        }
        Err(self.no_quorum(0, None))
    }

    /// The error for too few answers. `why`: the error of one of the servers that failed, if any.
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

    /// Waits for the lock at a busy server. If that server refuses the wait, it counts as failed for this vote, and the
    /// wait continues at another busy server.
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
                    // A look may have moved the wait to a server that is not in `busy`. Its refusal is not counted,
                    // unless it is a `Config` error: the vote has the server's answer already, or still waits for it.
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
    /// The acquire waits at one server only, so that all waiters form one queue there, and only the head of that queue
    /// asks the other servers. If every server woke every waiter at a release, all waiters would ask all servers at
    /// once, and split the vote. All waiters choose by the same rule: the first busy server; after a look that found a
    /// majority holder (an owner on most servers, see `look`), a server of that holder, normally the first.
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
            // If this server fails, waiting here is useless: the other servers decide.
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
                // The next vote shows whether enough servers are free. The dropped attempt gives up its place in this
                // server's queue.
                Err(None) => return Ok(Wait::Over(None)),
                Err(Some(other)) => at = other,
            }
        }
    }

    /// Releases the grants of a failed vote, so that the next vote finds these servers free. Returns false if some
    /// release has failed or took too long.
    async fn release_grants(&self, granted: Vec<(usize, Guard)>, late: &mut LateVotes, deadline: &Deadline) -> bool {
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

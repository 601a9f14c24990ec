//! One vote of all servers: which grant the lock, which refuse it, which do not answer.

use std::collections::HashSet;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::RedLock;
use crate::acquire::Acquire;
use crate::engine::wait::Deadline;
use crate::error::{Error, Result};
use crate::group::{Asking, ask, how};
use crate::guard::Guard;
use crate::owner::Owner;
use crate::runtime::standstill::limit_over;

/// Returns how long a vote waits for servers whose answers it does not need. `others`: the time in which the other
/// servers answered.
pub(super) fn silence(others: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(10);
    (others * 3).max(LEAST)
}

/// The user's acquire.
pub(super) struct Request {
    /// None if every vote has a fresh owner.
    pub(super) owner: Option<Owner>,
    pub(super) asked: Acquire,
    pub(super) deadline: Deadline,
}

/// The answers of the servers to one vote.
pub(super) struct Votes {
    pub(super) granted: Vec<(usize, Guard)>,
    pub(super) busy: Vec<usize>,
    /// Number of servers where the owner itself holds the lock.
    pub(super) in_own_way: usize,
    /// Number of servers that could not be asked, returned an error, or did not answer.
    pub(super) failed: usize,
    /// True if the wait ended before the servers had the whole node timeout to answer.
    pub(super) cut_off: bool,
    /// The error of one of the failed servers.
    pub(super) why: Option<Error>,
    /// The attempts without an answer.
    pub(super) asking: Asking,
}

impl Votes {
    /// Returns how many servers have granted the lock, with leases that still run.
    pub(super) fn held(&self) -> usize {
        self.granted.iter().filter(|(_, guard)| guard.is_held()).count()
    }

    /// Returns true if others, or the owner itself, hold the lock at so many servers that the rest is no majority.
    pub(super) const fn are_busy(&self, most_away: usize) -> bool {
        self.busy.len() + self.in_own_way > most_away
    }

    /// Returns true if so many servers failed that nobody can know who holds the lock. Once a server has failed,
    /// the servers held by the owner itself count too: with the failed servers, the owner may hold a majority.
    pub(super) const fn are_away(&self, most_away: usize) -> bool {
        self.may_be_away(most_away, 0)
    }

    /// `are_away`, if the `unheard` servers without an answer fail as well.
    const fn may_be_away(&self, most_away: usize, unheard: usize) -> bool {
        let failed = self.failed + unheard;
        failed > 0 && failed + self.in_own_way > most_away
    }

    /// True if the owner itself may hold the lock at a majority, once all servers have answered.
    fn may_be_own(&self, needed: usize) -> bool {
        self.in_own_way > 0 && self.in_own_way + self.asking.len() >= needed
    }

    /// True if the lock is held, or if it cannot be held and the reason is known: others hold the lock, or too many
    /// servers failed, or the vote is split. The lock is held if `needed` of the `nodes` grant it.
    fn are_decided(&self, needed: usize, nodes: usize) -> bool {
        let (held, unheard, most_away) = (self.held(), self.asking.len(), nodes - needed);
        // Servers without an answer may still show that the lock is busy.
        let may_be_busy = !self.are_busy(most_away) && self.busy.len() + self.in_own_way + unheard > most_away;
        let is_split = !self.may_be_away(most_away, unheard) && !may_be_busy;
        let is_known =
            !self.may_be_own(needed) && (self.are_away(most_away) || self.busy.len() > most_away || is_split);
        held >= needed || (held + unheard < needed && is_known)
    }

    /// True if the vote may be split: other callers ask too, and each caller has some servers, but none has a majority.
    /// Then servers that have not answered get only a little longer than the others took, unless their answers decide
    /// the result of the acquire (`decides`).
    fn are_split(&self, needed: usize, nodes: usize, decides: bool) -> bool {
        let most_away = nodes - needed;
        let none_away = !self.may_be_away(most_away, self.asking.len());
        !self.busy.is_empty() && none_away && !self.may_be_own(needed) && (!decides || self.are_busy(most_away))
    }

    /// Counts grants whose lease ended before the majority was complete as failed.
    fn note_expired(&mut self) {
        let expired = self.granted.len() - self.held();
        if expired > 0 {
            self.failed += expired;
            self.why = Some(Error::too_late());
        }
    }

    /// Notes the error of one server, and returns an error that holds for all servers. `WouldDeadlock` holds for all
    /// only if a majority returns it. A single server may still have a grant of a failed vote or wait, whose release is
    /// in flight.
    pub(super) fn refused(&mut self, error: Error, needed: usize) -> Result<()> {
        match error {
            Error::WouldDeadlock { .. } => {
                self.in_own_way += 1;
                if self.in_own_way >= needed { Err(error) } else { Ok(()) }
            }
            Error::Config { .. } => Err(error),
            error => {
                self.failed += 1;
                // Prefer a temporary error, which may be gone by the next vote.
                if self.why.as_ref().is_none_or(|why| !why.is_retryable()) {
                    self.why = Some(error);
                }
                Ok(())
            }
        }
    }
}

/// Unanswered attempts of earlier votes. A server with such an attempt is not asked again until it has answered.
#[derive(Default)]
pub(super) struct LateVotes {
    pub(super) asking: Asking,
    pub(super) away: HashSet<usize>,
}

impl LateVotes {
    pub(super) fn take(&mut self, asked: &HashSet<usize>, asking: Asking) {
        self.away.extend(asked);
        self.asking.extend(asking);
    }

    pub(super) fn sweep(&mut self) {
        while let Some(Some((at, outcome))) = self.asking.next().now_or_never() {
            // A dropped guard is released: the grant came too late for its vote.
            drop(outcome);
            self.away.remove(&at);
        }
    }

    /// Runs `work`, and handles late answers meanwhile.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                output = &mut work => return output,
                Some((at, late)) = self.asking.next(), if !self.asking.is_empty() => {
                    drop(late);
                    self.away.remove(&at);
                }
            }
        }
    }
}

impl RedLock {
    /// Sends the attempts of a vote. Returns also the servers that were asked.
    fn ask_all(
        &self,
        request: &Request,
        owner: &Owner,
        first: Option<(usize, Guard)>,
        late: &LateVotes,
    ) -> (Votes, HashSet<usize>) {
        let (mut failed, mut asked, asking) = (0, HashSet::new(), FuturesUnordered::new());
        for (at, lock) in self.nodes.iter().enumerate() {
            if first.as_ref().is_some_and(|(first, _)| *first == at) {
                continue;
            }
            if late.away.contains(&at) {
                failed += 1;
                continue;
            }
            let how = how(&owner.at(at), &request.asked, &request.deadline).wait(Duration::ZERO);
            asked.insert(at);
            asking.push(ask(lock, at, how));
        }
        let granted = first.into_iter().collect();
        let votes = Votes { granted, busy: Vec::new(), in_own_way: 0, failed, cut_off: false, why: None, asking };
        (votes, asked)
    }

    /// Asks all servers at once, except the server that has granted the lock already, and servers that have not
    /// answered an earlier vote.
    pub(super) async fn vote(
        &self,
        request: &Request,
        owner: &Owner,
        first: Option<(usize, Guard)>,
        late: &mut LateVotes,
    ) -> Result<Votes> {
        late.sweep();
        let needed = self.quorum();
        let (mut votes, mut open) = self.ask_all(request, owner, first, late);
        let deadline = &request.deadline;
        let left = deadline.left_to_answer().filter(|_| !deadline.is_once());
        let limit = left.map_or(self.node_timeout, |left| left.min(self.node_timeout));
        let mut timer = std::pin::pin!(limit_over(limit));
        let (began, mut heard) = (deadline.elapsed(), Duration::ZERO);
        let elapsed = || deadline.elapsed().saturating_sub(began);
        loop {
            if votes.are_decided(needed, self.nodes.len()) {
                break;
            }
            let tells = deadline.is_once() || deadline.is_over();
            let split = votes.are_split(needed, self.nodes.len(), tells);
            let soon = tokio::time::sleep(silence(heard).saturating_sub(elapsed().saturating_sub(heard)));
            tokio::select! {
                biased;
                Some((at, outcome)) = votes.asking.next() => {
                    open.remove(&at);
                    heard = elapsed();
                    match outcome {
                        Ok(Some(guard)) => votes.granted.push((at, guard)),
                        Ok(None) => votes.busy.push(at),
                        Err(error) => {
                            tracing::debug!(lock.name = %self.name(), node = at, %error, "a server did not grant the lock");
                            votes.refused(error, needed)?;
                        }
                    }
                }
                Some((at, outcome)) = late.asking.next(), if !late.asking.is_empty() => {
                    drop(outcome);
                    late.away.remove(&at);
                }
                () = soon, if split => break,
                () = &mut timer => {
                    votes.failed += votes.asking.len();
                    votes.cut_off = limit < self.node_timeout;
                    break;
                }
            }
        }
        if votes.held() < needed {
            votes.note_expired();
            late.take(&open, std::mem::take(&mut votes.asking));
        }
        Ok(votes)
    }
}

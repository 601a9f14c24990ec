//! One vote of all servers: who grants the lock, who refuses it, who does not answer.

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
use crate::lock::DistLock as _;
use crate::owner::Owner;
use crate::runtime::standstill::limit_over;

/// For how long silent servers are waited for where they are not needed, and the others took so long.
pub(super) fn silence(others: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(10);
    (others * 3).max(LEAST)
}

/// One acquire of the user's.
pub(super) struct Request {
    /// The user's owner. None: a new one for every vote.
    pub(super) owner: Option<Owner>,
    pub(super) asked: Acquire,
    pub(super) deadline: Deadline,
}

/// What the servers have said when all of them were asked once.
pub(super) struct Votes {
    pub(super) granted: Vec<(usize, Guard)>,
    pub(super) busy: Vec<usize>,
    /// How many say that the owner itself has the lock there.
    pub(super) in_own_way: usize,
    /// How many could not be asked, answered an error, or have not answered.
    pub(super) failed: usize,
    /// True when the wait was over before the servers had had their time.
    pub(super) cut_off: bool,
    /// Why one of the servers failed.
    pub(super) why: Option<Error>,
    /// The attempts that were sent and not answered.
    pub(super) asking: Asking,
}

impl Votes {
    /// How many servers have granted it, with leases that are not over yet.
    pub(super) fn held(&self) -> usize {
        self.granted.iter().filter(|(_, guard)| guard.is_held()).count()
    }

    /// True when others, or the owner itself, have the lock at so many servers that too few are left for a grant.
    pub(super) const fn are_busy(&self, most_away: usize) -> bool {
        self.busy.len() + self.in_own_way > most_away
    }

    /// True when so many are away that nobody can know who has the lock. Where one is, those that the owner has count as well: the
    /// others of a lock that it has as a whole may be among the silent.
    pub(super) const fn are_away(&self, most_away: usize) -> bool {
        self.may_be_away(most_away, 0)
    }

    /// The same, should those that have not answered be away too.
    const fn may_be_away(&self, most_away: usize, unheard: usize) -> bool {
        let failed = self.failed + unheard;
        failed > 0 && failed + self.in_own_way > most_away
    }

    /// Takes in what an error of one server means: for all of them (`Err`), or nothing beyond this one. That the owner has the lock
    /// there says nothing before it is said by a majority, which is the whole lock: of a vote or a wait that came to nothing, one
    /// server's part may still be on its way back.
    pub(super) fn refused(&mut self, error: Error, needed: usize) -> Result<()> {
        match error {
            Error::WouldDeadlock { .. } => {
                self.in_own_way += 1;
                if self.in_own_way >= needed { Err(error) } else { Ok(()) }
            }
            Error::Config { .. } => Err(error),
            error => {
                self.failed += 1;
                // A reason that passes may have passed by the next vote, whatever the others say.
                if self.why.as_ref().is_none_or(|why| !why.is_retryable()) {
                    self.why = Some(error);
                }
                Ok(())
            }
        }
    }
}

/// Attempts of earlier votes: their servers have not answered yet, and are not asked again before they have.
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
            // A guard that was granted too late is given back when it is dropped.
            drop(outcome);
            self.away.remove(&at);
        }
    }

    /// Sees to what comes in late while something else is waited for.
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
    /// Asks all servers at once, but for the one that has granted it already, and those that have not answered yet.
    pub(super) async fn vote(
        &self,
        request: &Request,
        owner: &Owner,
        first: Option<(usize, Guard)>,
        late: &mut LateVotes,
    ) -> Result<Votes> {
        late.sweep();
        let needed = self.quorum();
        let mut votes = Votes {
            granted: Vec::new(),
            busy: Vec::new(),
            in_own_way: 0,
            failed: 0,
            cut_off: false,
            why: None,
            asking: FuturesUnordered::new(),
        };
        let mut open = HashSet::new();
        for (at, lock) in self.nodes.iter().enumerate() {
            if first.as_ref().is_some_and(|(first, _)| *first == at) {
                continue;
            }
            if late.away.contains(&at) {
                votes.failed += 1;
                continue;
            }
            let how = how(&owner.at(at), &request.asked, &request.deadline).wait(Duration::ZERO);
            open.insert(at);
            votes.asking.push(ask(lock, at, how));
        }
        votes.granted.extend(first);
        let deadline = &request.deadline;
        let left = deadline.left_to_answer().filter(|_| !deadline.is_once());
        let limit = left.map_or(self.node_timeout, |left| left.min(self.node_timeout));
        let mut timer = std::pin::pin!(limit_over(limit));
        let (began, mut heard) = (deadline.elapsed(), Duration::ZERO);
        let elapsed = || deadline.elapsed().saturating_sub(began);
        loop {
            let held = votes.held();
            // The vote may be in vain: but is that because others hold the lock, because the owner itself does, or because too many
            // servers are away?
            let (unheard, most_away) = (votes.asking.len(), self.nodes.len() - needed);
            let none_away = !votes.may_be_away(most_away, unheard);
            let own = votes.in_own_way > 0 && votes.in_own_way + unheard >= needed;
            // Servers that have not answered yet may still show that the lock is busy.
            let may_be_busy = !votes.are_busy(most_away) && votes.busy.len() + votes.in_own_way + unheard > most_away;
            let is_split = none_away && !may_be_busy;
            let known = !own && (votes.are_away(most_away) || votes.busy.len() > most_away || is_split);
            if held >= needed || (held + unheard < needed && known) {
                break;
            }
            // Others ask too, and the votes are split: what is held meanwhile keeps all out, so silent servers are not waited
            // for much longer than the others took. Unless so many are silent that they decide what is told.
            let tells = deadline.is_once() || deadline.is_over();
            let split = !votes.busy.is_empty() && none_away && !own && (!tells || votes.are_busy(most_away));
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
                            tracing::debug!(lock.name = %self.name(), node = at, %error, "a server did not grant it");
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
        let held = votes.held();
        if held < needed {
            // A grant whose lease was over before the majority was there counts for nothing.
            let over = votes.granted.len() - held;
            if over > 0 {
                votes.failed += over;
                votes.why = Some(Error::too_late());
            }
            late.take(&open, std::mem::take(&mut votes.asking));
        }
        Ok(votes)
    }
}

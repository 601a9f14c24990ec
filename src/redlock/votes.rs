//! One vote of all servers: who grants the lock, who refuses it, who does not answer.

use std::collections::HashSet;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};

use super::RedLock;
use crate::acquire::Acquire;
use crate::engine::wait::Deadline;
use crate::error::{Error, Result, Step};
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
}

/// True when a server says that the owner would wait for itself.
pub(super) const fn is_in_own_way(error: &Error) -> bool {
    matches!(error, Error::WouldDeadlock { .. })
}

/// What an error of one server means: for all servers (`Err`), or for this one alone. That the owner has the lock there already says
/// nothing before so many have said it that it has the whole: a vote or a wait that came to nothing may still be given back.
pub(super) fn read(error: Error, has_the_whole: bool) -> Result<Error> {
    match error {
        error if is_in_own_way(&error) && !has_the_whole => Ok(Error::Timeout { step: Step::Command }),
        Error::WouldDeadlock { .. } | Error::Config { .. } => Err(error),
        error => Ok(error),
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
            failed: 0,
            cut_off: false,
            why: None,
            asking: FuturesUnordered::new(),
        };
        let (mut open, mut in_own_way) = (HashSet::new(), 0);
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
            // The vote may be in vain: but is that because others hold the lock, or because too many servers are away?
            let (unheard, most_away) = (votes.asking.len(), self.nodes.len() - needed);
            let known = votes.failed > most_away || votes.busy.len() > most_away || votes.failed + unheard <= most_away;
            if held >= needed || (held + unheard < needed && known) {
                break;
            }
            // Others ask too, and the votes are split: what is held meanwhile keeps all out, so silent servers are not waited
            // for much longer than the others took. Unless so many are silent that they decide what is told.
            let split = !votes.busy.is_empty() && votes.failed + unheard <= most_away;
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
                            in_own_way += usize::from(is_in_own_way(&error));
                            let error = read(error, in_own_way > most_away)?;
                            tracing::debug!(lock.name = %self.name(), node = at, %error, "a server did not grant it");
                            votes.failed += 1;
                            votes.why = Some(error);
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

//! Requests all *missing* locks of a multi lock (not held by this acquire yet) once, at the same time. *Simple* locks
//! (reentrant, spin) at one server, or in one slot of a cluster, are acquired by scripts of many names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::{Asker, Got};
use crate::acquire::Acquire;
use crate::engine::acquire::batch::{Batch, batch};
use crate::engine::wait::Deadline;
use crate::error::{Error, Result};
use crate::group::{Asking, ask, cut_off, how, part};
use crate::guard::Guard;
use crate::multi::MultiLock;
use crate::owner::Owner;
use crate::runtime::standstill::within;
use crate::topology::Placement;

/// Maximum number of locks per script. The server does nothing else while a script runs.
const PART: usize = 250;

/// Outcome of requesting all missing locks.
pub(super) enum Answers {
    All,
    /// The first busy lock.
    Busy(usize),
    /// The wait ended before all replies arrived, and no server is silent.
    RanOut,
}

/// Result of the scripts for one client and placement (see `batches`): the acquired locks, and the first busy lock or
/// an error.
struct Together {
    got: Vec<(usize, Guard)>,
    outcome: Result<Option<usize>>,
}

/// The replies so far.
struct Replies<'a> {
    got: &'a mut Got,
    /// The first busy lock.
    busy: Option<usize>,
    /// The first lasting error, else the last temporary error.
    failed: Option<Error>,
}

impl Replies<'_> {
    fn add(&mut self, at: usize, outcome: Result<Option<Guard>>) {
        match outcome {
            Ok(Some(guard)) => {
                self.got.insert(at, guard);
            }
            Ok(None) => self.is_busy(at),
            Err(error) => self.has_failed(error),
        }
    }

    fn add_all(&mut self, batch: Together) {
        self.got.extend(batch.got);
        match batch.outcome {
            Ok(Some(at)) => self.is_busy(at),
            Ok(None) => {}
            Err(error) => self.has_failed(error),
        }
    }

    fn is_busy(&mut self, at: usize) {
        self.busy = Some(self.busy.map_or(at, |busy| busy.min(at)));
    }

    fn has_failed(&mut self, error: Error) {
        if self.failed.as_ref().is_none_or(Error::is_retryable) {
            self.failed = Some(error);
        }
    }
}

impl MultiLock {
    pub(super) async fn ask_all(
        &self,
        asked: &Acquire,
        asker: &Asker<'_>,
        got: &mut Got,
        together: bool,
        deadline: &Deadline,
    ) -> Result<Answers> {
        let owner = &asker.owner;
        let mut missing: Vec<usize> = (0..self.locks.len()).filter(|at| !got.contains_key(at)).collect();
        let mut batches = FuturesUnordered::new();
        if together {
            for all in self.batches(&mut missing, &asker.past) {
                batches.push(self.together(all, asked, owner));
            }
        }
        let once = |at: usize| ask(&self.locks[at], at, how(owner, asked, deadline).wait(Duration::ZERO));
        let mut asking: Asking = missing.into_iter().map(once).collect();
        let mut replies = Replies { got, busy: None, failed: None };
        let answers = async {
            loop {
                tokio::select! {
                    biased;
                    Some((at, outcome)) = asking.next(), if !asking.is_empty() => replies.add(at, outcome),
                    Some(batch) = batches.next(), if !batches.is_empty() => replies.add_all(batch),
                    else => break,
                }
            }
        };
        // A command has its own timeout, which may be later than the end of the wait. Attempts in flight at the end of
        // the wait are undone.
        let late = match deadline.left_to_answer().filter(|_| !deadline.is_once()) {
            None => {
                answers.await;
                false
            }
            Some(left) => within(left, answers).await.is_none(),
        };
        let Replies { busy, failed, .. } = replies;
        match failed {
            Some(error) => Err(error),
            None if late && busy.is_none() => cut_off(&self.locks, deadline).await.map(|()| Answers::RanOut),
            None => Ok(busy.map_or(Answers::All, Answers::Busy)),
        }
    }

    /// Groups simple locks by client and placement (server, and slot in a cluster), for scripts of many names.
    /// Removes them from `missing`. A lock that is alone at its placement stays there.
    fn batches(&self, missing: &mut Vec<usize>, past: &HashSet<usize>) -> Vec<Vec<usize>> {
        let mut servers: HashMap<(*const (), Placement), usize> = HashMap::new();
        let mut batches: Vec<Vec<usize>> = Vec::new();
        for at in missing.iter().filter(|at| !past.contains(at)) {
            let Some(part) = part(&self.locks[*at]).filter(|part| part.protocol.nature().in_batch) else { continue };
            let engine = part.client.engine();
            let placement = engine.topology.placement(part.protocol.name());
            let server = (Arc::as_ptr(engine).cast::<()>(), placement);
            let batch = *servers.entry(server).or_insert_with(|| {
                batches.push(Vec::new());
                batches.len() - 1
            });
            batches[batch].push(*at);
        }
        batches.retain(|all| all.len() > 1);
        let taken: HashSet<usize> = batches.iter().flatten().copied().collect();
        missing.retain(|at| !taken.contains(at));
        batches
    }

    /// Acquires these locks of one client and placement, up to the first busy lock. Each script is sent after the reply
    /// of the previous script. If all scripts were sent at once, two callers could each acquire locks that the other
    /// caller needs, and the server would be blocked for as long as all scripts take.
    async fn together(&self, all: Vec<usize>, asked: &Acquire, owner: &Owner) -> Together {
        let mut got = Vec::with_capacity(all.len());
        for all in all.chunks(PART) {
            let parts: Vec<_> = all.iter().filter_map(|at| part(&self.locks[*at])).collect();
            let Some(client) = parts.first().map(|part| part.client.clone()) else { break };
            let protocols = parts.iter().map(|part| Arc::clone(part.protocol)).collect();
            match batch(client.engine(), protocols, owner.clone(), asked.lease).await {
                Ok(Batch::Held(grants)) => {
                    let guards = grants.into_iter().map(|grant| Guard::part(grant, client.handle()));
                    got.extend(all.iter().copied().zip(guards));
                }
                Ok(Batch::Busy(at)) => return Together { got, outcome: Ok(all.get(at).copied()) },
                Err(error) => return Together { got, outcome: Err(error) },
            }
        }
        Together { got, outcome: Ok(None) }
    }
}

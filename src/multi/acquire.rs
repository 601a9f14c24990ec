//! One acquire of a multi lock.
//!
//! 1. Request all missing locks at once: by scripts of many names where possible (`batches`), else one by one.
//! 2. If all are granted, combine their guards into one.
//! 3. If some are busy, keep the locks before the first busy one, in the order of all callers, and release the
//!    rest.
//! 4. Wait for the busy lock. After one to two [`HOLD`] release all other locks, and wait without holding any.
//! 5. Once the busy lock is granted, go to 1.
//!
//! A passing error releases everything, and after a pause the acquire starts over, with a fresh owner unless the
//! user gave one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::{HOLD, MultiLock};
use crate::acquire::Acquire;
use crate::engine::acquire::batch::{Batch, batch};
use crate::engine::wait::{Deadline, FLOOR, Patience, pause};
use crate::error::{Error, Lost, Result};
use crate::group::{self, Asking, PAUSES, are_silent, ask, cut_off, deadline, how, missing, part, patience};
use crate::guard::{Guard, Held, enough};
use crate::lock::DistLock;
use crate::owner::Owner;
use crate::runtime::standstill::within;
use crate::topology::Placement;

/// The guards of the locks that are held, by the number of the lock.
type Got = BTreeMap<usize, Guard>;

/// Most locks per script. The server does nothing else while a script runs.
const PART: usize = 250;

/// The locks of one client and placement that scripts have acquired, and the first busy one.
struct Together {
    got: Vec<(usize, Guard)>,
    outcome: Result<Option<usize>>,
}

/// Outcome of requesting all missing locks.
enum Answers {
    All,
    /// The first busy lock.
    Busy(usize),
    /// The wait ended before all replies came. No server is silent.
    RanOut,
}

/// The owner of the current attempt.
struct Asker<'a> {
    locks: &'a [Arc<dyn DistLock>],
    given: Option<Owner>,
    owner: Owner,
    /// Locks that this owner has held before. Their releases may still be in flight, so they are not acquired by a
    /// script of many names.
    past: HashSet<usize>,
}

impl<'a> Asker<'a> {
    fn new(locks: &'a [Arc<dyn DistLock>], given: Option<Owner>) -> Self {
        let owner = given.clone().unwrap_or_else(|| group::owner(locks));
        Self { locks, given, owner, past: HashSet::new() }
    }

    /// Switches to a fresh owner, which has no past locks, unless the user gave the owner.
    fn renew(&mut self) {
        *self = Self::new(self.locks, self.given.take());
    }
}

impl MultiLock {
    pub(super) async fn carry_out(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        self.check()?;
        let deadline = &deadline(&self.locks, &asked);
        let mut asker = Asker::new(&self.locks, asked.owner.clone().or_else(Owner::current));
        let mut got = Got::new();
        let mut together = asker.given.is_none();
        let mut patience = Patience::new(patience(&self.locks));
        let mut last: Option<Error> = None;
        let mut has_seen_busy = false;
        loop {
            let waited_for = got.len();
            let busy = match self.ask_all(&asked, &asker, &mut got, together, deadline).await {
                Ok(Answers::All) => None,
                Ok(Answers::Busy(at)) => Some(at),
                // Dropped guards are released in the background. An earlier failure says more than the end of the
                // wait.
                Ok(Answers::RanOut) => {
                    return match last {
                        Some(error) => Err(error),
                        None if has_seen_busy => Ok(None),
                        None => Err(missing(&self.locks)),
                    };
                }
                Err(error) => {
                    self.give_back(&mut got, 0, &mut asker, deadline).await;
                    if together && error.crosses_slots() {
                        // A cluster behind a proxy: names of several slots need separate commands.
                        together = false;
                        asker.renew();
                        continue;
                    }
                    // A timeout at the end of the wait says less than the failure before it.
                    let cut_off = matches!(error, Error::Timeout { .. }) && deadline.is_over();
                    if has_seen_busy && last.is_none() && self.is_cut_off(&error, deadline).await {
                        return Ok(None);
                    }
                    let error = last.take().filter(|_| cut_off).unwrap_or(error);
                    last = Some(error.clone());
                    let pause = pause(&**deadline.world(), PAUSES, patience.failures());
                    let now = deadline.elapsed();
                    let enough = if error.is_too_late() { patience.came_late(now) } else { patience.failed(now) };
                    if deadline.is_over() || enough || !error.is_retryable() {
                        return Err(error);
                    }
                    tokio::time::sleep(deadline.at_most(pause)).await;
                    asker.renew();
                    continue;
                }
            };
            let Some(busy) = busy else {
                if let (Some(lease), true) = (asked.lease, waited_for > 0) {
                    // The leases of locks that were held during the wait for another one have partly run out.
                    let older = got.values().map(|guard| guard.extending(lease)).collect::<FuturesUnordered<_>>();
                    let extended = enough(older, self.locks.len(), true);
                    let left = deadline.left_to_answer().unwrap_or(Duration::MAX);
                    match within(left, extended).await {
                        Some(Ok(_)) => {}
                        Some(Err(error)) => {
                            tracing::debug!(lock.name = %self.name, %error, "lost a lock while waiting for the others");
                        }
                        None => return Err(missing(&self.locks)),
                    }
                }
                let size = self.locks.len();
                let guards = std::mem::take(&mut got).into_values().collect();
                let held = Held::new(Arc::clone(&self.name), asker.owner.clone(), size, size, guards);
                if held.is_held() {
                    return Ok(Some(Guard::of(held)));
                }
                // A member was lost in between: release the rest, and start over.
                let too_slow = matches!(held.why_lost(), Error::Lost { why: Lost::Expired, .. });
                // A release that takes longer continues in the background.
                let _ = tokio::time::timeout(deadline.at_most(HOLD), held.give_back()).await;
                if too_slow && (patience.came_late(deadline.elapsed()) || deadline.is_over()) {
                    return Err(Error::too_late());
                }
                if deadline.is_over() {
                    return if has_seen_busy { Ok(None) } else { Err(missing(&self.locks)) };
                }
                asker.renew();
                continue;
            };
            patience.answered();
            (last, has_seen_busy) = (None, true);
            if deadline.is_over() {
                // Dropped guards are released in the background.
                return Ok(None);
            }
            self.give_back(&mut got, busy, &mut asker, deadline).await;
            match self.wait_for(busy, &asked, &mut asker, &mut got, deadline).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // Another holder of a member was seen within this wait.
                Err(error) if self.is_cut_off(&error, deadline).await => return Ok(None),
                Err(error) => return Err(error),
            }
            // A lock whose lease ended during the wait for another one is requested again.
            got.retain(|at, guard| {
                let held = guard.is_held();
                if !held {
                    asker.past.insert(*at);
                }
                held
            });
            if got.is_empty() {
                asker.renew();
            }
        }
    }

    /// Returns true if this is the error of an attempt that the end of the wait cut off, and no server is silent.
    async fn is_cut_off(&self, error: &Error, deadline: &Deadline) -> bool {
        let is_timeout = matches!(error, Error::Timeout { .. }) && deadline.is_over();
        is_timeout && !are_silent(&self.locks, 0, deadline).await
    }

    /// Requests all missing locks once, at the same time.
    async fn ask_all(
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
        let (mut busy, mut failed): (Option<usize>, Option<Error>) = (None, None);
        let first = |busy: Option<usize>, at: usize| Some(busy.map_or(at, |busy| busy.min(at)));
        let answers = async {
            loop {
                let outcome = tokio::select! {
                    biased;
                    Some((at, outcome)) = asking.next(), if !asking.is_empty() => match outcome {
                        Ok(Some(guard)) => {
                            got.insert(at, guard);
                            Ok(())
                        }
                        Ok(None) => {
                            busy = first(busy, at);
                            Ok(())
                        }
                        Err(error) => Err(error),
                    },
                    Some(batch) = batches.next(), if !batches.is_empty() => {
                        let Together { got: more, outcome } = batch;
                        got.extend(more);
                        outcome.map(|at| busy = at.map_or(busy, |at| first(busy, at)))
                    }
                    else => break,
                };
                if let Err(error) = outcome
                    && failed.as_ref().is_none_or(Error::is_retryable)
                {
                    failed = Some(error);
                }
            }
        };
        // A command has its own timeout, which may be later than the end of the wait. Attempts in flight at that
        // end are undone.
        let late = match deadline.left_to_answer().filter(|_| !deadline.is_once()) {
            None => {
                answers.await;
                false
            }
            Some(left) => within(left, answers).await.is_none(),
        };
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

    /// Acquires these locks of one client and placement, up to the first busy one. The scripts run one after
    /// another. If they were sent at once, two callers could each get a part of what the other one wants, and the
    /// server would run all of them in one go.
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

    /// Waits for one lock: first while holding the locks before it, later without holding any. Returns false if the
    /// wait has ended.
    async fn wait_for(
        &self,
        at: usize,
        asked: &Acquire,
        asker: &mut Asker<'_>,
        got: &mut Got,
        deadline: &Deadline,
    ) -> Result<bool> {
        // The releases before may have used up the wait.
        while !deadline.is_over() {
            let holds = !got.is_empty();
            let mut how = how(&asker.owner, asked, deadline);
            how.wait =
                if holds { Some(deadline.at_most(HOLD + deadline.world().jitter(HOLD))) } else { deadline.left() };
            let (_, outcome) = ask(&self.locks[at], at, how).await;
            match outcome {
                Ok(Some(guard)) => {
                    got.insert(at, guard);
                    return Ok(true);
                }
                Ok(None) if deadline.is_over() => return Ok(false),
                Ok(None) if holds => {}
                // A foreign `DistLock` has ended its wait early.
                Ok(None) => tokio::time::sleep(deadline.at_most(FLOOR)).await,
                // This wait and its retries were cut short, so the error is not final.
                Err(error) if holds && error.is_retryable() && !deadline.is_over() => {}
                Err(error) => return Err(error),
            }
            self.give_back(got, 0, asker, deadline).await;
            // A fresh owner may acquire all other locks by scripts of many names.
            asker.renew();
        }
        Ok(false)
    }

    /// Releases the locks from this number on, so that others find them free.
    async fn give_back(&self, got: &mut Got, from: usize, asker: &mut Asker<'_>, deadline: &Deadline) {
        let back = got.split_off(&from);
        asker.past.extend(back.keys());
        let all: Vec<_> = back.into_values().map(Guard::unlocking).collect();
        if !all.is_empty() {
            // A release that takes longer continues in the background.
            let _ = tokio::time::timeout(deadline.at_most(HOLD), futures::future::join_all(all)).await;
        }
    }
}

//! One acquire of a multi lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::Instant;

use super::{HOLD, MultiLock};
use crate::engine::acquire::GRACE;
use crate::engine::acquire::batch::{Batch, batch};
use crate::error::{Error, Result, Step};
use crate::group::{Asking, Budget, Held, ask, enough, how, jitter, patience, pause};
use crate::guard::Guard;
use crate::lock::Acquire;
use crate::owner::Owner;

/// What is held of the locks, by their numbers.
type Got = BTreeMap<usize, Guard>;

/// Some of the locks that one script takes, by their numbers.
struct Together {
    all: Vec<usize>,
    outcome: Result<Option<Vec<Guard>>>,
    /// The first that somebody else holds.
    busy: Option<usize>,
}

impl MultiLock {
    pub(super) async fn seek(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        self.check()?;
        let budget = Budget::new(asked.wait);
        let given = asked.owner.clone().or_else(Owner::current);
        let mut owner = given.clone().unwrap_or_else(Owner::of_group);
        let mut got = Got::new();
        let mut together = given.is_none();
        let mut failing: Option<(Instant, u32)> = None;
        let mut last: Option<Error> = None;
        loop {
            let waited_for = got.len();
            let busy = match self.ask_all(&asked, &owner, &mut got, together && waited_for == 0, budget).await {
                Ok(busy) => busy,
                Err(error) => {
                    self.give_back(&mut got, 0, budget).await;
                    // An attempt that the end of the wait cuts off says less than those before it.
                    let cut_off = matches!(error, Error::Timeout { .. }) && budget.is_over();
                    let error = last.take().filter(|_| cut_off).unwrap_or(error);
                    last = Some(error.clone());
                    if together && error.crosses_slots() {
                        // A cluster behind a proxy: names of several slots do not go together.
                        together = false;
                        continue;
                    }
                    let (since, failures) = *failing.get_or_insert_with(|| (Instant::now(), 0));
                    let enough = budget.is_over() || since.elapsed() >= patience(&self.locks);
                    if enough || !error.is_retryable() {
                        return Err(error);
                    }
                    failing = Some((since, failures + 1));
                    tokio::time::sleep(budget.left(pause(failures))).await;
                    owner = given.clone().unwrap_or_else(Owner::of_group);
                    continue;
                }
            };
            let Some(busy) = busy else {
                if let (Some(lease), true) = (asked.lease, waited_for > 0) {
                    // The leases of those that were held while others were waited for have run already.
                    let older = got.values().map(|guard| guard.extending(lease)).collect::<FuturesUnordered<_>>();
                    if let Err(error) = enough(older, self.locks.len(), true).await {
                        tracing::debug!(lock.name = %self.name, %error, "lost a lock while waiting for the others");
                    }
                }
                let size = self.locks.len();
                let guards = std::mem::take(&mut got).into_values().collect();
                let held = Held::new(Arc::clone(&self.name), owner.clone(), size, size, guards);
                if held.is_held() {
                    return Ok(Some(Guard::of(held)));
                }
                // Too slow for the lease. Given back, and once more.
                let _ = held.unlock().await;
                let (since, _) = *failing.get_or_insert_with(|| (Instant::now(), 0));
                if budget.is_over() || since.elapsed() >= patience(&self.locks) {
                    return Err(Error::too_late());
                }
                owner = given.clone().unwrap_or_else(Owner::of_group);
                continue;
            };
            (failing, last) = (None, None);
            if budget.is_over() {
                // Given back in the background.
                return Ok(None);
            }
            self.give_back(&mut got, busy, budget).await;
            if !self.wait_for(busy, &asked, &owner, &mut got, budget).await? {
                return Ok(None);
            }
            // What ended while another one was waited for is asked for anew.
            got.retain(|_, guard| guard.is_held());
            if got.is_empty() {
                // Its release is under way, and a batch must not come between: that is for an owner without a past.
                owner = given.clone().unwrap_or_else(Owner::of_group);
            }
        }
    }

    /// Asks once for all that are missing, at the same time. The first that somebody else holds; None when all are held.
    async fn ask_all(
        &self,
        asked: &Acquire,
        owner: &Owner,
        got: &mut Got,
        together: bool,
        budget: Budget,
    ) -> Result<Option<usize>> {
        let mut missing: Vec<usize> = (0..self.locks.len()).filter(|at| !got.contains_key(at)).collect();
        let mut batches = FuturesUnordered::new();
        if together {
            for all in self.batches(&mut missing) {
                batches.push(self.batch(all, asked, owner));
            }
        }
        let mut asking: Asking =
            missing.into_iter().map(|at| ask(&self.locks[at], at, how(owner, asked).wait(Duration::ZERO))).collect();
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
                        let Together { all, outcome, busy: at } = batch;
                        busy = at.map_or(busy, |at| first(busy, at));
                        outcome.map(|guards| got.extend(all.into_iter().zip(guards.into_iter().flatten())))
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
        // A command ends by itself, but perhaps not within the wait. What is under way then is undone.
        let late = match budget.rest().filter(|_| !budget.is_once()) {
            None => {
                answers.await;
                false
            }
            Some(rest) => tokio::time::timeout(rest.saturating_add(GRACE), answers).await.is_err(),
        };
        match failed {
            Some(error) => Err(error),
            None if late && busy.is_none() => Err(Error::Timeout { step: Step::Command }),
            None => Ok(busy),
        }
    }

    /// The plain locks that may be taken by one script, client by client; taken out of `missing`.
    fn batches(&self, missing: &mut Vec<usize>) -> Vec<Vec<usize>> {
        let mut clients: Vec<(*const (), Vec<usize>)> = Vec::new();
        for at in missing.iter() {
            let Some(part) = self.locks[*at].part().filter(|part| part.protocol.in_batch()) else { continue };
            let engine = Arc::as_ptr(part.client.engine()).cast::<()>();
            match clients.iter_mut().find(|(known, _)| *known == engine) {
                Some((_, all)) => all.push(*at),
                None => clients.push((engine, vec![*at])),
            }
        }
        let batches: Vec<_> = clients.into_iter().map(|(_, all)| all).filter(|all| all.len() > 1).collect();
        let taken: std::collections::HashSet<usize> = batches.iter().flatten().copied().collect();
        missing.retain(|at| !taken.contains(at));
        batches
    }

    /// Takes these locks by one script.
    fn batch(&self, all: Vec<usize>, asked: &Acquire, owner: &Owner) -> futures::future::BoxFuture<'static, Together> {
        let parts: Vec<_> = all.iter().filter_map(|at| self.locks[*at].part()).collect();
        let Some(client) = parts.first().map(|part| part.client.clone()) else {
            return std::future::ready(Together { all: Vec::new(), outcome: Ok(None), busy: None }).boxed();
        };
        let protocols = parts.iter().map(|part| Arc::clone(part.protocol)).collect();
        let asking = batch(client.engine(), protocols, owner.clone(), asked.lease);
        async move {
            match asking.await {
                Ok(Batch::Held(grants)) => {
                    let guards = grants.into_iter().map(|grant| Guard::part(grant, client.handle())).collect();
                    Together { all, outcome: Ok(Some(guards)), busy: None }
                }
                Ok(Batch::Busy(at)) => {
                    let busy = all.get(at).copied();
                    Together { all, outcome: Ok(None), busy }
                }
                Err(error) => Together { all, outcome: Err(error), busy: None },
            }
        }
        .boxed()
    }

    /// Waits for one lock, holding those before it for a while, and then none. False when the wait is over.
    async fn wait_for(&self, at: usize, asked: &Acquire, owner: &Owner, got: &mut Got, budget: Budget) -> Result<bool> {
        loop {
            let holds = !got.is_empty();
            let mut how = how(owner, asked);
            how.wait = if holds { Some(budget.left(HOLD + jitter(HOLD))) } else { budget.rest() };
            let (_, outcome) = ask(&self.locks[at], at, how).await;
            match outcome {
                Ok(Some(guard)) => {
                    got.insert(at, guard);
                    return Ok(true);
                }
                Ok(None) if budget.is_over() => return Ok(false),
                Ok(None) if holds => self.give_back(got, 0, budget).await,
                Ok(None) => return Ok(false),
                // That wait was cut short, and so was its patience.
                Err(error) if holds && error.is_retryable() && !budget.is_over() => {
                    self.give_back(got, 0, budget).await
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives back those from this number on, so that whoever comes next finds them free.
    async fn give_back(&self, got: &mut Got, from: usize, budget: Budget) {
        let all: Vec<_> = got.split_off(&from).into_values().map(Guard::unlocking).collect();
        if !all.is_empty() {
            // What is not done by then goes on in the background.
            let _ = tokio::time::timeout(budget.left(HOLD), futures::future::join_all(all)).await;
        }
    }
}

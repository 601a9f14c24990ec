//! One acquire of a RedLock: rounds over all servers, and the wait between them.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use super::{RedLock, ended, patience_of};
use crate::error::{Error, Result, Step};
use crate::group::{Asking, Budget, GRACE, Held, ask, how, jitter};
use crate::guard::Guard;
use crate::lock::{Acquire, DistLock};
use crate::owner::Owner;

/// How often one who waits at a server looks whether the others are free.
const LOOK: Duration = Duration::from_secs(1);
/// For how long at least silent servers are waited for where the votes are split.
const SILENCE: Duration = Duration::from_millis(10);
/// The first pause after servers that were away, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The longest first back-off after a vote that was split, and the longest of all.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(250));

/// What is asked for.
struct Wish {
    /// None: a new one every round.
    owner: Option<Owner>,
    asked: Acquire,
    budget: Budget,
}

/// What a round came to.
struct Round {
    granted: Vec<(usize, Guard)>,
    busy: Vec<usize>,
    failed: usize,
    /// Why one of them failed.
    why: Option<Error>,
    /// What was asked and not answered.
    asking: Asking,
}

/// What is under way from earlier rounds: servers that have not answered yet, and are not asked again before they have.
#[derive(Default)]
struct Late {
    asking: Asking,
    away: HashSet<usize>,
}

impl Late {
    fn take(&mut self, asked: &HashSet<usize>, asking: Asking) {
        self.away.extend(asked);
        self.asking.extend(asking);
    }

    fn sweep(&mut self) {
        for at in ended(&mut self.asking) {
            self.away.remove(&at);
        }
    }

    /// Sees to what comes in late while something else is waited for.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
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
    pub(super) async fn seek(&self, asked: Acquire) -> Result<Option<Guard>> {
        asked.check()?;
        self.check()?;
        let budget = Budget::new(asked.wait);
        let owner = asked.owner.clone().or_else(Owner::current);
        let wish = Wish { owner, asked, budget };
        let needed = self.quorum();
        let most_away = self.nodes.len() - needed;
        let mut late = Late::default();
        let mut first = None;
        let mut failing: Option<Instant> = None;
        let (mut failures, mut splits) = (0_u32, 0_u32);
        let mut owner = wish.owner.clone().unwrap_or_else(Owner::of_group);
        loop {
            let round = self.round(&wish, &owner, first.take(), &mut late).await?;
            if round.granted.iter().filter(|(_, guard)| guard.is_held()).count() >= needed {
                return Ok(Some(self.held(owner, round, late)));
            }
            let Round { granted, busy, failed, why, .. } = round;
            let votes = granted.len();
            let away = (failed > most_away).then(|| Error::NoQuorum {
                name: Arc::clone(self.name_shared()),
                granted: votes,
                needed,
                why: Arc::new(why.unwrap_or(Error::Timeout { step: Step::Command })),
            });
            if budget.is_once() || budget.is_over() {
                // Given back in the background.
                return away.map_or(Ok(None), Err);
            }
            self.give_back(granted, &mut late, budget).await;
            if let Some(error) = away {
                let since = *failing.get_or_insert_with(Instant::now);
                if !error.is_retryable() || since.elapsed() >= patience_of(self) {
                    return Err(error);
                }
                let pause = PAUSE.0.saturating_mul(1 << failures.min(8)).min(PAUSE.1);
                failures += 1;
                late.beside(tokio::time::sleep(budget.left(pause / 2 + jitter(pause / 2)))).await;
                if budget.is_over() {
                    return Err(error);
                }
            } else {
                (failing, failures) = (None, 0);
                if busy.len() <= most_away {
                    // Nobody has most of them: others ask at the same time, and so that one of them gets through they must
                    // not all come back at once.
                    let span = BACKOFF.0.saturating_mul(1 << splits.min(8)).min(BACKOFF.1);
                    splits += 1;
                    late.beside(tokio::time::sleep(budget.left(jitter(span)))).await;
                }
                owner = wish.owner.clone().unwrap_or_else(Owner::of_group);
                if let Some(at) = busy.iter().min() {
                    match self.wait_at(*at, &wish, &owner, &mut late).await? {
                        Some(guard) => first = Some((*at, guard)),
                        None if budget.is_over() => return Ok(None),
                        None => {}
                    }
                }
                continue;
            }
            owner = wish.owner.clone().unwrap_or_else(Owner::of_group);
        }
    }

    /// Asks all servers at once, but for the one that has granted it already, and those that have not answered yet.
    async fn round(&self, wish: &Wish, owner: &Owner, first: Option<(usize, Guard)>, late: &mut Late) -> Result<Round> {
        late.sweep();
        let needed = self.quorum();
        let mut round =
            Round { granted: Vec::new(), busy: Vec::new(), failed: 0, why: None, asking: FuturesUnordered::new() };
        let mut open = HashSet::new();
        for (at, lock) in self.nodes.iter().enumerate() {
            if first.as_ref().is_some_and(|(first, _)| *first == at) {
                continue;
            }
            if late.away.contains(&at) {
                round.failed += 1;
                continue;
            }
            let how = how(&owner.at(at), &wish.asked).wait(Duration::ZERO);
            open.insert(at);
            round.asking.push(ask(lock, at, how));
        }
        round.granted.extend(first);
        let within = if wish.budget.is_once() {
            self.node_timeout
        } else {
            (wish.budget.left(self.node_timeout) + GRACE).min(self.node_timeout)
        };
        let mut timer = std::pin::pin!(tokio::time::sleep(within));
        let (began, mut heard) = (Instant::now(), Duration::ZERO);
        loop {
            let held = round.granted.iter().filter(|(_, guard)| guard.is_held()).count();
            // In vain: but is that because others hold it, or because too many are away?
            let (unheard, most_away) = (round.asking.len(), self.nodes.len() - needed);
            let known = round.failed > most_away || round.busy.len() > most_away || round.failed + unheard <= most_away;
            if held >= needed || (held + unheard < needed && known) {
                break;
            }
            // Others ask too, and the votes are split: what is held meanwhile keeps all out, so silent servers are not waited
            // for much longer than the others took. Unless so many are silent that they decide what is told.
            let split = !round.busy.is_empty() && round.failed + unheard <= most_away;
            let soon = tokio::time::sleep((heard * 3).max(SILENCE).saturating_sub(began.elapsed() - heard));
            tokio::select! {
                biased;
                Some((at, outcome)) = round.asking.next() => {
                    open.remove(&at);
                    heard = began.elapsed();
                    match outcome {
                        Ok(Some(guard)) => round.granted.push((at, guard)),
                        Ok(None) => round.busy.push(at),
                        Err(error @ (Error::WouldDeadlock { .. } | Error::Config { .. })) => return Err(error),
                        Err(error) => {
                            tracing::debug!(lock.name = %self.name(), node = at, %error, "a server did not grant it");
                            round.failed += 1;
                            round.why = Some(error);
                        }
                    }
                }
                Some((at, outcome)) = late.asking.next(), if !late.asking.is_empty() => {
                    drop(outcome);
                    late.away.remove(&at);
                }
                () = soon, if split => break,
                () = &mut timer => {
                    round.failed += round.asking.len();
                    break;
                }
            }
        }
        if round.granted.iter().filter(|(_, guard)| guard.is_held()).count() < needed {
            // A grant whose lease was over before the majority was there counts for nothing.
            let over = round.granted.iter().filter(|(_, guard)| !guard.is_held()).count();
            if over > 0 {
                round.failed += over;
                let message = "the replies took longer than the lease".into();
                round.why = Some(Error::Connection { message, outcome_unknown: false, source: None });
            }
            late.take(&open, std::mem::take(&mut round.asking));
        }
        Ok(round)
    }

    /// Most have granted it. Those that have not answered yet are taken in when they do.
    fn held(&self, owner: Owner, round: Round, late: Late) -> Guard {
        let guards = round.granted.into_iter().map(|(_, guard)| guard).collect();
        let held = Held::new(Arc::clone(self.name_shared()), owner, self.quorum(), self.nodes.len(), guards);
        let (mut asking, mut late) = (round.asking, late.asking);
        if !asking.is_empty() || !late.is_empty() {
            let weak = Arc::downgrade(&held);
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        biased;
                        Some((_, outcome)) = asking.next(), if !asking.is_empty() => join(&weak, outcome),
                        // Of an earlier round: dropped, it is given back.
                        Some(_) = late.next(), if !late.is_empty() => {}
                        else => return,
                    }
                }
            });
        }
        Guard::of(held)
    }

    /// Waits for the lock at one server, until it is had there, or most of the others are found to be free.
    async fn wait_at(&self, at: usize, wish: &Wish, owner: &Owner, late: &mut Late) -> Result<Option<Guard>> {
        let mut how = how(&owner.at(at), &wish.asked);
        how.wait = wish.budget.rest();
        let mut waiting = std::pin::pin!(ask(&self.nodes[at], at, how));
        loop {
            let look = tokio::time::sleep(LOOK / 2 + jitter(LOOK));
            let outcome = late.beside(async {
                tokio::select! {
                    biased;
                    (_, outcome) = &mut waiting => Some(outcome),
                    () = look => None,
                }
            });
            match outcome.await {
                Some(Ok(guard)) => return Ok(guard),
                Some(Err(error @ (Error::WouldDeadlock { .. } | Error::Config { .. }))) => {
                    return Err(error);
                }
                // The next round tells whether there are enough others.
                Some(Err(_)) => return Ok(None),
                None => {}
            }
            let look = self.looks_free(at);
            let (free, outcome) = late
                .beside(async {
                    tokio::select! {
                        biased;
                        (_, outcome) = &mut waiting => (false, Some(outcome)),
                        free = look => (free, None),
                    }
                })
                .await;
            match outcome {
                Some(outcome) => return Ok(outcome.unwrap_or(None)),
                // Dropped, the place at this one is left.
                None if free => return Ok(None),
                None => {}
            }
        }
    }

    /// True when the others look as if most could be had without this one, or when most are away.
    async fn looks_free(&self, at: usize) -> bool {
        let states: FuturesUnordered<_> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(node, lock)| async move { (node, tokio::time::timeout(self.node_timeout, lock.is_locked()).await) })
            .collect();
        let (mut free, mut away) = (0, 0);
        let needed = self.quorum();
        let mut states = states;
        while let Some((node, answer)) = states.next().await {
            match answer {
                Ok(Ok(false)) if node != at => free += 1,
                Ok(Ok(_)) => {}
                _ => away += 1,
            }
        }
        free >= needed || away > self.nodes.len() - needed
    }

    /// Gives back what was granted in vain, so that the next round does not find it in its way.
    async fn give_back(&self, granted: Vec<(usize, Guard)>, late: &mut Late, budget: Budget) {
        if granted.is_empty() {
            return;
        }
        let all: Vec<_> = granted.into_iter().map(|(_, guard)| guard.unlocking()).collect();
        let within = budget.left(self.node_timeout);
        // What is not done by then goes on in the background.
        let _ = late.beside(tokio::time::timeout(within, futures::future::join_all(all))).await;
    }

    fn name_shared(&self) -> &Arc<str> {
        &self.name
    }
}

fn join(held: &Weak<Held>, outcome: Result<Option<Guard>>) {
    // Without anybody to take it, it is dropped, which gives it back.
    if let (Ok(Some(guard)), Some(held)) = (outcome, held.upgrade()) {
        held.join(guard);
    }
}

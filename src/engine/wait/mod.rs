//! The one way to wait.
//!
//! Whoever waits for something in Redis that others have, a lock or its turn in a queue there, does it by this loop: the local
//! turn, an attempt, the subscription, another attempt because the news may have slipped between, then sleep until a message,
//! the end of what is waited for, the end of the wait, or the longest pause. What is waited for is [`Awaited`], and nothing
//! more: it says how to ask, and what came without being asked for.
//!
//! Dropping the wait at any await is safe: the seat in the local queue passes its turn on, and an attempt undoes what nobody
//! came to use.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

mod deadline;
mod pace;
mod patience;

pub(crate) use deadline::{Deadline, GRACE};
use pace::Pace;
pub(crate) use pace::{FLOOR, grown, pause};
pub(crate) use patience::Patience;

use super::Engine;
use super::registry::{Parked, Until, Waiter};
use crate::error::Result;
use crate::world::Moment;

/// A sleeping waiter asks once more this long before the end of its wait.
const FRESH: Duration = Duration::from_millis(100);

/// First and longest pause of a waiter without a subscription before it subscribes again.
const RESUBSCRIBE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What asking brought.
pub(crate) enum Asked<T> {
    /// What was waited for.
    Done(T),
    /// Somebody else has it.
    Busy(Pause),
    /// This waiter cannot get it any more: it has to begin anew, as another.
    Displaced,
}

/// How to wait until the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// For how long at the most.
    pub(crate) most: Duration,
    pub(crate) news: News,
}

/// What may cut a pause short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A message: whoever gives it back announces that.
    Announced,
    /// Nothing: nobody announces it.
    Never,
    /// The last attempt failed: the word that a connection is back.
    Connection,
    /// The last attempt was granted, and is undone: no message. The one that tells of the undoing would have it asked for again at once.
    Undone,
}

impl News {
    /// True behind an attempt that failed.
    pub(crate) const fn is_of_failure(self) -> bool {
        matches!(self, Self::Connection | Self::Undone)
    }
}

/// What asking beside somebody who has the turn brought.
pub(crate) enum Beside<T> {
    Done(T),
    /// The local queue has changed by it: to be looked at anew.
    Again,
    /// To wait for the turn, and to ask beside it anew after this.
    Wait(Duration),
}

/// What somebody waits for.
pub(crate) trait Awaited {
    type Output;

    /// Before the turn: asks where that makes sense without it.
    fn ask_beside(&mut self, waiter: &mut Waiter) -> impl Future<Output = Result<Beside<Self::Output>>> + Send;

    /// What was put at the seat without an attempt: a lock that was handed over or passed on. Forgets earlier wake-ups, for what comes next answers them;
    /// unless it has stopped looking: then they are for the next one.
    fn received(&mut self, waiter: &Waiter) -> Option<Self::Output>;

    /// For how long there is no need to ask. `woken`: something has come since the last attempt; `steady`: messages have
    /// reached this seat since before the last pause.
    fn pause_before_asking(&mut self, waiter: &Waiter, woken: bool, steady: bool) -> Option<Pause>;

    /// Asks the server. `listening`: messages reach this seat.
    fn ask(&mut self, waiter: &mut Waiter, listening: bool)
    -> impl Future<Output = Result<Asked<Self::Output>>> + Send;
}

/// What waiting came to.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    Done(T),
    /// The wait ran out.
    Over,
    /// The wait ran out, and the server is silent: nobody knows who has what is waited for.
    Silent,
    /// To begin anew.
    Displaced,
}

/// Waits, first for the turn among those of this process, then for what is awaited.
///
/// *Errors*: those of the attempts; `Closed` as soon as the client closes.
pub(crate) async fn wait<A: Awaited>(
    engine: &Arc<Engine>,
    deadline: &Deadline,
    waiter: &mut Waiter,
    awaited: &mut A,
) -> Result<Waited<A::Output>> {
    while !waiter.has_turn() {
        engine.check_open()?;
        let most = match awaited.ask_beside(waiter).await? {
            Beside::Done(output) => return Ok(Waited::Done(output)),
            Beside::Again => continue,
            Beside::Wait(most) => most,
        };
        let parked = waiter.park(deadline.at_most(most), Until::Turn).await;
        if parked == Parked::TimedOut && deadline.is_over() {
            return Ok(over(engine, deadline, waiter, awaited).await);
        }
    }
    contend(engine, deadline, waiter, awaited).await
}

/// Speaks to Redis, as the one of this process whose turn it is.
async fn contend<A: Awaited>(
    engine: &Arc<Engine>,
    deadline: &Deadline,
    waiter: &mut Waiter,
    awaited: &mut A,
) -> Result<Waited<A::Output>> {
    let mut pace = Pace::new(deadline.began());
    let poll_cap = engine.options.poll_cap;
    // The contender before this one may have left without answering a wake-up.
    let mut woken = waiter.is_woken();
    let mut was_listening = false;
    let mut has_looked_last = false;
    // Failed subscribes in a row.
    let mut failures = 0;
    loop {
        // Half of what is left is for asking.
        waiter.give_way(deadline.left().map_or(Duration::MAX, |left| left / 2)).await;
        // What came since it was parked is forgotten by what follows, and answered by this attempt.
        woken |= waiter.is_woken();
        if let Some(output) = awaited.received(waiter) {
            return Ok(Waited::Done(output));
        }
        engine.check_open()?;
        let listening = waiter.is_listening();
        let mut pause = match awaited.pause_before_asking(waiter, woken, was_listening && listening) {
            Some(pause) => pause,
            None => {
                pace.spend(engine.now());
                match awaited.ask(waiter, listening).await? {
                    Asked::Done(output) => return Ok(Waited::Done(output)),
                    Asked::Displaced => return Ok(Waited::Displaced),
                    Asked::Busy(pause) => pause,
                }
            }
        };
        was_listening = listening;
        waiter.sit();
        if pause.news == News::Announced && !listening {
            // Until messages come in it polls, at the end of what is waited for at the latest.
            let due = engine.now() + pause.most.min(poll_cap / 10);
            subscribe(engine, deadline, waiter, due, &mut failures).await;
            if waiter.is_listening() && !deadline.is_over() {
                // The news may have slipped in between.
                failures = 0;
                continue;
            }
            pause.most = due.since(engine.now());
        }
        woken = sleep(engine, deadline, waiter, pause, &mut has_looked_last).await;
        if woken && !pace.allows(engine.now()) {
            if let Some(output) = awaited.received(waiter) {
                return Ok(Waited::Done(output));
            }
            waiter.park(deadline.at_most(FLOOR + engine.jitter(FLOOR)), Until::Handed).await;
        }
        if deadline.is_over() {
            return Ok(over(engine, deadline, waiter, awaited).await);
        }
    }
}

/// Sleeps until there is news or the pause is over. True if the waiter should ask at once: there is news, or the wait is about to end and
/// the message of a release may have been lost.
async fn sleep(
    engine: &Engine,
    deadline: &Deadline,
    waiter: &Waiter,
    pause: Pause,
    has_looked_last: &mut bool,
) -> bool {
    let until = if pause.news == News::Undone { Until::Handed } else { Until::Message };
    let may_miss = pause.news == News::Announced && waiter.held_here(engine.now()).is_none() && !*has_looked_last;
    let last = deadline.left().and_then(|left| left.checked_sub(FRESH)).filter(|last| may_miss && *last <= pause.most);
    let parked = waiter.park(deadline.at_most(last.unwrap_or(pause.most)), until).await;
    *has_looked_last |= last.is_some() && parked == Parked::TimedOut;
    parked == Parked::Woken || last.is_some()
}

/// Subscribes until that succeeds, news arrives or an attempt is `due`. Backs off, because a login without the permission is refused at
/// once each time.
async fn subscribe(engine: &Engine, deadline: &Deadline, waiter: &Waiter, due: Moment, failures: &mut u32) {
    loop {
        waiter.listen(deadline.at_most(due.since(engine.now()))).await;
        let left = due.since(engine.now());
        let rest = pause(&**engine.topology.world(), RESUBSCRIBE, *failures);
        *failures = failures.saturating_add(1);
        if waiter.is_listening() || waiter.is_woken() || rest >= left || deadline.is_over() {
            return;
        }
        if waiter.park(deadline.at_most(rest), Until::Message).await == Parked::Woken {
            return;
        }
    }
}

/// The end of the wait. Success beats it, and the lock is reported as busy only where that is known.
async fn over<A: Awaited>(engine: &Engine, deadline: &Deadline, waiter: &Waiter, awaited: &mut A) -> Waited<A::Output> {
    // This waiter answers no wake-up any more: the next one has to.
    waiter.stops_looking();
    if let Some(output) = awaited.received(waiter) {
        return Waited::Done(output);
    }
    // A hold of this process that may be handed over is known without asking.
    let is_unknown = |at| waiter.held_here(engine.now()).is_none() && engine.topology.is_silent(waiter.lock_name(), at);
    let silent = deadline.finds_silent(deadline.reading(), is_unknown).await;
    match awaited.received(waiter) {
        Some(output) => Waited::Done(output),
        None if silent => Waited::Silent,
        None => Waited::Over,
    }
}

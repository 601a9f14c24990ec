//! The loop in which an acquire waits. [`Awaited`] defines what the loop waits for and how to ask for it.
//!
//! 1. Wait for the *turn* among the tasks of this process (`registry/mod.rs`). [`Awaited::ask_beside`] may ask without
//!    the turn.
//! 2. Yield to other processes if this process held the lock last.
//! 3. Take a lock that was handed over or passed on.
//! 4. Otherwise ask the server, unless the last answer is still valid.
//! 5. If the lock is busy, subscribe. Then ask again, because the release may have happened before the subscription.
//!    Without a subscription, poll ten times as often.
//! 6. Sleep until a message, the end of the lease, the end of the wait, or `poll_cap`. An attempt shortly before the
//!    end of the wait covers a lost message. Then continue at 2, but no faster than [`Pace`] allows.
//!
//! Dropping the wait at any await is safe: the waiter passes on its turn, and an attempt whose result nobody takes is
//! undone.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

mod deadline;
mod look;
mod pace;
mod patience;

pub(crate) use deadline::{Deadline, GRACE};
pub(crate) use look::Looking;
use pace::Pace;
pub(crate) use pace::{FLOOR, grown, pause};
pub(crate) use patience::Patience;

use super::Engine;
use super::registry::{Parked, Until, Waiter};
use crate::error::Result;
use crate::world::Moment;

/// A sleeping waiter asks once more this long before the end of its wait.
const FRESH: Duration = Duration::from_millis(100);

/// First and longest pause before a waiter without a subscription subscribes again.
const RESUBSCRIBE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

pub(crate) enum Asked<T> {
    Done(T),
    Busy(Pause),
    /// This waiter has lost its queue entry, and must start again as a new waiter.
    Displaced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) most: Duration,
    pub(crate) news: News,
}

/// The event that may end a pause early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A message, because the holder announces its release.
    Announced,
    /// Nothing, because no release is announced.
    Never,
    /// A restored connection, because the last attempt failed.
    Connection,
    /// Only a hand-over, because the last grant is being undone. The undo sends a message, which would cause the next
    /// attempt at once.
    Undone,
}

impl News {
    pub(crate) const fn is_of_failure(self) -> bool {
        matches!(self, Self::Connection | Self::Undone)
    }
}

/// Result of asking while another task has the turn.
pub(crate) enum Beside<T> {
    Done(T),
    /// The local queue has changed. Check it again.
    Again,
    /// Wait for the turn. After this time, ask again without the turn.
    Wait(Duration),
}

pub(crate) trait Awaited {
    type Output;

    /// Called while this waiter does not have the turn. May ask the server all the same.
    fn ask_beside(&mut self, waiter: &mut Waiter) -> impl Future<Output = Result<Beside<Self::Output>>> + Send;

    /// Takes a lock that this waiter got without an attempt: handed over or passed on. Clears the wake-up flag, because
    /// the loop asks next. After [`Waiter::stops_looking`] the flag stays set.
    fn received(&mut self, waiter: &Waiter) -> Option<Self::Output>;

    /// Returns a pause if there is no need to ask now. `woken`: a wake-up has arrived since the last attempt. `steady`:
    /// messages reached this process before the last pause, and do so now.
    fn pause_before_asking(&mut self, waiter: &Waiter, woken: bool, steady: bool) -> Option<Pause>;

    /// Asks the server. `listening`: messages reach this process.
    fn ask(&mut self, waiter: &mut Waiter, listening: bool)
    -> impl Future<Output = Result<Asked<Self::Output>>> + Send;
}

#[derive(Debug)]
pub(crate) enum Waited<T> {
    Done(T),
    Over,
    /// The wait ran out and the server is silent, so the holder is unknown.
    Silent,
    Displaced,
}

/// Runs the loop, from the wait for the turn to the outcome.
///
/// # Errors
///
/// The errors of the attempts, and `Closed` as soon as the client closes.
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

async fn contend<A: Awaited>(
    engine: &Arc<Engine>,
    deadline: &Deadline,
    waiter: &mut Waiter,
    awaited: &mut A,
) -> Result<Waited<A::Output>> {
    let mut pace = Pace::new(deadline.began());
    let poll_cap = engine.options.poll_cap;
    // The previous contender may have left a wake-up after which it made no attempt.
    let mut woken = waiter.is_woken();
    let mut was_listening = false;
    let mut has_looked_last = false;
    // Failed subscribes in a row.
    let mut failures = 0;
    loop {
        // Yields for at most half of the remaining time, to leave time for attempts.
        waiter.give_way(deadline.left().map_or(Duration::MAX, |left| left / 2)).await;
        // Read before `received`, which clears the wake-up flag.
        woken |= waiter.is_woken();
        if let Some(output) = awaited.received(waiter) {
            return Ok(Waited::Done(output));
        }
        engine.check_open()?;
        let listening = waiter.is_listening();
        let mut pause = match awaited.pause_before_asking(waiter, woken, was_listening && listening) {
            Some(pause) => pause,
            None => match attempt(engine, deadline, waiter, awaited, woken, listening, &mut pace).await? {
                Asked::Done(output) => return Ok(Waited::Done(output)),
                Asked::Displaced => return Ok(Waited::Displaced),
                Asked::Busy(pause) => pause,
            },
        };
        was_listening = listening;
        waiter.sit();
        if pause.news == News::Announced && !listening {
            // Without messages, the next attempt is made at this time at the latest.
            let due = engine.now() + pause.most.min(poll_cap / 10);
            subscribe(engine, deadline, waiter, due, &mut failures).await;
            if waiter.is_listening() && !deadline.is_over() {
                // Ask again (step 5).
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

/// Makes one attempt, after a short pause if Java clients compete.
async fn attempt<A: Awaited>(
    engine: &Engine,
    deadline: &Deadline,
    waiter: &mut Waiter,
    awaited: &mut A,
    woken: bool,
    listening: bool,
    pace: &mut Pace,
) -> Result<Asked<A::Output>> {
    if let Some(window) = waiter.window(woken) {
        waiter.park(deadline.at_most(engine.jitter(window)), Until::Handed).await;
        if let Some(output) = awaited.received(waiter) {
            return Ok(Asked::Done(output));
        }
    }
    pace.spend(engine.now());
    awaited.ask(waiter, listening).await
}

/// Sleeps until there is news or the pause is over. True if the waiter should ask at once: there is news, or the wait
/// is about to end and the message of a release may have been lost.
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

/// Tries to subscribe until a subscribe succeeds, news arrives or an attempt is `due`. Backs off, because a login
/// without the permission is refused immediately each time.
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

/// Ends the wait. A lock that has arrived by now still counts. A silent server means that the holder is unknown.
async fn over<A: Awaited>(engine: &Engine, deadline: &Deadline, waiter: &Waiter, awaited: &mut A) -> Waited<A::Output> {
    waiter.stops_looking();
    if let Some(output) = awaited.received(waiter) {
        return Waited::Done(output);
    }
    // If this process has a hold that it may hand over, the holder is known without asking.
    let is_unknown = |at| waiter.held_here(engine.now()).is_none() && engine.topology.is_silent(waiter.lock_name(), at);
    let silent = deadline.finds_silent(deadline.reading(), is_unknown).await;
    match awaited.received(waiter) {
        Some(output) => Waited::Done(output),
        None if silent => Waited::Silent,
        None => Waited::Over,
    }
}

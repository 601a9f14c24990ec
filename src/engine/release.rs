//! The release of a guard: from the book (`engine/ledger.rs`) to the server and back.
//!
//! [`unlock`] and [`in_background`] take the same steps, in [`GuardRelease`]:
//!
//! 1. `leave_book`: the guard leaves the book. If another task of this process takes over the hold, nothing is sent.
//! 2. `run`: after the owner's earlier commands, the release is sent, and retried until it is answered ([`send`]).
//! 3. `book_answer` or `book_failure`: the book and the table are updated, and waiters are notified ([`aftermath`]).
//!
//! Other releases: by an owner without a guard ([`by_owner`]), by force ([`force`]), and the clean-up of commands in
//! doubt ([`doubt`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tracing::Instrument as _;

mod aftermath;
mod book;
mod by_owner;
mod doubt;
mod force;
mod send;

pub(crate) use by_owner::{by_owner, give_up};
use doubt::look_again;
pub(crate) use doubt::{release_ended, undo, waits_in_redis};
pub(crate) use force::force;
pub(crate) use send::in_time;
use send::send;

use super::Engine;
use super::clock::harmless_from;
use super::hold::{Grant, Hold, drift_margin};
use super::ledger::{End, Entry as _};
use super::protocol::{HoldId, LeaseLeft, Release};
use crate::error::{Error, Result, Step};
use crate::runtime::reaper::{Finished, Job};
use crate::runtime::standstill::within;
use crate::state::Released;
use crate::world::{Moment, nanos};

/// Releases a guard's share while no caller waits. Never blocks, and needs no current runtime.
pub(crate) fn in_background(engine: &Arc<Engine>, hold: &Arc<Hold>, level: u32, since: Moment) {
    let _under_way = engine.reaper.busy();
    if let Some(release) = GuardRelease::leave_book(engine, hold, level, since) {
        release.finish();
    }
}

/// Releases a guard's share and returns the outcome: at once if the guard is lost, otherwise at the end of its lease at
/// the latest. An unfinished release continues in the background.
pub(crate) async fn unlock(mut grant: Grant) -> Result<Released> {
    if !grant.take() {
        return Err(Error::Closed);
    }
    let (engine, hold) = (Arc::clone(&grant.engine), Arc::clone(&grant.hold));
    // A shutdown waits for the guard, and from here on for its release.
    let mut under_way = Some(engine.reaper.busy());
    let Some(release) = GuardRelease::leave_book(&engine, &hold, grant.level, grant.since) else {
        return Ok(Released::Free);
    };
    let (name, flavour) = (&hold.name().as_written, hold.protocol.flavour());
    if !release.was_held {
        let lost = hold.lost(release.end.unwrap_or(End::Expired));
        if release.end.is_none() {
            // The server may still have the hold.
            release.finish();
        }
        return Err(lost);
    }
    let left = release.until.since(engine.now());
    let span = tracing::debug_span!("unlock", lock.name = %name, lock.flavour = flavour);
    let work = Finished::new(&engine.reaper, release.run(Persistence::ConfiguredRetries).instrument(span));
    let in_time = async { within(left, work).await.unwrap_or_else(|| Err(pending(&hold, unanswered(&engine, &hold)))) };
    // The timer runs on the client's runtime, not on the caller's.
    let (mut in_time, mut roaming) = (std::pin::pin!(in_time), engine.home().roaming());
    std::future::poll_fn(|context| {
        let polled = roaming.poll(in_time.as_mut(), context);
        // The first poll has registered the release as in flight, so `under_way` is not needed any more.
        under_way = None;
        polled
    })
    .await
}

fn pending(hold: &Hold, why: Error) -> Error {
    Error::ReleasePending { name: Arc::clone(&hold.name().as_written), why: Arc::new(why) }
}

fn unanswered(engine: &Engine, hold: &Hold) -> Error {
    match engine.topology.missing(hold.name()) {
        // Replicas may be missing, but a release does not wait for them.
        Error::Replicas { .. } => Error::timeout(Step::Command).about(&hold.name().as_written),
        error => error,
    }
}

/// The latest of `over` and the lease ends of the holds in [`Plan::owed`].
fn latest(over: Moment, owed: &[(u64, u64)]) -> Moment {
    owed.iter().fold(over, |latest, (_, over)| latest.max(Moment::from_nanos(*over)))
}

/// The time limit for retries of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persistence {
    /// Retries as configured, then reports the error and continues in the background.
    ConfiguredRetries,
    UntilLeaseEnds,
}

/// The release of one guard, with the state of its hold when the guard left the book.
#[derive(Clone)]
struct GuardRelease {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    /// False if the lease had ended by the local clock.
    was_held: bool,
    /// End of the guard's lease by the local clock.
    until: Moment,
    /// Latest end of the lease on the server, as known when the guard left the book.
    over: Moment,
    /// Why the hold had already ended for the guard, if it had.
    end: Option<End>,
    /// When the guard acquired the hold.
    since: Moment,
    number: u64,
    /// See [`Book::tenure`](super::ledger::Book::tenure).
    tenure: u32,
}

/// Content of a release command.
struct Plan {
    id: HoldId,
    lease_left: LeaseLeft,
    /// Until then, an earlier command may still arrive and shorten the lease.
    cut_until: u64,
    /// Holds whose releases had failed, each with the latest end of its lease on the server. This release includes
    /// them.
    owed: Vec<(u64, u64)>,
    /// Latest end of the guard's own lease on the server.
    over: Moment,
}

struct Answered {
    release: Release,
    sent: Moment,
    /// True if this release restarted the lease of the remaining holds.
    rearms: bool,
    /// True if no copy of the acquire or the release can arrive any more.
    clean: bool,
}

impl GuardRelease {
    /// Removes a guard from the book, so that the guard causes no more renewals. Returns None if the hold was handed
    /// over inside this process, so no command is needed.
    fn leave_book(engine: &Arc<Engine>, hold: &Arc<Hold>, level: u32, since: Moment) -> Option<Self> {
        let now = engine.now();
        let (release, is_last_watched) = {
            let mut book = hold.book();
            let until = Moment::from_nanos(book.until(level).unwrap_or_default());
            let was_held = now < until;
            let lease = book.lease(level);
            let watched = lease.is_none();
            let margin = drift_margin(Duration::from_nanos(book.lease_left(nanos(engine.options.watchdog))));
            let in_server = Moment::from_nanos(book.until_in_server());
            // If the watchdog renews the lease, a renewal in flight may still extend it.
            let renewed = harmless_from(now, engine.options.command_timeout) + engine.options.watchdog + book.delay();
            let over = if watched { in_server.max(renewed) } else { in_server } + margin;
            let end = book.end_of(level);
            let number = book.close(level).unwrap_or_default();
            let (engine, hold, tenure) = (Arc::clone(engine), Arc::clone(hold), book.tenure());
            let release = Self { engine, hold, was_held, until, over, end, since, number, tenure };
            (release, watched && book.is_idle() && book.count() == 1)
        };
        engine.guard_left();
        if !release.was_held && release.end.is_none() {
            // Nothing has reported before that the lease has ended.
            engine.report_loss(hold, End::Expired, 1);
        }
        super::metrics::held(hold.protocol.flavour(), now.since(since));
        let handed_over = engine.registry.hand_over(hold, now, || {
            (is_last_watched && engine.check_open().is_ok()).then(|| release.reopen(now)).flatten()
        });
        (!handed_over).then_some(release)
    }

    /// Creates the next waiter's grant in place of the released guard. None if the hold must not be handed over. Called
    /// under the registry's lock.
    fn reopen(&self, now: Moment) -> Option<Grant> {
        let Self { engine, hold, .. } = self;
        // The next holder must be the only one that can act as this owner.
        if !self.was_held || hold.owner.is_known() {
            return None;
        }
        // There is no hand-over while a command of this owner is in flight: the command may shorten the lease.
        let _order = hold.in_order_now()?;
        let mut book = hold.book();
        let spare = engine.options.watchdog / 3;
        // There is no hand-over if the hold has ended or is in doubt, if its lease may be shortened or is too short for
        // the next holder, or if another guard relies on the hold. There is none after a request to finish either,
        // because another client wants the lock.
        if book.end().is_some()
            || book.is_refuted()
            || book.is_revoked()
            || book.doubted()
            || book.renewed_at() < book.cut_until()
            || !book.is_idle()
            || book.watched() < (now + spare).as_nanos()
        {
            return None;
        }
        let level = book.reopen(self.number);
        drop(book);
        Some(Grant::new(Arc::clone(engine), Arc::clone(hold), level))
    }

    async fn run(self, persistence: Persistence) -> Result<Released> {
        let Self { engine, hold, number, .. } = &self;
        if let Some(end) = self.end {
            // The code that ended the hold has cleaned up.
            return Err(hold.lost(end));
        }
        if !self.was_held && self.leaves_closed().await {
            return Err(hold.lost(End::Expired));
        }
        let waits = persistence == Persistence::UntilLeaseEnds;
        let mut doubted = false;
        let (order, sent, outcome, Plan { cut_until, owed, over, .. }) = loop {
            let order = hold.in_order().await;
            let plan = self.plan()?;
            let sent = engine.now();
            let until = match persistence {
                Persistence::ConfiguredRetries => self.until.min(sent + engine.patience()),
                Persistence::UntilLeaseEnds => latest(plan.over, &plan.owed),
            };
            let tried = send(engine, hold, &plan.id, plan.lease_left, until, waits).await;
            doubted |= tried.doubted;
            let passes = waits && tried.outcome.as_ref().is_err_and(Error::is_retryable);
            if !passes || engine.now() >= until || hold.book().ending() > 1 {
                break (order, sent, tried.outcome, plan);
            }
            // No caller waits for this release, so other commands of this owner are sent first.
            hold.book().owe(plan.owed);
            drop(order);
            tokio::time::sleep(engine.pause(0).min(until.since(engine.now()))).await;
        };
        let acquire_doubted = hold.book().undoubt(*number);
        if acquire_doubted {
            look_again(engine, hold, *number, &Bytes::new());
        }
        let release = match outcome {
            Ok(release) => release,
            Err(error) => {
                let is_pending = persistence == Persistence::ConfiguredRetries && error.is_retryable();
                // The release continues if it is in doubt, or if no other release of this owner waits. Otherwise the
                // waiting release includes this hold and retries both.
                let goes_on = is_pending && (doubted || hold.book().ending() <= 1);
                self.book_failure(owed, over, &error, goes_on);
                drop(order);
                if goes_on {
                    engine.reaper.finish(self.clone().into_job());
                }
                return Err(if is_pending { pending(hold, error) } else { error });
            }
        };
        // Guards count on the new lease of the remaining holds only if this release was never in doubt, and no earlier
        // command can shorten the lease. In the strict modes guards never count on it, because replicas do not
        // acknowledge a release.
        let is_counted = !hold.protocol.nature().leases_apart && !engine.options.acks.is_strict();
        let rearms = is_counted && !doubted && sent.as_nanos() >= cut_until;
        let released = self.book_answer(Answered { release, sent, rearms, clean: !acquire_doubted && !doubted })?;
        tracing::debug!(lock.name = %hold.name().as_written, owner = hold.owner.text(), held = ?engine.now().since(self.since), "released");
        Ok(released)
    }

    fn finish(self) {
        let reaper = self.engine.reaper.clone();
        reaper.finish_retrying(move || {
            Box::pin(self.clone().run(Persistence::UntilLeaseEnds).map(|outcome| {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "the lock of a dropped guard was lost, or its release failed");
                }
            }))
        });
    }

    /// Continues a release whose failure was reported. A separate function, because an async function cannot name its
    /// own type.
    fn into_job(self) -> Job {
        Box::pin(self.run(Persistence::UntilLeaseEnds).map(drop))
    }
}

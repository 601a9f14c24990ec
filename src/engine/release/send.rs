//! Releases and related commands: retries until the server answers, and what remains in doubt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::config::millis;
use crate::engine::Engine;
use crate::engine::clock::{Refusals, harmless_from};
use crate::engine::hold::{Hold, lease_until};
use crate::engine::ledger::{Book, Entry as _};
use crate::engine::protocol::{Giving, HoldId, LeaseLeft, Protocol, Release};
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::topology::ServerClock;
use crate::transport::{Call, Fault, FaultKind, Reply};
use crate::world::{Moment, nanos};

/// The lease that a release leaves to the owner's remaining holds: the full lease and the lock delay, because a renewal
/// in flight may have promised that much.
pub(super) fn lease_left(engine: &Engine, hold: &Hold, book: &Book) -> LeaseLeft {
    let watchdog = engine.options.watchdog;
    if !hold.protocol.nature().leases_apart {
        let lease = Duration::from_nanos(book.lease_left(nanos(watchdog))) + book.delay();
        return LeaseLeft { least: 0, lease: millis(lease) };
    }
    let promised = lease_until(engine.now(), Moment::from_nanos(book.until_all()));
    let lease = if book.is_watched() { promised.max(watchdog) } else { promised };
    LeaseLeft { least: millis(promised), lease: millis(lease) }
}

/// The lease to leave to holds that the owner may have through other clients.
pub(super) fn lease_left_to_others(engine: &Engine) -> LeaseLeft {
    LeaseLeft { least: 0, lease: millis(engine.options.watchdog) }
}

pub(super) struct Sent {
    pub(super) outcome: Result<Release>,
    /// True if an unanswered copy of the release may have run, or may still run.
    pub(super) doubted: bool,
}

/// Sends the release of a hold until it is answered, or until `until`. A release in doubt is retried, because a repeat
/// changes nothing.
///
/// If the owner has other holds, the server may shorten the lease. In that case, the command carries a last moment
/// (`engine/clock.rs`), which needs the server's time. `yields`: a failure without doubt is not retried while another
/// command of this owner waits.
pub(super) async fn send(
    engine: &Arc<Engine>,
    hold: &Hold,
    id: &HoldId,
    lease_left: LeaseLeft,
    until: Moment,
    yields: bool,
) -> Sent {
    let owner = &hold.owner;
    // A hold of permits shares its lease with no other hold.
    let is_alone = *id == HoldId::Only || hold.protocol.nature().is_counted();
    let mine = if is_alone { Bytes::new() } else { engine.hold_ids(owner, &hold.numbers()) };
    // A server that is out of memory accepts only an owner's last release. So if another release of this owner waits, a
    // refused release is not retried, but included in the waiting release.
    let gives_up = |fault: &Fault| {
        fault.kind == FaultKind::Refused && hold.book().ending() > 1
            || yields && !fault.in_doubt() && hold.is_waited_for()
    };
    let call = |clock: &ServerClock| {
        let last_ms = if mine.is_empty() { 0 } else { clock.last(engine.now(), engine.options.command_timeout) };
        let publish = engine.topology.publish();
        hold.protocol.release(&Giving {
            owner,
            hold: id,
            lease_left,
            mine: mine.clone(),
            last_ms,
            publish,
            waiter: None,
        })
    };
    let sent = send_release(engine, &hold.protocol, !mine.is_empty(), until, call, gives_up).await;
    if sent.doubted && sent.outcome.is_err() {
        // A late copy may shorten the lease of the remaining holds. After an answer, a late copy finds its hold gone.
        let harmless_from = harmless_from(engine.now(), engine.options.command_timeout);
        hold.book().may_be_cut(harmless_from.as_nanos());
    }
    sent
}

/// Sends a release, or the undo of an acquire, until it is answered or until `until`, and reads the answer. `timed`
/// and `gives_up`: as for [`until_answered`].
pub(super) async fn send_release(
    engine: &Arc<Engine>,
    protocol: &Arc<dyn Protocol>,
    timed: bool,
    until: Moment,
    call: impl Fn(&ServerClock) -> Call + Send + Sync,
    gives_up: impl Fn(&Fault) -> bool + Send + Sync,
) -> Sent {
    let (reply, doubted) = until_answered(engine, protocol.name(), timed, until, call, gives_up).await;
    let outcome = match reply {
        Ok(reply) => protocol.released(reply).map(|release| match release {
            // A repeat finds nothing if the first copy has run.
            Release::NotThere(others) if doubted => Release::Left(others),
            Release::NotHeld(_) if doubted => Release::Free(0),
            release => release,
        }),
        Err(fault) => Err(Error::of_fault(&fault, &protocol.name().as_written)),
    };
    Sent { outcome, doubted }
}

/// Sends an idempotent command until it is answered or until `until`. Also returns the value for [`Sent::doubted`].
/// `timed`: the command needs the server's time. `gives_up`: true for faults that are not retried.
pub(super) async fn until_answered(
    engine: &Engine,
    name: &LockName,
    timed: bool,
    until: Moment,
    call: impl Fn(&ServerClock) -> Call + Send + Sync,
    gives_up: impl Fn(&Fault) -> bool + Send + Sync,
) -> (Result<Reply, Fault>, bool) {
    let (mut failures, mut doubted) = (0, false);
    loop {
        if timed && engine.now() < until {
            // The time is queried before each attempt, because the name may live on another server by now.
            engine.learn_time(name).await;
        }
        let fault = match engine.topology.run_timed(name, &call).await {
            Ok(answered) => return (Ok(answered.reply), doubted),
            Err(fault) => fault,
        };
        doubted |= fault.in_doubt();
        if gives_up(&fault) || !Error::of_fault(&fault, &name.as_written).is_retryable() {
            return (Err(fault), doubted);
        }
        let pause = engine.pause(failures);
        if engine.now() + pause >= until {
            return (Err(fault), doubted);
        }
        failures += 1;
        tokio::time::sleep(pause).await;
    }
}

/// Sends a command that must count once or not at all. A command refused as too late is sent again. A command that may
/// have run is not.
pub(crate) async fn in_time<T>(
    engine: &Arc<Engine>,
    name: &LockName,
    call: impl Fn(i64) -> Call + Send + Sync,
    read: impl Fn(Reply) -> Result<T>,
    too_late: impl Fn(&T) -> Option<i64>,
) -> Result<T> {
    let until = engine.now() + engine.patience();
    let (mut failures, mut refusals) = (0, Refusals::default());
    loop {
        let sent = engine.now();
        let timed = |clock: &ServerClock| call(clock.last(sent, engine.options.command_timeout));
        match engine.topology.run_timed(name, timed).await {
            Ok(answered) => {
                let outcome = read(answered.reply)?;
                let Some(at) = too_late(&outcome) else { return Ok(outcome) };
                refusals.add(&answered.clock, at, engine.now())?;
            }
            Err(fault) => {
                let error = Error::of_fault(&fault, &name.as_written);
                let pause = engine.pause(failures);
                if fault.in_doubt() || !error.is_retryable() || engine.now() + pause >= until {
                    return Err(error);
                }
                failures += 1;
                tokio::time::sleep(pause).await;
            }
        }
    }
}

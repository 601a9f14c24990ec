//! Giving back: unlock, partial unlock, releases of dropped guards, and the clean-up after doubt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tracing::Instrument as _;

mod by_owner;
mod doubt;

pub(crate) use by_owner::{by_owner, disown};
use doubt::look_again;
pub(crate) use doubt::{relieve, undo, waits_in_redis};

use super::Engine;
use super::clock::{Refusals, harmless_from};
use super::hold::{Grant, Hold, lease_until, valid_until};
use super::ledger::{Book, End, Entry as _};
use super::protocol::{Forced, Giving, HoldId, LeaseLeft, Protocol, Release};
use super::registry::Courtesy;
use crate::config::millis;
use crate::error::{Error, NotHeld, Result};
use crate::names::LockName;
use crate::runtime::reaper::{Finished, Job};
use crate::state::Released;
use crate::transport::{Call, Fault, Reply};
use crate::world::{Moment, nanos};

/// What the guard knew of its hold when its release began.
#[derive(Clone, Copy)]
struct Before {
    /// False when the lease was over by the local clock.
    held: bool,
    end: Option<End>,
    since: Moment,
    /// The number of its hold, and its tenure.
    number: u64,
    tenure: u32,
}

/// Takes a guard out of its hold, which from here on causes no renewal. None when nothing is to be sent: the hold was
/// handed over inside this process.
fn begin(engine: &Arc<Engine>, hold: &Arc<Hold>, level: u32, since: Moment) -> Option<Before> {
    let now = engine.now();
    let (before, watched) = {
        let mut book = hold.book();
        let until = book.until(level);
        let watched = book.lease(level).is_none();
        let held = until.is_some_and(|until| now.as_nanos() < until);
        let end = book.end_of(level);
        let number = book.close(level).unwrap_or_default();
        let before = Before { held, end, since, number, tenure: book.tenure() };
        (before, watched && book.is_idle() && book.count() == 1)
    };
    super::metrics::held(hold.protocol.flavour(), now.since(since));
    let spare = engine.options.watchdog / 3;
    let handed_over = engine.registry.hand_over(hold, now, || {
        // The next one must be the only one who can act as this owner.
        if !watched || !before.held || hold.owner.is_known() {
            return None;
        }
        // A command that is under way, or whose reply was lost, may have shortened its lease, or may yet.
        let Ok(_order) = hold.order.try_lock() else { return None };
        let mut book = hold.book();
        // Whoever gets it must have time to use it.
        if book.end().is_some()
            || book.is_refuted()
            || book.doubted()
            || book.renewed_at() < book.cut_until()
            || !book.is_idle()
            || book.watched() < (now + spare).as_nanos()
        {
            return None;
        }
        let level = book.reopen(before.number);
        drop(book);
        Some(Grant::new(Arc::clone(engine), Arc::clone(hold), level))
    });
    (!handed_over).then_some(before)
}

/// Releases a guard's share without anybody waiting for it. Never blocks; needs no runtime.
pub(crate) fn in_background(engine: &Arc<Engine>, hold: &Arc<Hold>, level: u32, since: Moment) {
    let Some(before) = begin(engine, hold, level, since) else { return };
    let (reaper, engine, hold) = (&engine.reaper, Arc::clone(engine), Arc::clone(hold));
    reaper.finish_surely(move || {
        let job = give_back(Arc::clone(&engine), Arc::clone(&hold), before, true);
        Box::pin(job.map(|outcome| {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a dropped guard's lock was not released as held");
            }
        }))
    });
}

/// Releases a guard's share and says what became of it.
pub(crate) async fn unlock(mut grant: Grant) -> Result<Released> {
    if !grant.take() {
        return Err(Error::Closed);
    }
    let (engine, hold) = (Arc::clone(&grant.engine), Arc::clone(&grant.hold));
    let Some(before) = begin(&engine, &hold, grant.level, grant.since) else { return Ok(Released::Free) };
    let (name, flavour) = (&hold.name().plain, hold.protocol.flavour());
    let span = tracing::debug_span!("unlock", lock.name = %name, lock.flavour = flavour);
    let job = give_back(Arc::clone(&engine), hold, before, false);
    Finished::new(&engine.reaper, job.instrument(span)).await
}

/// The release itself. `patient`: goes on until the lease is over; otherwise it reports after the configured retries,
/// and goes on in the background.
async fn give_back(engine: Arc<Engine>, hold: Arc<Hold>, before: Before, patient: bool) -> Result<Released> {
    let name = Arc::clone(&hold.name().plain);
    if let Some(end) = before.end {
        // Whoever ended it has cleaned up.
        return Err(hold.lost(end));
    }
    let order = hold.order.lock().await;
    let watchdog = engine.options.watchdog;
    let apart = hold.protocol.nature().leases_apart;
    let (lease_left, cut_until, owed) = {
        let mut book = hold.book();
        if let (0, end) = (book.count(), book.end()) {
            return Err(hold.lost(end.unwrap_or(End::Gone)));
        }
        (lease_left(&engine, &hold, &book), book.cut_until(), book.owed())
    };
    let id = if owed.is_empty() {
        engine.hold_id(&hold.owner, before.number)
    } else {
        let all: Vec<u64> = owed.iter().copied().chain([before.number]).collect();
        HoldId::Listed(engine.hold_ids(&hold.owner, &all))
    };
    let patience = if patient { watchdog.max(span(lease_left.lease)) } else { engine.patience() };
    let sent = engine.now();
    let Sent { outcome, doubted: release_doubted } = send(&engine, &hold, &id, lease_left, sent + patience).await;
    let acquire_doubted = hold.book().undoubt(before.number);
    if acquire_doubted {
        look_again(&engine, &hold, before.number, &Bytes::new());
    }
    let release = match outcome {
        Ok(release) => release,
        Err(error) => {
            super::metrics::release_failed(hold.protocol.flavour());
            let goes_on = !patient && error.is_retryable();
            hold.book().owe(owed.into_iter().chain((!goes_on).then_some(before.number)));
            tracing::warn!(lock.name = %name, %error, goes_on, "release failed");
            if goes_on {
                drop(order);
                engine.reaper.finish(go_on(&engine, &hold, before));
            } else if hold.book().counted_down(before.tenure) {
                // Not renewed any more: the lease ends it. Where guards are left, the last of them frees it.
                freed(&engine, &hold, 0);
            }
            return Err(error);
        }
    };
    // A command that shortens it may come in still; a repeat may have found nothing to do.
    let rearms = !apart && !release_doubted && sent.as_nanos() >= cut_until;
    let answer = Answered { release, sent, rearms, clean: !acquire_doubted && !release_doubted };
    let released = book_release(&engine, &hold, before, answer)?;
    if before.held {
        tracing::debug!(lock.name = %name, owner = hold.owner.text(), held = ?engine.now().since(before.since), "released");
        Ok(released)
    } else {
        // The server had it still, but it was not to be relied on any more.
        Err(Error::NotHeld { name, why: NotHeld::LeaseOver })
    }
}

/// The server's answer to a release, and what is to be made of it.
struct Answered {
    release: Release,
    sent: Moment,
    /// True when it tells the lease of what is left.
    rearms: bool,
    /// True when no copy of the acquire or of the release can come in any more.
    clean: bool,
}

/// Books what a release came to, and has those know whom it concerns.
fn book_release(engine: &Arc<Engine>, hold: &Arc<Hold>, before: Before, answer: Answered) -> Result<Released> {
    let (name, sent) = (Arc::clone(&hold.name().plain), answer.sent);
    match answer.release {
        Release::Left(left) => {
            let mut book = hold.book();
            let none_left = book.counted_down(before.tenure);
            let until = |lease| valid_until(sent, Duration::from_nanos(lease)).as_nanos();
            if answer.rearms {
                book.rearmed(engine.now().as_nanos(), sent.as_nanos(), until, nanos(engine.options.watchdog));
            }
            drop(book);
            hold.changed.notify_waiters();
            if none_left {
                // What is left is held elsewhere, by the same owner.
                nothing_left(engine, hold);
            }
            Ok(Released::StillHeld(left))
        }
        Release::Others => {
            nothing_left(engine, hold);
            Ok(Released::Free)
        }
        Release::Free(told) => {
            freed(engine, hold, told);
            if told > 0 {
                engine.queues.look_after(&hold.protocol, engine.now());
            }
            if let Some(inbox) = hold.inbox.get().filter(|_| answer.clean && !hold.owner.is_known()) {
                engine.registry.keep(&hold.owner, inbox);
            }
            Ok(Released::Free)
        }
        Release::Untold(reason) => {
            warn_untold(hold.name(), &reason);
            freed(engine, hold, 0);
            Ok(Released::Free)
        }
        Release::NotHeld(holder) => {
            freed(engine, hold, 0);
            let why = holder.map_or(NotHeld::LeaseOver, |owner| NotHeld::HeldBy { owner });
            super::metrics::release_failed(hold.protocol.flavour());
            Err(Error::NotHeld { name, why })
        }
        Release::NotThere(_) => {
            // Forced open, and come in again since; or given back by somebody else.
            if hold.book().counted_down(before.tenure) {
                nothing_left(engine, hold);
            }
            super::metrics::release_failed(hold.protocol.flavour());
            Err(Error::NotHeld { name, why: NotHeld::LeaseOver })
        }
        odd @ (Release::Which(_) | Release::TooLate(_)) => {
            // No server of ours: nobody is to count on what it has.
            if hold.book().counted_down(before.tenure) {
                freed(engine, hold, 0);
            }
            Err(Error::odd_reply("release", &odd))
        }
    }
}

/// The rest of a release that was reported as failed. A function of its own, because an async one cannot name itself.
fn go_on(engine: &Arc<Engine>, hold: &Arc<Hold>, before: Before) -> Job {
    Box::pin(give_back(Arc::clone(engine), Arc::clone(hold), before, true).map(drop))
}

/// What is to be left of a hold. The lease in full, for a renewal that is under way may have promised that.
fn lease_left(engine: &Engine, hold: &Hold, book: &Book) -> LeaseLeft {
    let watchdog = engine.options.watchdog;
    if !hold.protocol.nature().leases_apart {
        return LeaseLeft { least: 0, lease: millis(Duration::from_nanos(book.lease_left(nanos(watchdog)))) };
    }
    let promised = lease_until(engine.now(), Moment::from_nanos(book.until_all()));
    let lease = if book.is_watched() { promised.max(watchdog) } else { promised };
    LeaseLeft { least: millis(promised), lease: millis(lease) }
}

/// What is to be left of what an owner may hold elsewhere.
fn lease_left_to_others(engine: &Engine) -> LeaseLeft {
    LeaseLeft { least: 0, lease: millis(engine.options.watchdog) }
}

fn span(ms: i64) -> Duration {
    Duration::from_millis(ms.unsigned_abs())
}

/// The lock is free.
fn freed(engine: &Arc<Engine>, hold: &Arc<Hold>, told: u32) {
    nothing_left(engine, hold);
    tell(engine, &hold.protocol, told);
}

/// The server has nothing for this hold any more.
fn nothing_left(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if !hold.book().is_idle() {
        // Another one freed it with all that is left of it; whoever still relies on it must know.
        engine.lose(hold, End::Gone);
    }
    engine.holds.released(&hold.key(), hold);
    let doubts = hold.book().doubts();
    for number in doubts {
        look_again(engine, hold, number, &Bytes::new());
    }
}

/// For how long a lock is left free at the most for those who look for themselves.
const LEFT_FREE: Duration = Duration::from_millis(1);

/// Has those who wait here for a lock that may be free look, unless a message will: the server told so many clients; 0 where
/// that is not known.
fn tell(engine: &Engine, protocol: &Arc<dyn Protocol>, told: u32) {
    let courtesy = match protocol.backoff() {
        _ if protocol.nature().shared || protocol.queue().is_some() => Courtesy::None,
        Some(backoff) => Courtesy::Looking(backoff.rest(0, engine.random()).min(LEFT_FREE)),
        None => Courtesy::Told,
    };
    engine.registry.released(protocol.name(), told, courtesy);
    if let Some(other) = protocol.other() {
        engine.registry.released(other, told, Courtesy::None);
    }
}

/// What became of a release.
struct Sent {
    outcome: Result<Release>,
    /// True when a copy of it that was not answered may have been carried out, or may be yet.
    doubted: bool,
}

/// Sends a release until it is answered, or `until` is reached. In doubt it is sent again: a repeat changes nothing.
async fn send(engine: &Arc<Engine>, hold: &Hold, id: &HoldId, lease_left: LeaseLeft, until: Moment) -> Sent {
    let owner = &hold.owner;
    let mine = if *id == HoldId::Only { Bytes::new() } else { engine.hold_ids(owner, &hold.numbers()) };
    let sent = repeat(engine, &hold.protocol, until, || {
        let last_ms = if mine.is_empty() { 0 } else { engine.last_ms(hold.name()) };
        let publish = engine.topology.publish(hold.name());
        hold.protocol.release(&Giving {
            owner,
            hold: id,
            lease_left,
            mine: mine.clone(),
            last_ms,
            publish,
            waiter: None,
        })
    })
    .await;
    if sent.doubted && sent.outcome.is_err() {
        // A copy that comes late may make the lease of what is left shorter. Behind an answer it finds its hold gone.
        let harmless_from = harmless_from(engine.now(), engine.options.command_timeout);
        hold.book().may_be_cut(harmless_from.as_nanos());
    }
    sent
}

/// Sends a release, or the undoing of an acquire, until it is answered, or `until` is reached.
async fn repeat(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>, until: Moment, call: impl Fn() -> Call) -> Sent {
    let (reply, doubted) = until_answered(engine, protocol.name(), until, call).await;
    let outcome = match reply {
        Ok(reply) => protocol.released(reply).map(|release| match release {
            // A repeat finds nothing where the first one was carried out.
            Release::NotThere(others) if doubted => Release::Left(others),
            Release::NotHeld(_) if doubted => Release::Free(0),
            release => release,
        }),
        Err(fault) => Err(fault.to_error(&protocol.name().plain)),
    };
    Sent { outcome, doubted }
}

/// Sends what may be carried out many times until it is answered, or `until` is reached; and whether a copy of it that was not
/// answered may have been carried out, or may be yet.
async fn until_answered(
    engine: &Engine,
    name: &LockName,
    until: Moment,
    call: impl Fn() -> Call,
) -> (Result<Reply, Fault>, bool) {
    let (mut failures, mut doubted) = (0, false);
    loop {
        let fault = match engine.topology.run(name, call()).await {
            Ok(reply) => return (Ok(reply), doubted),
            Err(fault) => fault,
        };
        doubted |= fault.in_doubt();
        if !fault.to_error(&name.plain).is_retryable() {
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

/// Asks for something that must be counted once or not at all: sent until it was in time, and never again once it may have
/// been carried out.
async fn in_time<T>(
    engine: &Arc<Engine>,
    protocol: &Arc<dyn Protocol>,
    call: impl Fn(i64) -> Call,
    read: impl Fn(Reply) -> Result<T>,
    too_late: impl Fn(&T) -> Option<i64>,
) -> Result<T> {
    let until = engine.now() + engine.patience();
    let (mut failures, mut refusals) = (0, Refusals::default());
    loop {
        let clock = engine.clock(protocol.name());
        let last_ms = clock.last(engine.now(), engine.options.command_timeout);
        match engine.topology.run(protocol.name(), call(last_ms)).await {
            Ok(reply) => {
                let outcome = read(reply)?;
                let Some(at) = too_late(&outcome) else { return Ok(outcome) };
                refusals.add(clock, at, engine.now())?;
            }
            Err(fault) => {
                let error = fault.to_error(&protocol.name().plain);
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

fn warn_untold(name: &LockName, reason: &str) {
    let channel = String::from_utf8_lossy(&name.channel);
    tracing::warn!(lock.name = %name.plain, reason, %channel, "released, but waiters could not be told: they poll; \
                    where the reason is NOPERM, grant this login the channel");
}

/// Frees the lock whoever holds it. Guards of this client learn of it at once.
pub(crate) async fn force(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>) -> Result<bool> {
    protocol.name().check()?;
    engine.check_open()?;
    let (engine, protocol) = (Arc::clone(engine), Arc::clone(protocol));
    let reaper = engine.reaper.clone();
    Finished::new(&reaper, async move {
        // Those that were held before it was sent: a waiter may have the lock again before we hear of the end.
        // One that is between two guards, given back by the first and not yet handed over to the second, is among them.
        let mut holds = engine.holds.collect(|book| book.count() > 0);
        holds.retain(|hold| hold.name().key == protocol.name().key);
        let tenures: Vec<u32> = holds.iter().map(|hold| hold.book().tenure()).collect();
        let too_late = |forced: &Forced| match forced {
            Forced::TooLate(at) => Some(*at),
            _ => None,
        };
        let call = |last_ms| protocol.force(last_ms, engine.topology.publish(protocol.name()));
        let forced = in_time(&engine, &protocol, call, |reply| protocol.forced(&reply), too_late).await?;
        if forced == Forced::Other {
            return Ok(false);
        }
        for (hold, tenure) in holds.iter().zip(tenures) {
            engine.refuted(hold, tenure);
        }
        tell(&engine, &protocol, 0);
        engine.queues.look_after(&protocol, engine.now());
        if let Forced::Untold(reason) = &forced {
            warn_untold(protocol.name(), reason);
        }
        Ok(matches!(forced, Forced::Freed | Forced::Untold(_)))
    })
    .await
}

//! One attempt to acquire: sends a command, reads the reply and updates the owner's book (`engine/ledger.rs`).

mod answer;
mod request;

use std::sync::Arc;
use std::time::Duration;

use super::admission::Admitted;
use super::undo::Undo;
use crate::config::millis;
use crate::engine::clock::Refusals;
use crate::engine::hold::{Grant, Order, Target, lease_until};
use crate::engine::ledger::Entry as _;
use crate::engine::protocol::{Answer, Ask, Busy, HoldId, Protocol, Queueing};
use crate::engine::queue::EntryHandle;
use crate::error::{Deadlock, Error, Result};
use crate::names::LockName;
use crate::runtime::home::EndsWithRuntime;
use crate::topology::{Answered, ServerClock};
use crate::transport::{Fault, FaultKind};
use crate::world::Moment;

pub(super) enum Tried {
    Held(Grant),
    /// Held. The server had passed the lock on to this owner before this attempt.
    Passed(Grant),
    Busy(Busy),
    /// Busy, and the owner has a queue entry.
    Queued(InQueue),
    /// Busy. A mark in Redis now shows that this owner waits.
    Marked(Busy, Undo),
    /// The lock could be acquired, but this reader yields to waiting writers.
    HeldBack,
    /// The owner's earlier hold is ending or gone: retry.
    Gone,
    /// The owner's queue entry is lost.
    Displaced,
    /// Another client has read this reused owner in Redis, and holds the lock as that owner. The acquire needs a new
    /// owner.
    OwnerTaken,
}

pub(super) struct InQueue {
    pub(super) entry: EntryHandle,
    pub(super) undo: Undo,
}

/// A failed attempt. If the command may have run, dropping `doubt` undoes the command.
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) doubt: Option<Undo>,
    /// True if a retry would fail in the same way.
    pub(super) would_repeat: bool,
    /// True if the hold is being released because the grant came too late, or too few replicas acknowledged it. A retry
    /// needs a hold with another number.
    pub(super) spent: bool,
    /// True if the wait ended before the command was sent or answered, while the server still answers other commands.
    pub(super) cut_off: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, doubt: None, would_repeat: false, spent: false, cut_off: false }
    }
}

/// The outcome of an attempt, with the owner's [`Order`]. If no caller takes the outcome, its drop removes the guard
/// from the book before the order is free. Otherwise the owner's next acquire would find the guard in the book, and
/// report a deadlock of the owner with itself.
pub(super) struct Attempted {
    // Dropped in this order.
    outcome: Result<Tried, Failed>,
    _order: Option<Order>,
}

impl EndsWithRuntime for Attempted {
    fn runtime_gone() -> Self {
        Self { outcome: EndsWithRuntime::runtime_gone(), _order: None }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) queueing: Queueing,
    /// False if this reader has yielded to waiting writers for long enough.
    pub(super) gives_way: bool,
    /// True if a refusal must report how long the holder's lease still runs.
    pub(super) looks: bool,
}

struct Attempt {
    target: Arc<Target>,
    lease: Option<Duration>,
    /// The lock delay: the server keeps the lock for this much longer than the lease.
    delay: Duration,
    inbox: Option<Arc<LockName>>,
    not_reentrant: bool,
    fenced: bool,
    /// True if the owner has had no hold before this one.
    first: bool,
    /// True if this client created the owner, for this acquire or for an earlier one.
    fresh: bool,
    /// True if the owner was created for an earlier acquire.
    used_again: bool,
    /// True if an earlier attempt for the same hold may have run.
    doubted: bool,
    manner: Manner,
    _admitted: Option<Admitted>,
}

/// The owner's holds in the book before an attempt.
struct Before {
    count: u32,
    /// The latest deadline of the owner's guards.
    until: Moment,
    /// The lock delay of the owner's holds.
    delay: Duration,
    /// Number of the newest hold.
    last: Option<u64>,
}

impl Attempt {
    async fn make(self) -> Attempted {
        // An owner has one command in flight at a time, because each command depends on the result of the previous
        // command.
        let order = self.target.hold.in_order().await;
        Attempted { outcome: self.make_in_order().await, _order: Some(order) }
    }

    async fn make_in_order(self) -> Result<Tried, Failed> {
        let hold = Arc::clone(&self.target.hold);
        self.check_flavour()?;
        let cut_until = Moment::from_nanos(hold.book().cut_until());
        // An earlier command may still arrive and shorten the lease. Wait until that command can no longer run.
        self.target.engine.after(cut_until).await;
        let Some(before) = self.read_book() else { return Ok(Tried::Gone) };
        self.check_reentry(&before)?;
        let (sent, answer) = self.send(&before).await?;
        let passed = match answer {
            Answer::Held => false,
            Answer::Passed => true,
            Answer::Fenced(token) => {
                // A re-entered hold keeps its token.
                if before.count == 0 {
                    hold.set_token(token);
                }
                false
            }
            answer if before.count == 0 => return self.read_refusal(answer, &before, sent),
            answer => return self.read_loss(&answer, &before),
        };
        let grant = self.open(sent)?;
        Ok(if passed { Tried::Passed(grant) } else { Tried::Held(grant) })
    }

    fn protocol(&self) -> &Arc<dyn Protocol> {
        &self.target.hold.protocol
    }

    /// Refuses an owner that uses one name both as a fenced lock and as another flavour.
    fn check_flavour(&self) -> Result<(), Failed> {
        let protocol = self.protocol();
        if protocol.nature().fenced == self.fenced {
            return Ok(());
        }
        let what = format!(
            "this owner already uses the lock {:?} as {}: one owner cannot use it both with and without a fencing token",
            protocol.name().as_written,
            protocol.flavour()
        );
        Err(Error::Config { what }.into())
    }

    /// Reads the owner's holds from the book. Returns None if an earlier hold is ending: its release waits for the
    /// order, and must run before this attempt.
    fn read_book(&self) -> Option<Before> {
        let book = self.target.hold.book();
        if book.is_closed() || book.end().is_some() || (book.is_idle() && book.count() > 0) {
            return None;
        }
        let (count, until) = (book.count(), Moment::from_nanos(book.until_all()));
        Some(Before { count, until, delay: book.delay(), last: book.holds().last() })
    }

    fn check_reentry(&self, before: &Before) -> Result<(), Failed> {
        let Target { engine, hold, .. } = &*self.target;
        let of_other = |name: &Arc<LockName>| engine.holds.count(&(Arc::clone(name), hold.owner.clone()));
        if self.not_reentrant && (before.count > 0 || self.protocol().other().is_some_and(|name| of_other(name) > 0)) {
            return Err(self.deadlock(Deadlock::NotReentrant));
        }
        Ok(())
    }

    fn deadlock(&self, why: Deadlock) -> Failed {
        let error = Error::WouldDeadlock { name: Arc::clone(&self.protocol().name().as_written), why };
        Failed { would_repeat: true, ..error.into() }
    }

    /// The undo of this attempt's command, which may have run.
    fn undo(&self) -> Undo {
        let lease = self.lease.unwrap_or(self.target.engine.options.watchdog) + self.delay;
        Undo::new(&self.target, true).leased(Some(lease))
    }

    /// The failure after a reply that none of our scripts gives. The lock may have been acquired.
    fn odd(&self, error: Error) -> Failed {
        Failed { doubt: Some(self.undo()), would_repeat: true, ..Failed::from(error) }
    }

    fn fault(&self, fault: &Fault) -> Failed {
        let doubt = fault.in_doubt().then(|| self.undo());
        let error = Error::of_fault(fault, &self.protocol().name().as_written);
        // The lock was granted, but too few replicas have the hold. Dropping `doubt` here releases the hold at once, so
        // that other clients may acquire.
        let spent = matches!(fault.kind, FaultKind::Unacknowledged { .. });
        Failed { doubt: doubt.filter(|_| !spent), spent, ..error.into() }
    }

    /// Sends the acquire, and retries it if the estimate of the server's clock was too inaccurate. Returns the answer,
    /// and when the answered command was sent.
    async fn send(&self, before: &Before) -> Result<(Moment, Answer), Failed> {
        let Target { engine, hold, .. } = &*self.target;
        let protocol = self.protocol();
        let lease = self.lease.unwrap_or(engine.options.watchdog);
        // Re-entry never shortens the lease that earlier holds count on.
        let comes_in = before.count > 0 && !protocol.nature().leases_apart;
        let hold_id = self.target.id();
        // Without a last moment (`engine/clock.rs`), a late copy of the command may join a queue, or take a free lock,
        // which is then undone. If the server's clock is known, a last moment costs nothing.
        let leaves_traces = hold_id != HoldId::Only || protocol.queue().is_some();
        let must_end = hold_id != HoldId::Only && !self.first;
        let is_limited = must_end || (leaves_traces && engine.clock(protocol.name()).is_known(engine.now()));
        let waits_in_queue = self.manner.queueing != Queueing::Ask && protocol.queue().is_some();
        let mut refusals = Refusals::default();
        loop {
            let sent = engine.now();
            let armed = if comes_in { lease.max(lease_until(sent, before.until)) } else { lease };
            let armed = armed + self.delay.max(before.delay);
            let call = |clock: &ServerClock| {
                protocol.acquire(&Ask {
                    owner: &hold.owner,
                    lease_ms: millis(armed),
                    hold: &hold_id,
                    earlier: before.last.map(|number| engine.hold_id(&hold.owner, number)),
                    last_ms: if is_limited { clock.last(sent, engine.options.command_timeout) } else { 0 },
                    // A reused owner has no other hold, unless another client has read the owner in Redis and acquires
                    // as that owner.
                    alone: self.not_reentrant || self.used_again,
                    queueing: self.manner.queueing,
                    gives_way: self.manner.gives_way,
                    looks: self.manner.looks,
                    nonce: &self.target.nonce,
                    publish: engine.topology.publish(),
                })
            };
            let answered = engine.topology.run_timed(protocol.name(), call).await;
            let Answered { reply, placement, clock } = answered.map_err(|fault| self.fault(&fault))?;
            match protocol.acquired(&reply).map_err(|error| self.odd(error))? {
                // The command did nothing: the server's clock was unknown or had jumped.
                Answer::TooLate(at) => refusals.add(&clock, at, engine.now())?,
                _ if engine.topology.placement(protocol.name()) != placement => {
                    // The name may have moved away from this server before the answer, so the answer does not count.
                    return Err(Failed { doubt: Some(self.undo()), ..Error::moved().into() });
                }
                answer => {
                    if let (Answer::Busy(busy), true) = (&answer, waits_in_queue)
                        && !clock.is_known(engine.now())
                    {
                        // Once the clock is known, commands can have a last moment.
                        clock.learn(busy.at, engine.now());
                    }
                    return Ok((sent, answer));
                }
            }
        }
    }
}

//! One attempt to acquire: what is sent, what it brought, and the undoing of what nobody came to use.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Wish;
use crate::config::millis;
use crate::engine::clock::Refusals;
use crate::engine::hold::{Grant, Hold, Target, lease_until, valid_until};
use crate::engine::ledger::{End, Entry as _};
use crate::engine::names::LockName;
use crate::engine::protocol::{Ask, Attempt, HoldId, Turn};
use crate::engine::queue::Stand;
use crate::engine::reaper::Finished;
use crate::engine::release;
use crate::engine::transport::{Moment, nanos};
use crate::error::{Deadlock, Error, Result, Step};

/// How long a reply may come after the end of the wait and still count: success beats the deadline.
pub(crate) const GRACE: Duration = Duration::from_millis(15);

/// What one attempt brought.
pub(super) enum Tried {
    Held(Grant),
    /// As `Held`: the server had passed it on before.
    Passed(Grant),
    Busy(Option<u64>),
    /// Busy, and the owner has a place in the queue.
    Standing(Placed),
    /// Busy, and the owner has left a mark that it waits.
    Marked(Option<u64>, Undo),
    /// Others are to come first.
    HeldBack,
    /// The owner's earlier hold is ending: ask again.
    Gone,
    /// The owner's place in the queue is lost.
    Displaced,
    /// Somebody has come in as this owner, which nobody gave: another one is needed.
    Met,
}

/// A place in a queue in Redis.
pub(super) struct Placed {
    pub(super) stand: Stand,
    pub(super) undo: Undo,
}

/// A failed attempt. When it may have been carried out, dropping this has it undone.
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) doubt: Option<Undo>,
    /// True when another attempt would bring the same.
    pub(super) last: bool,
    /// True when the hold was had, too late, and is being given back: another attempt needs a hold of another number.
    pub(super) spent: bool,
    /// True when the wait was over before a server that answers had answered it.
    pub(super) cut_off: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, doubt: None, last: false, spent: false, cut_off: false }
    }
}

/// An acquire that may have happened unseen, or a place in a queue. Undone when dropped, unless it was found out, or used,
/// meanwhile.
pub(super) struct Undo {
    pub(super) target: Arc<Target>,
    pub(super) armed: bool,
    /// False for a place or a mark that is known: it is given up, and no copy of a command may come after it.
    pub(super) doubted: bool,
    /// True for a mark.
    pub(super) marks: bool,
}

impl Undo {
    pub(super) fn new(target: &Arc<Target>, doubted: bool) -> Self {
        Self { target: Arc::clone(target), armed: true, doubted, marks: false }
    }

    /// For a mark in Redis, which closing takes back too.
    fn mark(target: &Arc<Target>) -> Self {
        target.engine.queues.mark(target);
        Self { target: Arc::clone(target), armed: true, doubted: false, marks: true }
    }

    pub(super) fn settle(undo: &mut Option<Self>) {
        if let Some(mut undo) = undo.take() {
            undo.armed = false;
        }
    }

    /// Left again, by a later attempt: the one mark stays.
    pub(super) fn keep(mark: &mut Option<Self>, again: Self) {
        // First the old one goes off the list of marks, then the new one comes onto it.
        Self::settle(mark);
        again.target.engine.queues.mark(&again.target);
        *mark = Some(again);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if self.marks {
            self.target.engine.queues.unmark(&self.target);
        }
        if self.armed {
            release::undo(Arc::clone(&self.target), self.doubted);
        }
    }
}

impl Wish {
    /// What attempts are made for.
    pub(super) fn target(&self) -> Arc<Target> {
        let hold = Hold::new(Arc::clone(&self.protocol), self.owner.clone());
        if self.fresh {
            let Some(_) = self.protocol.queue() else { return Target::fresh(&self.engine, hold) };
            let mut nonce = format!("{:016x}", self.engine.topology.random()).into_bytes();
            if let HoldId::Listed(id) = self.engine.hold_id(&self.owner, self.number) {
                nonce.extend([b"=", &id[..]].concat());
            }
            return Target::fresh_by(&self.engine, hold, self.number, Bytes::from(nonce));
        }
        self.target_of(hold, self.number)
    }

    /// The same for the hold of this number, of an owner that was given.
    pub(super) fn target_of(&self, hold: Arc<Hold>, number: u64) -> Arc<Target> {
        // Others may wait as this owner: whoever is granted it asks, so that the server counts each.
        let nonce = match self.engine.hold_id(&self.owner, number) {
            HoldId::Listed(id) => Bytes::from([b"!", &id[..]].concat()),
            _ => Bytes::new(),
        };
        Target::reserve(&self.engine, hold, number, nonce)
    }

    /// One attempt, to be carried through whatever becomes of the caller.
    pub(super) fn attempt(&self, target: &Arc<Target>, doubted: bool, turn: Turn) -> Finished<Result<Tried, Failed>> {
        let (target, lease, station) = (Arc::clone(target), self.lease, self.station.clone());
        let (alone, numbers) = (self.alone, self.protocol.numbers());
        // Of an owner that was made for this nobody else has a hold; but a hold before this one may have been given back.
        let first = self.new && target.number == self.number;
        let used_again = self.fresh && self.number > 0;
        Finished::new(&self.engine.reaper, async move {
            let Target { engine, hold, .. } = &*target;
            let _order = hold.order.lock().await;
            let protocol = &hold.protocol;
            if protocol.numbers() != numbers {
                let what = format!(
                    "the owner has to do with the lock {:?} as {}: a fenced lock's sections all have numbers, and no others",
                    protocol.name().plain,
                    protocol.flavour()
                );
                return Err(Error::Config { what }.into());
            }
            let span = lease.unwrap_or(engine.options.watchdog);
            let cut_until = Moment::from_nanos(hold.book().cut_until());
            // A command that shortens the lease may come in late: not behind this one.
            engine.after(cut_until).await;
            let (before, rest, earlier) = {
                let book = hold.book();
                // A release queued for the order behind us comes first: it ends this hold.
                if book.is_closed() || book.end().is_some() || (book.is_idle() && book.count() > 0) {
                    return Ok(Tried::Gone);
                }
                (book.count(), Moment::from_nanos(book.until_all()), book.holds().last())
            };
            let deadlock = |why| {
                let error = Error::WouldDeadlock { name: Arc::clone(&protocol.name().plain), why };
                Failed { last: true, ..error.into() }
            };
            let of_other = |name: &Arc<LockName>| engine.holds.count(&(Arc::clone(name), hold.owner.clone()));
            if alone && (before > 0 || protocol.other().is_some_and(|name| of_other(name) > 0)) {
                return Err(deadlock(Deadlock::NotReentrant));
            }
            // Coming in again never shortens what the holds before it were promised.
            let comes_in = before > 0 && !protocol.leases_apart();
            let hold_id = target.id();
            let limited = hold_id != HoldId::Only && !first;
            // A last moment costs nothing where the server's clock is known.
            let clock_known = hold_id != HoldId::Only && engine.clock.is_known(engine.now());
            let waits = turn != Turn::Once;
            let queues = waits && protocol.queue().is_some();
            let stands = waits && release::waits_in_redis(protocol);
            let undo = || Some(Undo::new(&target, true));
            // Nobody knows what stands behind a reply that no script of ours gives.
            let odd = |error| Failed { doubt: undo(), last: true, ..Failed::from(error) };
            let mut refusals = Refusals::default();
            let (sent, attempt) = loop {
                let sent = engine.now();
                let armed = if comes_in { span.max(lease_until(sent, rest)) } else { span };
                let call = protocol.acquire(&Ask {
                    owner: &hold.owner,
                    lease_ms: millis(armed),
                    hold: &hold_id,
                    earlier: earlier.map(|number| engine.hold_id(&hold.owner, number)),
                    last_ms: if limited || clock_known { engine.last_ms() } else { 0 },
                    // Of an owner that is used again nobody else has a hold, unless he read it in Redis.
                    alone: alone || used_again,
                    turn,
                    nonce: &target.nonce,
                    publish: engine.topology.publish(protocol.name()),
                });
                let reply = engine.topology.run(protocol.name(), call).await.map_err(|fault| {
                    let doubt = if fault.in_doubt() { undo() } else { None };
                    Failed { doubt, ..Error::from_fault(&fault, &protocol.name().plain).into() }
                })?;
                match protocol.acquired(reply).map_err(odd)? {
                    // Not carried out: the server's clock was not known, or stepped.
                    Attempt::TooLate(at) => {
                        refusals.add(&engine.clock, at, engine.now())?;
                    }
                    attempt => break (sent, attempt),
                }
            };
            match attempt {
                Attempt::Held | Attempt::Passed => {}
                // One that comes in again has the number already.
                Attempt::Numbered(number) if before == 0 => hold.begins(number),
                Attempt::Numbered(_) => {}
                Attempt::Busy(ttl, at) if before == 0 && queues => {
                    let undo = Undo::new(&target, false);
                    let station = station.unwrap_or_else(|| protocol.name().station(hold.owner.text()));
                    let stand = engine.queues.stand(&target, station, sent, at);
                    if let Some(ttl) = ttl.filter(|ttl| Duration::from_millis(*ttl) < engine.options.beat()) {
                        engine.queues.look_in(protocol, engine.now(), ttl);
                    }
                    // Closing gives up the places that it finds; what comes in behind it is given up here.
                    engine.check_open()?;
                    return Ok(Tried::Standing(Placed { stand, undo }));
                }
                Attempt::Busy(ttl, _) if before == 0 && stands => {
                    let mark = Undo::mark(&target);
                    // Closing takes back the marks that it finds; what comes in behind it is taken back here.
                    engine.check_open()?;
                    return Ok(Tried::Marked(ttl, mark));
                }
                Attempt::Busy(ttl, _) if before == 0 => return Ok(Tried::Busy(ttl)),
                Attempt::HeldBack if before == 0 => return Ok(Tried::HeldBack),
                Attempt::Deadlock if before == 0 && used_again => return Ok(Tried::Met),
                Attempt::Deadlock if before == 0 => {
                    return Err(deadlock(if alone { Deadlock::NotReentrant } else { Deadlock::Upgrade }));
                }
                Attempt::Displaced if before == 0 => return Ok(Tried::Displaced),
                Attempt::Gone => {
                    let Some(earlier) = earlier else {
                        return Err(odd(Error::odd_reply("acquire", &attempt)));
                    };
                    // Somebody else gave that one back. Guards may rely on others.
                    engine.gone(hold, &[earlier]);
                    return Ok(Tried::Gone);
                }
                Attempt::Busy(..)
                | Attempt::Displaced
                | Attempt::HeldBack
                | Attempt::Deadlock
                | Attempt::TooLate(_) => {
                    engine.lose(hold, End::Gone);
                    return Ok(Tried::Gone);
                }
            }
            let until = valid_until(sent, span);
            let level = engine.holds.open(hold.key(), hold, |book| {
                if doubted {
                    book.doubt(target.number);
                }
                book.open(engine.now().as_nanos(), target.number, lease.map(nanos), sent.as_nanos(), until.as_nanos())
            });
            let grant = Grant::new(Arc::clone(engine), Arc::clone(hold), level);
            // Closing ends what it finds in the table; what comes in behind it is given back here.
            engine.check_open()?;
            if grant.until().is_none() {
                // Came too late to be of use. Dropped, it is released.
                drop(grant);
                return Err(Failed { spent: true, ..Error::too_late().into() });
            }
            Ok(if attempt == Attempt::Passed { Tried::Passed(grant) } else { Tried::Held(grant) })
        })
    }

    /// Waits for an attempt until shortly after the end of the wait; the attempt itself goes on if need be, and what it comes to
    /// is undone. An attempt that is cut off so is no error of a server that answers: the wait has run out.
    pub(super) async fn bounded(&self, attempt: Finished<Result<Tried, Failed>>) -> Result<Tried, Failed> {
        let most = self.engine.options.command_timeout;
        let left = match self.until {
            None => return attempt.await,
            Some(until) if until == self.began => most,
            Some(until) => until.since(self.engine.now()) + GRACE,
        };
        // A command ends by itself; only those of an owner that was given may have others before them.
        if self.fresh && left >= most {
            return attempt.await;
        }
        tokio::time::timeout(left, attempt).await.unwrap_or_else(|_| {
            // A standstill of ours after the end of the wait is not the server's.
            let end = self.until.map_or(self.engine.now(), |until| self.engine.now().min(until + GRACE));
            let cut_off = !self.engine.topology.is_silent(self.protocol.name(), end);
            Err(Failed { last: true, cut_off, ..Error::Timeout { step: Step::Command }.into() })
        })
    }
}

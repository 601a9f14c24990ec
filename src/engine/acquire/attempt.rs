//! One attempt to acquire: what is sent, and what it brought.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Request;
use super::admission::Admitted;
use super::undo::Undo;
use crate::config::millis;
use crate::engine::clock::Refusals;
use crate::engine::hold::{Grant, Hold, Order, Target, lease_until, valid_until};
use crate::engine::ledger::{End, Entry as _};
use crate::engine::protocol::{Answer, Ask, Busy, HoldId, Protocol, Queueing};
use crate::engine::queue::EntryHandle;
use crate::engine::release;
use crate::engine::wait::GRACE;
use crate::error::{Deadlock, Error, Result};
use crate::names::LockName;
use crate::runtime::home::EndsWithRuntime;
use crate::runtime::reaper::Finished;
use crate::topology::{Answered, ServerClock};
use crate::transport::FaultKind;
use crate::world::Moment;

/// What one attempt brought.
pub(super) enum Tried {
    Held(Grant),
    /// As `Held`: the server had passed it on before.
    Passed(Grant),
    Busy(Busy),
    /// Busy, and the owner has a queue entry.
    Queued(InQueue),
    /// Busy, and the owner has left a mark that it waits.
    Marked(Busy, Undo),
    /// Others are to come first.
    HeldBack,
    /// The owner's earlier hold is ending: ask again.
    Gone,
    /// The owner's queue entry is lost.
    Displaced,
    /// Another client holds the lock as this owner, which it must have read in Redis: another owner is needed.
    OwnerTaken,
}

/// A queue entry, and what gives it up.
pub(super) struct InQueue {
    pub(super) entry: EntryHandle,
    pub(super) undo: Undo,
}

/// A failed attempt. When it may have been carried out, dropping this has it undone.
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) doubt: Option<Undo>,
    /// True when another attempt would bring the same.
    pub(super) would_repeat: bool,
    /// True when the lock was granted too late, or too few replicas know of it, so that the hold is being given back: another attempt
    /// needs a hold of another number.
    pub(super) spent: bool,
    /// True when the wait was over before the command was answered or sent, and the server answers others.
    pub(super) cut_off: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, doubt: None, would_repeat: false, spent: false, cut_off: false }
    }
}

impl Request {
    /// The hold that the attempts are to acquire.
    pub(super) fn target(&self) -> Arc<Target> {
        let hold = Hold::new(Arc::clone(&self.protocol), self.owner.clone());
        if self.fresh {
            let Some(_) = self.protocol.queue() else { return Target::fresh(&self.engine, hold) };
            let mut nonce = format!("{:016x}", self.engine.topology.world().random()).into_bytes();
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

    /// Waits until an attempt of a waiter may be made. Where the server is silent, for a command timeout at the most, after which it
    /// is made all the same, and fails as it must; a crowd that is slow stays in order.
    pub(super) async fn admitted(&self) -> Result<Option<Admitted>, Failed> {
        let (engine, name) = (&self.engine, self.protocol.name());
        let mut is_first = true;
        let within = || {
            let goes_on = std::mem::take(&mut is_first)
                || !self.deadline.is_over()
                    && engine.check_open().is_ok()
                    && !engine.topology.is_silent(name, engine.now());
            goes_on.then(|| self.deadline.at_most(engine.options.command_timeout))
        };
        let admitted = engine.attempts.admit(name, within).await;
        if admitted.is_none() && self.deadline.is_over() {
            return Err(Box::pin(self.cut_off()).await);
        }
        Ok(admitted)
    }

    /// One attempt, to be carried through whatever becomes of the caller.
    pub(super) fn attempt(
        &self,
        target: &Arc<Target>,
        doubted: bool,
        manner: Manner,
        admitted: Option<Admitted>,
    ) -> Finished<Attempted> {
        let attempt = Attempt {
            target: Arc::clone(target),
            lease: self.lease,
            inbox: self.inbox.clone(),
            not_reentrant: self.not_reentrant,
            fenced: self.protocol.nature().fenced,
            // Of an owner that was made for this nobody else has a hold; but a hold before this one may have been given back.
            first: self.holds_nothing && target.number == self.number,
            fresh: self.fresh,
            used_again: self.fresh && self.number > 0,
            doubted,
            _admitted: admitted,
            manner: Manner { looks: manner.looks || doubted, ..manner },
        };
        Finished::at_home(&self.engine.reaper, attempt.make())
    }

    /// Waits for an attempt until shortly after the end of the wait, or for a command timeout if the wait is zero. An attempt that is cut
    /// off continues in the background, and its outcome is undone. The wait has then run out if the server answers others and another
    /// holder was seen. A single attempt (a wait of zero) fails in any case.
    pub(super) async fn bounded(&self, attempt: Finished<Attempted>) -> Result<Tried, Failed> {
        // Without a limit it lasts as long as the transport lets its command; so does a single attempt of an owner that has no
        // other command before this one.
        if self.deadline.left().is_none() || (self.deadline.is_once() && self.fresh) {
            return attempt.await.outcome;
        }
        // In a box: a waiter is the smaller for it, for as long as it waits.
        Box::pin(self.bounded_by_deadline(attempt)).await
    }

    async fn bounded_by_deadline(&self, mut attempt: Finished<Attempted>) -> Result<Tried, Failed> {
        if let Some(tried) = self.deadline.answered(self.engine.options.command_timeout, &mut attempt).await {
            return tried.outcome;
        }
        tokio::select! {
            biased;
            tried = &mut attempt => tried.outcome,
            failed = self.cut_off() => Err(failed),
        }
    }

    /// The wait is over, and an attempt has not been answered.
    async fn cut_off(&self) -> Failed {
        let name = self.protocol.name();
        let silent = self.deadline.finds_silent(GRACE, |at| self.engine.topology.is_silent(name, at)).await;
        Failed { would_repeat: true, cut_off: !silent, ..self.engine.topology.missing(name).into() }
    }
}

/// What an attempt came to. Where nobody came to use it, it is given up before the owner's next command looks into the book: that
/// must not meet a hold on which nobody relies, and take its owner for one that waits for itself.
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

/// How an attempt treats others, and what its refusal is to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) queueing: Queueing,
    /// False where the flavour would let others go first, and this one has waited for them for long enough.
    pub(super) gives_way: bool,
    /// True when a refusal is to say for how long the lock is held.
    pub(super) looks: bool,
}

/// One attempt: from the book to the server and back to the book.
struct Attempt {
    target: Arc<Target>,
    /// None: the watchdog's.
    lease: Option<Duration>,
    inbox: Option<Arc<LockName>>,
    /// True when the owner must hold nothing yet.
    not_reentrant: bool,
    /// True when the lock that was asked for gives every section a fencing token.
    fenced: bool,
    /// True when the owner has had no hold before this one.
    first: bool,
    /// True when the owner was made by this client, for this acquire or for an earlier one.
    fresh: bool,
    /// True when it was for an earlier one.
    used_again: bool,
    /// True when an attempt before this one for the same hold may have been carried out.
    doubted: bool,
    manner: Manner,
    /// Makes room for another when this one is answered.
    _admitted: Option<Admitted>,
}

/// What the book says of the owner's holds before an attempt.
struct Before {
    /// How many there are.
    count: u32,
    /// Until when guards were promised the lock.
    until: Moment,
    /// The number of the last of them.
    last: Option<u64>,
}

impl Attempt {
    async fn make(self) -> Attempted {
        // One command of an owner at a time: what is sent next depends on what came before.
        let order = self.target.hold.in_order().await;
        Attempted { outcome: self.make_in_order().await, _order: Some(order) }
    }

    async fn make_in_order(self) -> Result<Tried, Failed> {
        let hold = Arc::clone(&self.target.hold);
        self.check_flavour()?;
        let cut_until = Moment::from_nanos(hold.book().cut_until());
        // A command that shortens the lease may come in late: not behind this one.
        self.target.engine.after(cut_until).await;
        let Some(before) = self.look_into_book() else { return Ok(Tried::Gone) };
        self.check_reentry(&before)?;
        let (sent, answer) = self.send(&before).await?;
        let passed = match answer {
            Answer::Held => false,
            Answer::Passed => true,
            Answer::Fenced(token) => {
                // A hold that comes in again has the token already.
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

    /// An owner has to do with a name as one flavour at a time.
    fn check_flavour(&self) -> Result<(), Failed> {
        let protocol = self.protocol();
        if protocol.nature().fenced == self.fenced {
            return Ok(());
        }
        let what = format!(
            "the owner has to do with the lock {:?} as {}: a fenced lock's sections all have numbers, and no others",
            protocol.name().as_written,
            protocol.flavour()
        );
        Err(Error::Config { what }.into())
    }

    /// None when the earlier hold of the owner is ending: its release waits for the order, and has to come first.
    fn look_into_book(&self) -> Option<Before> {
        let book = self.target.hold.book();
        if book.is_closed() || book.end().is_some() || (book.is_idle() && book.count() > 0) {
            return None;
        }
        Some(Before { count: book.count(), until: Moment::from_nanos(book.until_all()), last: book.holds().last() })
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

    /// A reply that no script of ours gives: whether the lock was taken is in doubt.
    fn odd(&self, error: Error) -> Failed {
        Failed {
            doubt: Some(Undo::new(&self.target, true).leased(self.lease)),
            would_repeat: true,
            ..Failed::from(error)
        }
    }

    /// Sends the acquire, anew where the server's clock was not known well enough. Returns when it was sent.
    async fn send(&self, before: &Before) -> Result<(Moment, Answer), Failed> {
        let Target { engine, hold, .. } = &*self.target;
        let protocol = self.protocol();
        let lease = self.lease.unwrap_or(engine.options.watchdog);
        // Coming in again never shortens what the holds before it were promised.
        let comes_in = before.count > 0 && !protocol.nature().leases_apart;
        let hold_id = self.target.id();
        // A last moment costs nothing where the server's clock is known. Without a last moment, a copy that comes late takes a
        // lock that nobody waits for, which is undone; but it may also join a queue.
        let leaves_traces = hold_id != HoldId::Only || protocol.queue().is_some();
        let must_end = hold_id != HoldId::Only && !self.first;
        let is_limited = must_end || (leaves_traces && engine.clock(protocol.name()).is_known(engine.now()));
        let waits_in_queue = self.manner.queueing != Queueing::Ask && protocol.queue().is_some();
        let mut refusals = Refusals::default();
        loop {
            let sent = engine.now();
            let armed = if comes_in { lease.max(lease_until(sent, before.until)) } else { lease };
            let call = |clock: &ServerClock| {
                protocol.acquire(&Ask {
                    owner: &hold.owner,
                    lease_ms: millis(armed),
                    hold: &hold_id,
                    earlier: before.last.map(|number| engine.hold_id(&hold.owner, number)),
                    last_ms: if is_limited { clock.last(sent, engine.options.command_timeout) } else { 0 },
                    // Nobody else has a hold of an owner that is used again, unless they read the owner in Redis.
                    alone: self.not_reentrant || self.used_again,
                    queueing: self.manner.queueing,
                    gives_way: self.manner.gives_way,
                    looks: self.manner.looks,
                    nonce: &self.target.nonce,
                    publish: engine.topology.publish(),
                })
            };
            let answered = engine.topology.run_timed(protocol.name(), call).await;
            let Answered { reply, placement, clock } = answered.map_err(|fault| {
                let doubt = fault.in_doubt().then(|| Undo::new(&self.target, true).leased(self.lease));
                let error = fault.to_error(&protocol.name().as_written);
                // It is held, but too few replicas have that: undone at once, so that others may have it meanwhile.
                let spent = matches!(fault.kind, FaultKind::Unacknowledged { .. });
                Failed { doubt: doubt.filter(|_| !spent), spent, ..error.into() }
            })?;
            match protocol.acquired(&reply).map_err(|error| self.odd(error))? {
                // Not carried out: the server's clock was not known, or stepped.
                Answer::TooLate(at) => refusals.add(&clock, at, engine.now())?,
                _ if engine.topology.placement(protocol.name()) != placement => {
                    // Neither a yes nor a no counts of a server that may have lost the name before it answered.
                    let doubt = Some(Undo::new(&self.target, true).leased(self.lease));
                    return Err(Failed { doubt, ..Error::moved().into() });
                }
                answer => {
                    if let (Answer::Busy(busy), true) = (&answer, waits_in_queue)
                        && !clock.is_known(engine.now())
                    {
                        // So that what comes after has a last moment.
                        clock.learn(busy.at, engine.now());
                    }
                    return Ok((sent, answer));
                }
            }
        }
    }

    /// The owner held nothing, and does not get the lock now.
    fn read_refusal(&self, answer: Answer, before: &Before, sent: Moment) -> Result<Tried, Failed> {
        let protocol = self.protocol();
        let waits = self.manner.queueing != Queueing::Ask;
        match answer {
            Answer::Busy(busy) if waits && protocol.queue().is_some() => {
                let queued = self.keep_entry(busy, sent)?;
                Ok(Tried::Queued(queued))
            }
            Answer::Busy(busy) if waits && release::waits_in_redis(protocol) => {
                let mark = Undo::mark(&self.target);
                // Closing takes back the marks that it finds; a mark that is left after that is taken back here.
                self.target.engine.check_open()?;
                Ok(Tried::Marked(busy, mark))
            }
            Answer::Busy(busy) => Ok(Tried::Busy(busy)),
            Answer::HeldBack => Ok(Tried::HeldBack),
            Answer::Displaced => Ok(Tried::Displaced),
            Answer::Deadlock if self.used_again => Ok(Tried::OwnerTaken),
            // Nobody but this acquire has it: it is what an earlier attempt has left, whose undoing is on its way.
            Answer::Deadlock if self.fresh => Ok(Tried::Busy(Busy { ttl: None, at: 0, announced: true })),
            Answer::Deadlock => {
                Err(self.deadlock(if self.not_reentrant { Deadlock::NotReentrant } else { Deadlock::Upgrade }))
            }
            answer => self.read_loss(&answer, before),
        }
    }

    /// The owner stands in the queue: keeps its entry.
    fn keep_entry(&self, Busy { ttl, at, .. }: Busy, sent: Moment) -> Result<InQueue, Failed> {
        let Target { engine, hold, .. } = &*self.target;
        let undo = Undo::new(&self.target, false);
        let known = self.inbox.clone().or_else(|| engine.queues.inbox_of(&self.target));
        let inbox = known.unwrap_or_else(|| hold.name().inbox(hold.owner.text()));
        let entry = engine.queues.keep_entry(&self.target, inbox, sent, at);
        if let Some(ttl) = ttl.filter(|ttl| Duration::from_millis(*ttl) < engine.options.beat()) {
            engine.queues.check_in(self.protocol(), engine.now(), ttl);
        }
        // Closing gives up the entries that it finds; an entry that is made after that is given up here.
        engine.check_open()?;
        Ok(InQueue { entry, undo })
    }

    /// The owner was to come in again, and has nothing there any more.
    fn read_loss(&self, answer: &Answer, before: &Before) -> Result<Tried, Failed> {
        let Target { engine, hold, .. } = &*self.target;
        match (answer, before.last) {
            // Somebody else gave that hold back. Guards may rely on other holds of the owner.
            (Answer::Gone, Some(earlier)) => {
                engine.lose_holds(hold, &[earlier]);
            }
            (Answer::Gone, None) => return Err(self.odd(Error::odd_reply("acquire", answer))),
            _ => engine.lose(hold, End::Gone),
        }
        Ok(Tried::Gone)
    }

    /// Notes the hold in the book, which makes it a grant.
    fn open(&self, sent: Moment) -> Result<Grant, Failed> {
        let engine = &self.target.engine;
        let until = valid_until(sent, self.lease.unwrap_or(engine.options.watchdog));
        let grant = self.target.granted(self.lease, sent, until, self.doubted);
        // Closing ends the holds that it finds in the table; a hold that is granted after that is given back here.
        engine.check_open()?;
        if grant.until().is_none() {
            // The grant came too late to be of use. Dropped, it is released.
            drop(grant);
            return Err(Failed { spent: true, ..Error::too_late().into() });
        }
        Ok(grant)
    }
}

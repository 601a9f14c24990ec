//! An acquire, from its options to a [`Grant`].
//!
//! 1. [`acquire`] builds a [`Request`]: owner, lease, deadline.
//! 2. Without a wait, the request makes one attempt. With a wait, it queues in this process (`local`), or in Redis for
//!    a fair lock (`queued`). The waiting loop is [`super::wait`].
//! 3. `attempts` makes one attempt after another, and decides what an error or a lost reply means for the next attempt.
//! 4. `attempt` sends one command and reads its reply. An attempt is completed even if the caller is dropped. A result
//!    that no caller takes is undone (`undo`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::Instrument as _;

pub(crate) mod admission;
mod attempt;
mod attempts;
pub(crate) mod batch;
mod local;
mod queued;
mod undo;

use super::Engine;
use super::hold::Grant;
use super::protocol::{Protocol, Queueing};
use super::wait::Deadline;
use crate::acquire::Acquire;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::owner::Owner;
use crate::state::State;
use attempt::{Manner, Tried};

/// An acquire with its options resolved.
struct Request {
    engine: Arc<Engine>,
    protocol: Arc<dyn Protocol>,
    owner: Owner,
    /// Explicit lease, or `None` to let the watchdog renew.
    lease: Option<Duration>,
    /// The lock delay: the server keeps the lock for this much longer than the lease.
    delay: Duration,
    /// True if the caller gave no owner, so that the client may replace the owner.
    fresh: bool,
    /// True if the acquire fails when the owner holds the lock already.
    not_reentrant: bool,
    /// True if the owner was chosen for this acquire, so that it holds nothing.
    holds_nothing: bool,
    /// Number from which the id of the hold to acquire is made ([`Engine::hold_id`]). 0 if the client has just created
    /// the owner, which then has no earlier hold.
    number: u64,
    /// For a queue in Redis: the inbox channel of a reused owner. The message that grants the lock arrives there.
    inbox: Option<Arc<LockName>>,
    deadline: Deadline,
    /// Limit on how long failed attempts are retried.
    patience: Duration,
    /// True if the wait ran out during an attempt, an earlier answer reported another holder, and no attempt has failed
    /// since the last answer. Then the acquire returns `Ok(None)`, not an error.
    ran_out: AtomicBool,
}

/// Acquires the lock with the options `how`. Returns None if the wait ran out. Runs on the client's runtime.
pub(crate) async fn acquire(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>, how: Acquire) -> Result<Option<Grant>> {
    let home = engine.home();
    if home.is_here() {
        let mut request = Request::new(engine, protocol, how)?;
        let mut acquiring = std::pin::pin!(request.carry_out());
        let mut roaming = home.roaming();
        // The first poll is on the client's runtime, as `is_here` has just shown. Later polls may be on another
        // runtime, so they go through `roaming`.
        let mut is_first = true;
        return std::future::poll_fn(|context| {
            if std::mem::take(&mut is_first) {
                acquiring.as_mut().poll(context)
            } else {
                roaming.poll(acquiring.as_mut(), context)
            }
        })
        .await;
    }
    // `Request::new` starts the deadline. If it ran here, a standstill of the client's runtime would count as waiting
    // time, and the server would look silent.
    let (engine, protocol) = (Arc::clone(engine), Arc::clone(protocol));
    home.run(async move { Request::new(&engine, &protocol, how)?.carry_out().await }).await
}

impl Request {
    fn new(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>, how: Acquire) -> Result<Self> {
        how.check()?;
        if !protocol.nature().is_exclusive() {
            how.check_no_lock_delay(protocol.flavour())?;
        }
        engine.check(protocol.name())?;
        engine.check_open()?;
        let deadline = Deadline::new(engine.topology.world(), how.wait, how.waited_before);
        // Permits have no owner.
        let may_use_scope = !how.is_inner && !protocol.nature().is_counted();
        let given = how.owner.or_else(|| Owner::current().filter(|_| may_use_scope));
        let fresh = given.is_none();
        if let Some(owner) = &given {
            // The caller may reuse this owner, so the client must not recycle it for other acquires.
            owner.reveal();
        }
        let queues = !deadline.is_once() && protocol.queue().is_some();
        let (owner, inbox) = match given {
            Some(owner) => (owner, None),
            None => match queues.then(|| engine.registry.spare(protocol.name())).flatten() {
                Some((owner, inbox)) => (owner, Some(inbox)),
                None => (engine.owner(), None),
            },
        };
        // An owner that the caller gave, or that the client reuses, needs an id for this hold, because a late command
        // of another of its holds may still arrive.
        let listed = !fresh || inbox.is_some();
        Ok(Self {
            engine: Arc::clone(engine),
            protocol: Arc::clone(protocol),
            owner,
            lease: how.lease,
            delay: how.lock_delay,
            fresh,
            not_reentrant: how.not_reentrant || !protocol.nature().reentrant,
            holds_nothing: fresh || how.holds_nothing,
            number: if listed { engine.hold_number() } else { 0 },
            inbox,
            deadline,
            patience: if how.ends_with_failure { Duration::ZERO } else { engine.patience() },
            ran_out: AtomicBool::new(false),
        })
    }

    async fn carry_out(&mut self) -> Result<Option<Grant>> {
        let name = &self.protocol.name().as_written;
        let span = tracing::debug_span!("acquire", lock.name = %name, lock.flavour = self.protocol.flavour());
        let acquiring = async {
            if self.deadline.is_once() {
                self.once().await
            } else if self.protocol.queue().is_some() {
                self.queue_up().await
            } else {
                self.wait().await
            }
        };
        let outcome = match acquiring.instrument(span).await {
            // The unanswered attempt continues in the background, and is undone.
            Err(_) if self.ran_out.load(Ordering::Relaxed) => Ok(None),
            Err(error @ Error::WrongType { .. }) => {
                let most = self.engine.options.command_timeout;
                let limit = if self.deadline.is_once() { most } else { self.deadline.at_most(most) };
                Err(self.engine.with_type(error, &*self.protocol, limit).await)
            }
            outcome => outcome.map_err(|error| error.about(&self.protocol.name().as_written)),
        };
        if self.others_may_wait_as_owner() && matches!(outcome, Ok(Some(_))) {
            self.wake_same_owner();
        }
        self.note(&outcome);
        outcome
    }

    /// Tries once, without queueing.
    async fn once(&self) -> Result<Option<Grant>> {
        // `waited_before`: how long a group acquire has waited already. Once that reaches the option
        // `max_reader_delay`, a read attempt no longer yields to waiting writers.
        let before = self.deadline.waited_before();
        let goes_first =
            self.protocol.nature().is_shared() && !before.is_zero() && before >= self.engine.options.max_reader_delay;
        let manner = Manner { queueing: Queueing::Ask, gives_way: !goes_first, looks: false };
        loop {
            match self.bounded(self.attempt(&self.target(), false, manner, None)).await {
                Ok(Tried::Held(grant) | Tried::Passed(grant)) => return Ok(Some(grant)),
                Ok(
                    Tried::Busy(_)
                    | Tried::Queued(_)
                    | Tried::Marked(..)
                    | Tried::Displaced
                    | Tried::OwnerTaken
                    | Tried::HeldBack,
                ) => {
                    return Ok(None);
                }
                Ok(Tried::Gone) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(failed) => return Err(failed.error),
            }
        }
    }

    /// True if other acquires may wait as the same owner. When one of them succeeds, the others may re-enter.
    fn others_may_wait_as_owner(&self) -> bool {
        !self.holds_nothing && !self.not_reentrant
    }

    /// True if the owner already holds the lock through another acquire. For a reader, a hold of the write half counts
    /// too, because a writer may read.
    fn is_in(&self) -> bool {
        let holds = |name: &Arc<LockName>| self.engine.holds.is_relied_on(&(Arc::clone(name), self.owner.clone()));
        let other = || self.protocol.other().filter(|_| self.protocol.nature().is_shared());
        self.others_may_wait_as_owner() && (holds(self.protocol.name()) || other().is_some_and(holds))
    }

    /// Wakes other waiters of the same owner, which may re-enter now.
    fn wake_same_owner(&self) {
        let registry = &self.engine.registry;
        if self.protocol.queue().is_some() {
            return registry.wake(&self.protocol.name().inbox(self.owner.text()));
        }
        registry.wake_same_owner(self.protocol.name(), &self.owner);
        if let Some(other) = self.protocol.other().filter(|_| !self.protocol.nature().is_shared()) {
            registry.wake_same_owner(other, &self.owner);
        }
    }

    fn note(&self, outcome: &Result<Option<Grant>>) {
        // A closure, so that the clock is read only if metrics or logs are enabled.
        let waited = || self.deadline.elapsed();
        let flavour = self.protocol.flavour();
        let name = &self.protocol.name().as_written;
        match outcome {
            Ok(Some(grant)) => {
                super::metrics::acquired(flavour, waited);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, owner = grant.hold.owner.text(), waited = ?waited(), "acquired");
            }
            Ok(None) if self.deadline.is_once() => {
                super::metrics::busy(flavour);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, "busy");
            }
            Ok(None) => {
                super::metrics::timed_out(flavour, waited);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, waited = ?waited(), "wait ran out");
            }
            Err(error) => {
                super::metrics::failed(flavour);
                tracing::debug!(lock.name = %name, lock.flavour = flavour, %error, "acquire failed");
            }
        }
    }
}

/// Queries the primary for a lock's holders and remaining lease.
pub(crate) async fn state(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>) -> Result<State> {
    let reply = engine.ask(protocol.name(), protocol.state()).await?;
    let (ttl, holders) = protocol.stated(&reply)?;
    Ok(State { holders, remaining: u64::try_from(ttl).ok().map(Duration::from_millis) })
}

//! What all flavours share: the servers, the registry of waiters, the renewal scheduler, the reaper.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::config::Options;
use crate::error::{Error, Result, Step};
use crate::owner::{Owner, Owners, client_id};

pub(crate) mod acquire;
pub(crate) mod channels;
pub(crate) mod clock;
pub(crate) mod extend;
pub(crate) mod hold;
pub(crate) mod ledger;
pub(crate) mod metrics;
pub(crate) mod preflight;
pub(crate) mod protocol;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod replies;
pub(crate) mod simple;
pub(crate) mod suspend;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
pub(crate) mod wait;

use crate::names::LockName;
use crate::runtime::home::{Brought, Home};
use crate::runtime::reaper::{Finished, Reaper};
use crate::topology::{MemberListener, Topology};
use crate::transport::coalesce::Coalesced;
use crate::transport::{Call, Reply, Transport};
use crate::world::Moment;
use hold::{Hold, Holds};
use ledger::{Book, End, Entry as _};
use protocol::{HoldId, Protocol};
use queue::Queues;
use registry::Registry;
use renewal::Kick;

/// How many parts the table of holds is locked in.
const SHARDS: usize = 16;

/// One client's machinery.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) topology: Topology,
    pub(crate) registry: Arc<Registry>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) holds: Holds,
    pub(crate) reaper: Reaper,
    /// The client's uuid: version 8, so that scripts can tell our owners from Java's, which are version 4.
    pub(crate) id: Arc<str>,
    /// What the ids of this client's holds begin with.
    id_prefix: Box<str>,
    owners: Owners,
    /// Those of locks that are made of others, of which one of this client's is the first: their holds are not this client's
    /// alone. Made when the first is asked for.
    group_owners: OnceLock<Owners>,
    /// The number of the last hold of an owner that can be used again.
    taken: AtomicU64,
    closing: watch::Sender<bool>,
    closed: AtomicBool,
}

/// What keeps a client open: every clone, lock object and guard has a share in it.
pub(crate) struct Handle {
    engine: Arc<Engine>,
}

impl Handle {
    pub(crate) fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self { engine })
    }

    pub(crate) const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(work) = self.engine.shut_down(self.engine.options.command_timeout) {
            work.detach();
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("id", &self.id).field("holds", &self.holds.len()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts the machinery over one server, on the current runtime.
    pub(crate) fn start(options: Options, server: Arc<dyn Transport>) -> Arc<Self> {
        let (world, reaper) = (server.world(), Reaper::start());
        let server = if options.coalesce { Coalesced::over(server, &options, reaper.clone()) } else { server };
        Self::start_over(Topology::single(server, world), options, reaper)
    }

    pub(crate) fn start_over(topology: Topology, options: Options, reaper: Reaper) -> Arc<Self> {
        let world = topology.world();
        let id = client_id(&**world);
        let kick = Arc::new(Kick::default());
        let (closing, closed) = watch::channel(false);
        let registry = Registry::new(&options, topology.clone(), reaper.clone(), Arc::clone(&kick), closed.clone());
        let registry = Arc::new(registry);
        let listener: Arc<dyn MemberListener> = Arc::<Registry>::clone(&registry);
        topology.listen(&Arc::downgrade(&listener));
        let watchdog = options.watchdog;
        let queues = Arc::new(Queues::default());
        let engine = Arc::new(Self {
            options,
            topology,
            registry,
            queues: Arc::clone(&queues),
            holds: Holds::new(SHARDS),
            reaper,
            id_prefix: format!("{}{}.", &id[..8], &id[9..13]).into(),
            owners: Owners::new(&id),
            group_owners: OnceLock::new(),
            id: Arc::from(id),
            taken: AtomicU64::new(0),
            closing,
            closed: AtomicBool::new(false),
        });
        tokio::spawn(queue::run(Arc::downgrade(&engine), queues, closed.clone()));
        tokio::spawn(suspend::run(Arc::downgrade(&engine), closed.clone()));
        tokio::spawn(renewal::run(Arc::downgrade(&engine), kick, closed, watchdog));
        engine
    }

    pub(crate) fn now(&self) -> Moment {
        self.topology.now()
    }

    /// The runtime that this client lives on.
    pub(crate) fn home(&self) -> &Home {
        self.reaper.home()
    }

    /// Asks the server of a lock something that changes nothing.
    pub(crate) fn ask(self: &Arc<Self>, name: &Arc<LockName>, call: Call) -> Brought<Result<Reply>> {
        let (engine, name) = (Arc::clone(self), Arc::clone(name));
        self.home().bring(async move {
            let reply = engine.topology.run(&name, call).await;
            reply.map_err(|fault| fault.to_error(&name.plain))
        })
    }

    /// A new owner, of a number never used before by this client.
    pub(crate) fn owner(&self) -> Owner {
        self.owners.fresh()
    }

    /// A new owner of a lock that is made of others.
    pub(crate) fn group_owner(&self) -> Owner {
        self.group_owners.get_or_init(|| Owners::new(&client_id(&**self.topology.world()))).fresh()
    }

    /// A number for a hold that is about to be acquired, never used before by this client.
    pub(crate) fn hold_number(&self) -> u64 {
        self.taken.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How Redis knows the hold of this number, whichever client asks: by the client's random part and the number.
    pub(crate) fn hold_id(&self, owner: &Owner, number: u64) -> HoldId {
        match number {
            0 if owner.is_known() => HoldId::Unlisted,
            0 => HoldId::Only,
            number => HoldId::Listed(Bytes::from(format!("{}{number}", self.id_prefix))),
        }
    }

    /// The ids of these holds as a list, as a renewal is told of those that are relied on. Empty where there is but one, and
    /// will be.
    pub(crate) fn hold_ids(&self, owner: &Owner, numbers: &[u64]) -> Bytes {
        let mut ids = Vec::new();
        for number in numbers {
            match self.hold_id(owner, *number) {
                HoldId::Only if numbers.len() > 1 => ids.extend(b",-"),
                HoldId::Listed(id) => ids.extend([b",", &id[..]].concat()),
                HoldId::Unlisted => ids.extend(b",-"),
                HoldId::Only | HoldId::Any => {}
            }
        }
        Bytes::from(ids)
    }

    /// As [`Engine::hold_ids`], for the `n`th command that makes the lease of the first of them shorter.
    pub(crate) fn hold_ids_cut(&self, owner: &Owner, numbers: &[u64], n: u64) -> Bytes {
        let ids = self.hold_ids(owner, numbers);
        let first = ids.iter().skip(1).position(|byte| *byte == b',').map_or(ids.len(), |at| at + 1);
        Bytes::from([&ids[..first], format!("~{n}").as_bytes(), &ids[first..]].concat())
    }

    /// The number of a hold of this client's, from its id.
    pub(crate) fn number_of(&self, id: &[u8]) -> Option<u64> {
        std::str::from_utf8(id).ok()?.strip_prefix(&*self.id_prefix)?.parse().ok()
    }

    /// Done once a moment has passed; at once where it has.
    pub(crate) async fn after(&self, moment: Moment) {
        if moment.as_nanos() == 0 {
            // There never was one.
            return;
        }
        let left = moment.since(self.now());
        // A timer of nothing takes a millisecond, and others overtake.
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// How long an operation goes on in the face of errors that pass.
    pub(crate) fn patience(&self) -> Duration {
        let once = self.options.command_timeout.saturating_add(self.options.retry_delay.1);
        once.saturating_mul(self.options.retry_attempts)
    }

    /// The pause after so many failures: brief the first time, then half fixed, half random.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let pause = wait::pause(&**self.topology.world(), self.options.retry_delay, failures);
        if failures == 0 { pause / 10 } else { pause }
    }

    /// A random duration below `most`.
    pub(crate) fn jitter(&self, most: Duration) -> Duration {
        self.topology.world().jitter(most)
    }

    /// A random number from 0 to 1.
    pub(crate) fn random(&self) -> f64 {
        self.topology.world().fraction()
    }

    /// Ends a hold that was not released, tells whoever relies on it, and has the rest cleaned up.
    pub(crate) fn lose(self: &Arc<Self>, hold: &Arc<Hold>, end: End) {
        if hold.finish(end) {
            self.ended(hold, end);
        }
    }

    /// Ends what the watchdog kept for guards that are over by the clock. How many guards that concerns.
    pub(crate) fn expire(self: &Arc<Self>, hold: &Arc<Hold>) -> usize {
        self.lose_some(hold, End::Expired, |book| book.lose_over(self.now().as_nanos()))
    }

    /// Ends these holds of an owner's, which the server does not have any more. How many guards that concerns.
    pub(crate) fn gone(self: &Arc<Self>, hold: &Arc<Hold>, numbers: &[u64]) -> usize {
        self.lose_some(hold, End::Gone, |book| book.lose(End::Gone, numbers))
    }

    fn lose_some(self: &Arc<Self>, hold: &Arc<Hold>, end: End, lose: impl FnOnce(&mut Book) -> Vec<u64>) -> usize {
        let (lost, tenure) = {
            let mut book = hold.book();
            if book.end().is_some() {
                return 0;
            }
            let lost = lose(&mut book);
            if end == End::Gone && lost.is_empty() {
                book.refuted_idle();
            }
            if !lost.is_empty() && book.is_idle() && book.count() as usize == lost.len() {
                // Nothing else is left of it.
                let _ = book.finish(end);
            }
            (lost, book.tenure())
        };
        let count = lost.len();
        if count > 0 {
            self.tell_lost(hold, end, lost, tenure);
        }
        count
    }

    /// The server said that it has nothing of this hold, asked during `tenure`. How many guards that is news to.
    pub(crate) fn refuted(self: &Arc<Self>, hold: &Arc<Hold>, tenure: u32) -> usize {
        if hold.refuted(tenure) { self.ended(hold, End::Gone) } else { 0 }
    }

    /// As [`Engine::lose`], for a hold whose book says already that it ended. How many guards that concerns.
    fn ended(self: &Arc<Self>, hold: &Arc<Hold>, end: End) -> usize {
        let (lost, tenure): (Vec<u64>, _) = {
            let book = hold.book();
            (book.holds().collect(), book.tenure())
        };
        let count = lost.len();
        self.tell_lost(hold, end, lost, tenure);
        count
    }

    /// Somebody gave back a hold, by its owner, that a guard of this client may rely on.
    pub(crate) fn released_elsewhere(
        self: &Arc<Self>,
        protocol: &Arc<dyn Protocol>,
        owner: &Owner,
        which: impl FnOnce(&Hold) -> Vec<u64>,
    ) {
        if let Some(hold) = self.holds.get(&(Arc::clone(protocol.name()), owner.clone())) {
            let numbers = which(&hold);
            self.gone(&hold, &numbers);
        }
    }

    /// Tells of holds, by their numbers, that are over for those who relied on them, and gives them back.
    fn tell_lost(self: &Arc<Self>, hold: &Arc<Hold>, end: End, lost: Vec<u64>, tenure: u32) {
        hold.changed.notify_waiters();
        if end != End::Closed {
            metrics::lost(hold.protocol.flavour(), lost.len());
            tracing::warn!(lock.name = %hold.name().plain, owner = hold.owner.text(), ?end, "lock lost");
        }
        self.registry.forget(hold);
        release::relieve(self, hold, end, lost, tenure);
    }

    /// Shuts down: renewals stop, held locks are released, queued releases are sent, connections close. An error when
    /// that took longer than `within`; connections are closed then all the same.
    pub(crate) fn shut_down(self: &Arc<Self>, within: Duration) -> Option<Finished<Result<()>>> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return None;
        }
        let engine = Arc::clone(self);
        let work = async move {
            let until = engine.now() + within;
            // Ignored: nobody listens any more when every task has ended.
            let _ = engine.closing.send(true);
            engine.registry.wake_all();
            for target in engine.queues.targets() {
                release::undo(target, false);
            }
            // One that nobody relies on is being released, or asked for: then what it is granted is given back.
            for hold in engine.holds.collect(|book| book.end().is_none() && !book.is_idle()) {
                engine.lose(&hold, End::Closed);
            }
            // Itself not counted: it runs outside the reaper's account.
            let drained = tokio::time::timeout(within, engine.reaper.drained()).await.is_ok();
            let rest = until.since(engine.now()).max(Duration::from_millis(100));
            futures::future::join_all(engine.topology.transports().map(|transport| transport.close(rest))).await;
            engine.reaper.stop();
            if drained { Ok(()) } else { Err(Error::Timeout { step: Step::Shutdown }) }
        };
        Some(Finished::uncounted(&self.reaper, work))
    }
}

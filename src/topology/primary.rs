//! One primary for all names. Another server can become the primary.
//!
//! 1. [`sentinel`] finds the primary of a set by querying its sentinels. [`replicated`] queries the servers themselves.
//! 2. [`watch`] decides when to query: every `scan_interval`, and more often in doubt.
//! 3. `taking` makes another server the current primary, once that server itself reports that it is a primary.
//! 4. `channels` restores the subscriptions at the new primary.
//! 5. [`Primary::run`] sends commands to the current primary.
//!
//! The old primary gets no more commands. It may be cut off from its replicas, and accept writes that no other server
//! ever gets.
//!
//! Lock order: `taking` (held across awaits), then `current`, then `replicas`. The lock `broken` of a member comes
//! before `current`.

mod channels;
mod replicated;
mod sentinel;
mod taking;
#[cfg(test)]
mod tests;
mod watch;
mod witnesses;

use std::collections::BTreeSet;
use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::address::Address;
use super::clock::ServerClock;
use super::info::{ServerInfo, ServerRole, TopologyInfo, TopologyKind};
use super::member::{Member, MemberId, MemberListener, Subscriber};
use super::redirect::Redirect;
use super::role::{Replication, Role, replication, role};
use super::suspicion::Suspicion;
use super::{Answered, MemberClock, Placement, Settings};
use crate::error::Result;
use crate::runtime::standstill::within;
use crate::transport::coalesce::Coalesced;
use crate::transport::connector::{Connector, Purpose};
use crate::transport::{Call, Fault, FaultKind};
use crate::world::{Moment, World};
use taking::{Candidate, Known};
use watch::ANSWERS_WITHIN;
use witnesses::Witnesses;

/// The old primary has this long to answer commands in flight, unless it is silent.
const FAREWELL: Duration = Duration::from_secs(1);

/// Time that the primary has to answer a query if it is silent or one of its connections is broken.
const SILENT_WITHIN: Duration = Duration::from_millis(50);

/// Shortest and longest pause before a command that has not run is sent again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// A set of servers with one primary.
pub(crate) struct Primary {
    this: Weak<Self>,
    settings: Settings,
    connector: Arc<dyn Connector>,
    world: Arc<dyn World>,
    current: RwLock<Current>,
    /// Held while another server is checked and becomes the primary.
    taking: tokio::sync::Mutex<Candidate>,
    next: AtomicUsize,
    listener: OnceLock<Weak<dyn MemberListener>>,
    suspicion: Arc<Suspicion>,
    /// The channels that should be subscribed.
    channels: Mutex<BTreeSet<Bytes>>,
    sentinels: Witnesses,
    /// The servers that may become the primary.
    servers: Witnesses,
    /// The replicas of the set, including unreachable replicas.
    replicas: RwLock<BTreeSet<Address>>,
    identity: String,
    kind: TopologyKind,
    closed: AtomicBool,
    /// Start of the last query in which most sentinels named the current primary and considered it up, in ns of the
    /// local clock.
    confirmed: AtomicU64,
}

struct Current {
    member: Arc<Member>,
    address: Address,
    /// The highest config epoch at which sentinels have named this server.
    epoch: u64,
    /// Number of times that another server has become the primary.
    generation: usize,
    /// True if no sentinel has named this server yet: the client found it by its replication history or its role.
    is_early: bool,
    since: Instant,
    /// True while a connection to the server is broken.
    is_away: bool,
}

impl Current {
    fn placement(&self) -> Placement {
        Placement { member: self.member.id(), slot: 0, generation: self.generation }
    }
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Primary").field("of", &self.identity).field("at", &self.address()).finish_non_exhaustive()
    }
}

impl Primary {
    async fn of(
        settings: Settings,
        connector: Arc<dyn Connector>,
        world: Arc<dyn World>,
        (kind, identity): (TopologyKind, String),
        (address, epoch): (Address, u64),
        (sentinels, servers): (Witnesses, Witnesses),
    ) -> Result<Arc<Self>> {
        let transport = connect(&settings, &*connector, &address).await?;
        let member = Member::new(MemberId::new(0), transport, settings.acks);
        let current =
            Current { member, address, epoch, generation: 0, is_early: false, since: Instant::now(), is_away: false };
        let confirmed = AtomicU64::new(world.now().as_nanos());
        let primary = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            settings,
            connector,
            world,
            current: RwLock::new(current),
            taking: tokio::sync::Mutex::default(),
            next: AtomicUsize::new(1),
            listener: OnceLock::new(),
            suspicion: Arc::default(),
            channels: Mutex::default(),
            sentinels,
            servers,
            replicas: RwLock::default(),
            identity,
            kind,
            closed: AtomicBool::new(false),
            confirmed,
        });
        let subscriber: Weak<dyn Subscriber> = Weak::<Self>::clone(&primary.this);
        primary.member().report_ends(subscriber);
        Ok(primary)
    }

    pub(super) fn placement(&self) -> Placement {
        self.current.read().placement()
    }

    pub(super) fn member(&self) -> Arc<Member> {
        Arc::clone(&self.current.read().member)
    }

    fn address(&self) -> Address {
        self.current.read().address.clone()
    }

    fn now(&self) -> (Arc<Member>, Placement) {
        let current = self.current.read();
        (Arc::clone(&current.member), current.placement())
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn info(&self) -> TopologyInfo {
        let (primary, at) = {
            let current = self.current.read();
            let since = Some(current.since.elapsed());
            let epoch = (self.kind == TopologyKind::Sentinel).then_some(current.epoch);
            let address = current.address.to_string();
            (ServerInfo { address, role: ServerRole::Primary, epoch, since }, current.address.clone())
        };
        let (replicas, sentinels) = (self.replicas.read().clone(), self.sentinels.addresses());
        let replicas = replicas.iter().filter(|address| **address != at);
        let others = replicas.map(|address| ServerInfo::beside(address, ServerRole::Replica));
        let sentinels = sentinels.iter().map(|address| ServerInfo::beside(address, ServerRole::Sentinel));
        TopologyInfo::new(self.kind, iter::once(primary).chain(others).chain(sentinels).collect())
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn listen(&self, listener: &Weak<dyn MemberListener>) {
        // Set once, by the engine that owns this topology.
        let _ = self.listener.set(Weak::clone(listener));
        self.member().listen(Weak::clone(listener));
    }

    fn notify(&self, what: impl FnOnce(&dyn MemberListener)) {
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            what(&*listener);
        }
    }

    pub(super) async fn run(&self, call: &(dyn Fn(&ServerClock) -> Call + Send + Sync)) -> Result<Answered, Fault> {
        let (until, mut pause) = (Instant::now() + self.settings.command_timeout, SHORTEST_PAUSE);
        loop {
            let (member, placement) = self.now();
            let outcome = tokio::select! {
                biased;
                outcome = member.run(&*self.world, call(member.clock())) => outcome,
                () = member.left() => Err(Fault::new(FaultKind::Closed, "")),
            };
            member.note(&outcome);
            let fault = match outcome {
                Ok(reply) => return Ok(Answered { reply, placement, clock: MemberClock(member) }),
                Err(fault) => fault,
            };
            if self.is_closed() {
                return Err(fault);
            }
            match (fault.kind, Redirect::of(&fault.message, "")) {
                // Another server is the primary now. The old primary may have run the command.
                (FaultKind::Closed, _) => return Err(left(fault)),
                (FaultKind::Lost | FaultKind::TimedOut, _) => {
                    self.suspicion.raise();
                    return Err(fault);
                }
                (FaultKind::NotSent, _) | (FaultKind::Refused, Redirect::Demoted | Redirect::Down) => {
                    self.suspicion.raise();
                }
                _ => return Err(fault),
            }
            // The command has not run, and the same server or another server may accept it soon.
            if Instant::now() + pause >= until {
                return Err(fault);
            }
            self.suspicion.pause(pause, || self.placement() != placement).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Asks the primary for its role. `None` without an answer in time.
    async fn role_of_current(&self, limit: Duration) -> Option<Role> {
        let member = self.member();
        let asked = within(limit, member.run(&*self.world, role())).await;
        asked.and_then(Result::ok).map(|reply| Role::of(&reply))
    }

    /// Asks the primary for its replication history. `None` without an answer in time.
    async fn replication_of_current(&self) -> Option<Replication> {
        let member = self.member();
        // A primary that is silent or has a broken connection gets little time.
        let limit = if self.is_doubtful() { SILENT_WITHIN } else { ANSWERS_WITHIN };
        match within(limit, member.run(&*self.world, replication())).await? {
            Ok(reply) => Some(Replication::of(&reply)),
            // The login may not run `INFO`, so the role alone counts.
            Err(fault) if fault.kind == FaultKind::Refused => {
                let is_primary = self.role_of_current(limit).await?.is_primary();
                Some(Replication { is_primary, ..Replication::default() })
            }
            Err(_) => None,
        }
    }

    /// Notes the replicas of the primary at this address. Returns false if another server is the primary by now.
    fn set_replicas(&self, of: &Address, mut replicas: BTreeSet<Address>) -> bool {
        let current = self.current.read();
        if current.address != *of {
            return false;
        }
        replicas.remove(&current.address);
        current.member.acknowledgement().knows_of(replicas.len());
        *self.replicas.write() = replicas;
        true
    }

    /// Like [`Topology::confirmed`](super::Topology::confirmed).
    pub(super) fn confirmed(&self) -> Option<Moment> {
        self.settings.confirm_primary.then(|| Moment::from_nanos(self.confirmed.load(Ordering::Relaxed)))
    }

    /// If the server at this address is the current primary, notes that sentinels name it at this epoch.
    fn confirm(&self, address: &Address, epoch: u64) {
        let mut current = self.current.write();
        if current.address == *address {
            current.epoch = current.epoch.max(epoch);
            current.is_early &= epoch == 0;
        }
    }

    /// True if a reply of the primary is overdue, or one of its connections is broken.
    fn is_doubtful(&self) -> bool {
        let current = self.current.read();
        current.is_away || current.member.is_silent(self.world.now())
    }

    pub(super) async fn close(&self, within: Duration) {
        self.closed.store(true, Ordering::Release);
        self.suspicion.raise();
        self.suspicion.changed();
        let asked = async {
            let asked = tokio::time::timeout(within, self.taking.lock()).await;
            if let Some((_, member)) = asked.ok().and_then(|mut asked| asked.take()) {
                member.close(within).await;
            }
        };
        let others = futures::future::join3(self.sentinels.close(within), self.servers.close(within), asked);
        futures::future::join(self.member().close(within), others).await;
    }
}

/// Opens connections for commands and messages. Returns at once. The connections come up in the background.
async fn connect(
    settings: &Settings,
    connector: &dyn Connector,
    address: &Address,
) -> Result<Arc<dyn crate::transport::Transport>> {
    let transport = connector.connect(&address.to_string(), Purpose::Names { sharded: false }).await?;
    Ok(match &settings.coalesce {
        Some((options, reaper)) => Coalesced::over(transport, options, reaper.clone()),
        None => transport,
    })
}

/// The fault of a command whose server was replaced as the primary and closed. The client itself is still open.
fn left(fault: Fault) -> Fault {
    let message = "another server has become the primary while this one was asked".to_owned();
    Fault { kind: FaultKind::Lost, message, ..fault }
}

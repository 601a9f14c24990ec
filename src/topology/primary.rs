//! One primary for every name, whose place another server can take: a set that sentinels look after ([`sentinel`]), or servers of
//! which one says that it is the primary ([`replicated`]). These find out who it is; here commands come to it ([`watch`] has them
//! asked), and `channels` has the subscriptions follow.
//!
//! The server of before is left for good: it may be cut off, and take writes that nobody else will ever see.

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

/// Commands that are under way at a server whose place another one has taken have so long to be answered, unless it is silent.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long it has that has not answered others in time.
const SILENT_WITHIN: Duration = Duration::from_millis(50);

/// How long a command waits at first before it is tried again that no server has carried out; and at the most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// The primary of a set of servers.
pub(crate) struct Primary {
    this: Weak<Self>,
    settings: Settings,
    connector: Arc<dyn Connector>,
    world: Arc<dyn World>,
    current: RwLock<Current>,
    /// Held while another server is asked, and takes the place: one at a time.
    taking: tokio::sync::Mutex<Candidate>,
    /// The number of the next member.
    next: AtomicUsize,
    listener: OnceLock<Weak<dyn MemberListener>>,
    suspicion: Arc<Suspicion>,
    /// The channels that are wanted.
    channels: Mutex<BTreeSet<Bytes>>,
    /// Those that look after it.
    sentinels: Witnesses,
    /// Those that may take its place.
    servers: Witnesses,
    /// Those that belong to it, whether or not they are there.
    replicas: RwLock<BTreeSet<Address>>,
    identity: String,
    kind: TopologyKind,
    closed: AtomicBool,
    /// When the sentinels were last asked and most of them named the current primary, in ns of the local clock.
    confirmed: AtomicU64,
}

/// The server that has the place.
struct Current {
    member: Arc<Member>,
    address: Address,
    /// How often sentinels have put another server there, as far as they have said.
    epoch: u64,
    /// How often another server has taken the place.
    generation: usize,
    /// It was found by its history, and no sentinel has named it yet.
    is_early: bool,
    since: Instant,
    /// One of its connections is broken.
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
    /// The topology of a set whose primary is at this address.
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

    /// Runs a call at whoever is the primary.
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
                // Another server has its place. What was under way there may have been carried out.
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
            // It has not run, and may have a place to run at in a moment.
            if Instant::now() + pause >= until {
                return Err(fault);
            }
            self.suspicion.pause(pause, || self.placement() != placement).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// What part the primary says it has; None where it does not say in time.
    async fn role_of_current(&self, limit: Duration) -> Option<Role> {
        let member = self.member();
        let asked = within(limit, member.run(&*self.world, role())).await;
        asked.and_then(Result::ok).map(|reply| Role::of(&reply))
    }

    /// The history of the primary's writes; None where it does not say.
    async fn replication_of_current(&self) -> Option<Replication> {
        let member = self.member();
        // One that is silent, or of which a connection is broken, has had its time already.
        let limit = if self.is_doubtful() { SILENT_WITHIN } else { ANSWERS_WITHIN };
        match within(limit, member.run(&*self.world, replication())).await? {
            Ok(reply) => Some(Replication::of(&reply)),
            // This login may not ask that: what part it has is enough.
            Err(fault) if fault.kind == FaultKind::Refused => {
                let is_primary = self.role_of_current(limit).await?.is_primary();
                Some(Replication { is_primary, ..Replication::default() })
            }
            Err(_) => None,
        }
    }

    /// Notes which replicas the primary at this address has, by those who look after it. False where there is another one by now.
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

    /// When most sentinels last confirmed the primary. None if renewals do not depend on that.
    pub(super) fn confirmed(&self) -> Option<Moment> {
        self.settings.confirm_primary.then(|| Moment::from_nanos(self.confirmed.load(Ordering::Relaxed)))
    }

    /// Notes what sentinels say of the server that has the place: how often they have put one there.
    fn confirm(&self, address: &Address, epoch: u64) {
        let mut current = self.current.write();
        if current.address == *address {
            current.epoch = current.epoch.max(epoch);
            current.is_early &= epoch == 0;
        }
    }

    /// True when answers of the primary are due and do not come, or its connection is broken.
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

/// The way to a server for commands and messages: it comes to stand when it can.
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

/// What a command is told whose server was closed under it, and not by the client's end.
fn left(fault: Fault) -> Fault {
    let message = "another server has become the primary while this one was asked".to_owned();
    Fault { kind: FaultKind::Lost, message, ..fault }
}

impl Subscriber for Primary {
    fn ended(&self, member: MemberId, channel: &[u8]) {
        let current = self.member();
        if current.id() == member {
            self.bring_soon(&current, Bytes::copy_from_slice(channel));
        }
    }

    fn went_away(&self, member: MemberId) {
        let mut current = self.current.write();
        if current.member.id() == member {
            current.is_away = true;
            self.suspicion.raise();
        }
    }

    fn came_back(&self, member: MemberId) {
        let mut current = self.current.write();
        if current.member.id() == member {
            current.is_away = false;
        }
    }
}

//! Finds the server that the name of a lock lives on.
//!
//! Other modules run commands and subscribe by name, not by server. Every call looks up the name's server again,
//! because names move.
//!
//! | servers | where a name lives |
//! |---|---|
//! | one server | on that server |
//! | a cluster ([`cluster`]) | on the primary of the name's slot |
//! | Sentinel, or replicated ([`primary`]) | on the primary, for all names |
//!
//! The registry (`engine/registry`) calls [`Topology::placement`] while it holds a mutex. So `placement` must not lock
//! a mutex of the engine.

use std::sync::Arc;
use std::time::Duration;

mod acknowledgement;
mod address;
mod clock;
pub(crate) mod cluster;
mod commands;
mod info;
mod liveness;
mod member;
mod messages;
mod primary;
mod reason;
mod redirect;
mod role;
mod settings;
mod slots;
mod suspicion;
pub(crate) mod url;

pub(crate) use acknowledgement::AckRule;
pub(crate) use address::Address;
pub(crate) use clock::ServerClock;
use cluster::Cluster;
pub(crate) use commands::{Answered, MemberClock};
pub use info::{ServerInfo, ServerRole, TopologyInfo, TopologyKind};
use member::Member;
pub(crate) use member::{MemberId, MemberListener};
pub(crate) use primary::Primary;
pub(crate) use settings::Settings;
#[cfg(test)]
pub(crate) use slots::slot_of;

use crate::error::{Error, Result};
use crate::names::LockName;
use crate::transport::Transport;
use crate::world::{Moment, World};

/// Number of names that [`Topology::one_each`] tries: enough for hundreds of servers.
const NAMES: u32 = 16_384;

#[derive(Clone, Debug)]
pub(crate) struct Topology {
    servers: Servers,
    world: Arc<dyn World>,
}

#[derive(Clone, Debug)]
enum Servers {
    /// The servers never change.
    Fixed {
        members: Arc<[Arc<Member>]>,
        rule: Rule,
    },
    Cluster(Arc<Cluster>),
    Primary(Arc<Primary>),
}

/// Where a name lives. If two successive reads of a name's placement are equal, the name has not moved in between.
/// Names with equal placements may share one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Placement {
    pub(crate) member: MemberId,
    /// The name's slot, in a cluster.
    slot: u16,
    /// Number of times that the name has moved. A reply about a name that has moved since the command was sent is
    /// stale.
    generation: usize,
}

impl Placement {
    /// Placement of a name that no server has.
    const NOWHERE: Self = Self { member: MemberId::new(usize::MAX), slot: 0, generation: 0 };
}

#[derive(Clone, Debug)]
enum Rule {
    Single,
    /// For tests with several servers. A name's server is the last digit of the name plus the number of moves (this
    /// field), modulo the number of servers.
    #[cfg(test)]
    LastDigit(Arc<std::sync::atomic::AtomicUsize>),
}

impl Topology {
    pub(crate) fn single(transport: Arc<dyn Transport>, world: Arc<dyn World>, acks: AckRule) -> Self {
        Self::fixed(vec![transport], Rule::Single, world, acks)
    }

    pub(crate) fn cluster(cluster: Arc<Cluster>, world: Arc<dyn World>) -> Self {
        Self { servers: Servers::Cluster(cluster), world }
    }

    pub(crate) fn primary(primary: Arc<Primary>, world: Arc<dyn World>) -> Self {
        Self { servers: Servers::Primary(primary), world }
    }

    /// Builds a topology of several servers. The last digit of a name is the number of its server.
    #[cfg(test)]
    pub(crate) fn by_last_digit(transports: Vec<Arc<dyn Transport>>, world: Arc<dyn World>) -> Self {
        Self::fixed(transports, Rule::LastDigit(Arc::default()), world, AckRule::off())
    }

    /// Moves every name to the next server.
    #[cfg(test)]
    pub(crate) fn move_on(&self) {
        let Servers::Fixed { rule: Rule::LastDigit(moved), .. } = &self.servers else {
            panic!("nothing moves where there is one server")
        };
        moved.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }

    fn fixed(transports: Vec<Arc<dyn Transport>>, rule: Rule, world: Arc<dyn World>, acks: AckRule) -> Self {
        let numbered = transports.into_iter().enumerate();
        let members = numbered.map(|(index, transport)| Member::new(MemberId::new(index), transport, acks)).collect();
        Self { servers: Servers::Fixed { members, rule }, world }
    }

    pub(crate) fn placement(&self, name: &LockName) -> Placement {
        match &self.servers {
            Servers::Fixed { rule: Rule::Single, .. } => Placement { member: MemberId::new(0), slot: 0, generation: 0 },
            #[cfg(test)]
            Servers::Fixed { rule: Rule::LastDigit(moved), members } => {
                let generation = moved.load(std::sync::atomic::Ordering::SeqCst);
                let digit = usize::from(name.key.last().unwrap_or(&b'0') - b'0');
                Placement { member: MemberId::new((digit + generation) % members.len()), slot: 0, generation }
            }
            Servers::Cluster(cluster) => cluster.placement(name),
            Servers::Primary(primary) => primary.placement(),
        }
    }

    /// Returns one name for each server: the first of `name(0)`, `name(1)`, … that lives there.
    pub(crate) fn one_each(&self, name: impl Fn(u32) -> Arc<LockName>) -> Vec<Arc<LockName>> {
        let mut found = Vec::new();
        let mut without: Vec<MemberId> = self.members();
        for name in (0..NAMES).map(name) {
            let member = self.placement(&name).member;
            if let Some(at) = without.iter().position(|other| *other == member) {
                without.swap_remove(at);
                found.push(name);
            }
            if without.is_empty() {
                break;
            }
        }
        found
    }

    fn fixed_member<'a>(&self, members: &'a [Arc<Member>], name: &LockName) -> &'a Arc<Member> {
        &members[self.placement(name).member.index()]
    }

    /// Returns every server that has names now.
    pub(crate) fn members(&self) -> Vec<MemberId> {
        match &self.servers {
            Servers::Fixed { members, .. } => (0..members.len()).map(MemberId::new).collect(),
            Servers::Cluster(cluster) => cluster.members(),
            Servers::Primary(primary) => vec![primary.placement().member],
        }
    }

    /// Like [`members`](Self::members). In a cluster, the result also has the placeholder for names that no server has.
    pub(crate) fn homes(&self) -> Vec<MemberId> {
        let mut homes = self.members();
        if let Servers::Cluster(_) = &self.servers {
            homes.push(Placement::NOWHERE.member);
        }
        homes
    }

    pub(crate) fn clock(&self, name: &LockName) -> MemberClock {
        MemberClock(self.member(name))
    }

    /// The time of the name's server in ms, if known.
    pub(crate) fn time(&self, name: &LockName, now: Moment) -> Option<i64> {
        self.clock(name).time(now)
    }

    fn all(&self) -> Vec<Arc<Member>> {
        match &self.servers {
            Servers::Fixed { members, .. } => members.to_vec(),
            Servers::Cluster(cluster) => cluster.all(),
            Servers::Primary(primary) => vec![primary.member()],
        }
    }

    /// If the acknowledgement rule is strict, checks that the connections support acknowledgement by replicas.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported).
    pub(crate) fn check_lanes(&self) -> Result<()> {
        self.all().iter().try_for_each(|member| member.acknowledgement().check_connection(&**member.transport()))
    }

    /// If the acknowledgement rule is strict, checks that each server supports `WAIT`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported).
    pub(crate) async fn check_acknowledgement(&self) -> Result<()> {
        let members = self.all();
        let checks = members.iter().map(|member| member.acknowledgement().check(&**member.transport()));
        futures::future::try_join_all(checks).await.map(drop)
    }

    /// If the servers are a cluster, checks that the keys of a name are in one slot.
    pub(crate) fn check(&self, name: &LockName) -> Result<()> {
        match &self.servers {
            Servers::Cluster(_) => name.check_in_cluster(),
            Servers::Fixed { .. } | Servers::Primary(_) => Ok(()),
        }
    }

    /// True if the name's server was silent at that moment, as `liveness` defines it.
    pub(crate) fn is_silent(&self, name: &LockName, at: Moment) -> bool {
        self.member(name).is_silent(at)
    }

    /// Returns the error for a reply about this name that did not arrive in time: [`Replicas`](Error::Replicas),
    /// [`Connection`](Error::Connection) or [`Server`](Error::Server), or [`Timeout`](Error::Timeout) if no reason is
    /// known.
    pub(crate) fn missing(&self, name: &LockName) -> Error {
        self.named(self.member(name).missing(), name)
    }

    /// Adds the name of the lock and the server of that name to an error.
    pub(crate) fn named(&self, error: Error, name: &LockName) -> Error {
        error.about(&name.as_written).at(Some(&self.member(name).server()))
    }

    fn member(&self, name: &LockName) -> Arc<Member> {
        match &self.servers {
            Servers::Fixed { members, .. } => Arc::clone(self.fixed_member(members, name)),
            Servers::Cluster(cluster) => cluster.member(name),
            Servers::Primary(primary) => primary.member(),
        }
    }

    /// Returns the start of the last query in which most sentinels confirmed the primary. `None` unless the option
    /// `confirm_primary` is set.
    pub(crate) fn confirmed(&self) -> Option<Moment> {
        match &self.servers {
            Servers::Primary(primary) => primary.confirmed(),
            Servers::Fixed { .. } | Servers::Cluster(_) => None,
        }
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// Returns a text that identifies the set of servers.
    pub(crate) fn identity(&self) -> &str {
        match &self.servers {
            Servers::Fixed { members, .. } => members.first().map_or("", |first| first.transport().address()),
            Servers::Cluster(cluster) => cluster.identity(),
            Servers::Primary(primary) => primary.identity(),
        }
    }

    pub(crate) fn info(&self) -> TopologyInfo {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                TopologyInfo::new(TopologyKind::Single, members.iter().map(|member| member.info(None)).collect())
            }
            Servers::Cluster(cluster) => cluster.info(),
            Servers::Primary(primary) => primary.info(),
        }
    }

    /// Closes the connections to all servers, within this time, as [`Transport::close`] does.
    pub(crate) async fn close(&self, within: Duration) {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                futures::future::join_all(members.iter().map(|member| member.transport().close(within))).await;
            }
            Servers::Cluster(cluster) => cluster.close(within).await,
            Servers::Primary(primary) => primary.close(within).await,
        }
    }

    pub(crate) fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Returns the current moment on the clock that deadlines use.
    pub(crate) fn now(&self) -> Moment {
        self.world.now()
    }
}

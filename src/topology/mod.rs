//! On which server a name lives. Nobody above this room sees a server: commands, subscriptions and questions are about
//! names, and where a name lives is found anew each time. With one server that is always the same; in a cluster it is the
//! primary of the name's slot ([`cluster`]); of servers that repeat each other's writes it is the primary ([`primary`]).

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

mod acknowledgement;
mod address;
mod clock;
pub(crate) mod cluster;
mod info;
mod liveness;
mod member;
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
pub use info::{ServerInfo, ServerRole, TopologyInfo, TopologyKind};
use member::Member;
pub(crate) use member::{MemberId, MemberListener};
pub(crate) use primary::Primary;
pub(crate) use settings::Settings;
pub(crate) use slots::{hash_tag, slot_of};

use crate::error::{Error, Result};
use crate::names::LockName;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Call, Fault, FaultKind, Reply, Transport};
use crate::world::{Moment, World};

/// How many names are looked at for one of each server: enough for hundreds of servers.
const NAMES: u32 = 16_384;

/// The servers of a client.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    servers: Servers,
    world: Arc<dyn World>,
}

#[derive(Clone, Debug)]
enum Servers {
    /// They are those that they were at the start.
    Fixed {
        members: Arc<[Arc<Member>]>,
        rule: Rule,
    },
    Cluster(Arc<Cluster>),
    Primary(Arc<Primary>),
}

/// Where a name lives. Of two that are read one after the other, equal means that it has not moved meanwhile. Names of equal
/// placements may be named by one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Placement {
    pub(crate) member: MemberId,
    /// In a cluster, the name's slot.
    slot: u16,
    /// How often the name has moved. What a server said of a name that has moved since it was asked says nothing about now.
    generation: usize,
}

impl Placement {
    /// Of a name that lives nowhere.
    const NOWHERE: Self = Self { member: MemberId::new(usize::MAX), slot: 0, generation: 0 };
}

/// Which of the fixed members a name lives on.
#[derive(Clone, Debug)]
enum Rule {
    /// The only one.
    Single,
    /// For tests of several: the one whose number the name ends in, or so many further on as names have moved.
    #[cfg(test)]
    LastDigit(Arc<std::sync::atomic::AtomicUsize>),
}

/// What a server answered.
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// Where the name lived when it was asked for, by the client's map. A server that the name is just being moved to answers
    /// for that one.
    pub(crate) placement: Placement,
    /// The clock of the server that answered.
    pub(crate) clock: MemberClock,
}

/// The clock of one server.
pub(crate) struct MemberClock(Arc<Member>);

impl Deref for MemberClock {
    type Target = ServerClock;

    fn deref(&self) -> &ServerClock {
        self.0.clock()
    }
}

impl Topology {
    /// One server for every name.
    pub(crate) fn single(transport: Arc<dyn Transport>, world: Arc<dyn World>, acks: AckRule) -> Self {
        Self::fixed(vec![transport], Rule::Single, world, acks)
    }

    /// The primaries of a cluster.
    pub(crate) fn cluster(cluster: Arc<Cluster>, world: Arc<dyn World>) -> Self {
        Self { servers: Servers::Cluster(cluster), world }
    }

    /// One of several servers, that which is the primary.
    pub(crate) fn primary(primary: Arc<Primary>, world: Arc<dyn World>) -> Self {
        Self { servers: Servers::Primary(primary), world }
    }

    /// Several servers, each with the names that end in its number.
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

    /// Where a name lives now.
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

    /// For each server the first of the names by these numbers that lives there.
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

    /// The server of a name among fixed ones.
    fn fixed_member<'a>(&self, members: &'a [Arc<Member>], name: &LockName) -> &'a Arc<Member> {
        &members[self.placement(name).member.index()]
    }

    /// Every server that names live on now.
    pub(crate) fn members(&self) -> Vec<MemberId> {
        match &self.servers {
            Servers::Fixed { members, .. } => (0..members.len()).map(MemberId::new).collect(),
            Servers::Cluster(cluster) => cluster.members(),
            Servers::Primary(primary) => vec![primary.placement().member],
        }
    }

    /// Every server that names live on now, and that of names that live nowhere, where there may be such.
    pub(crate) fn homes(&self) -> Vec<MemberId> {
        let mut homes = self.members();
        if let Servers::Cluster(_) = &self.servers {
            homes.push(Placement::NOWHERE.member);
        }
        homes
    }

    /// The clock of the server where a name lives now.
    pub(crate) fn clock(&self, name: &LockName) -> MemberClock {
        MemberClock(self.member(name))
    }

    /// Runs a script at the server of a name, as [`Transport::run`] does.
    pub(crate) async fn run(&self, name: &LockName, call: Call) -> Result<Reply, Fault> {
        self.run_placed(name, call).await.map(|(reply, _)| reply)
    }

    /// As `run`; with the reply, where the name lived for the server that gave it, which may be another one than when it was
    /// asked for.
    pub(crate) async fn run_placed(&self, name: &LockName, call: Call) -> Result<(Reply, Placement), Fault> {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                let placement = self.placement(name);
                let reply = members[placement.member.index()].run(&*self.world, call).await?;
                Ok((reply, placement))
            }
            Servers::Cluster(cluster) => {
                let answered = cluster.run(&*self.world, name, &|_| call.clone()).await?;
                Ok((answered.reply, answered.placement))
            }
            Servers::Primary(primary) => {
                let answered = primary.run(&|_| call.clone()).await?;
                Ok((answered.reply, answered.placement))
            }
        }
    }

    /// Whether the server of this placement runs scripts without declared keys; None where there is but one server, or it is gone.
    pub(crate) fn undeclared(&self, placement: Placement) -> Option<Arc<Undeclared>> {
        let member = self.at(placement)?;
        Some(Arc::clone(member.undeclared())).filter(|undeclared| undeclared.is_taken())
    }

    /// Whether the servers of a cluster run scripts without declared keys, as far as they have been asked.
    pub(crate) fn undeclared_keys(&self) -> Option<bool> {
        let Servers::Cluster(cluster) = &self.servers else { return None };
        let known = cluster.all().into_iter().filter_map(|member| member.undeclared().known());
        known.reduce(|one, other| one && other)
    }

    /// Runs a call at the server of this placement, whatever has become of the name by now.
    pub(crate) async fn run_at(&self, placement: Placement, call: Call) -> Result<Reply, Fault> {
        let gone = || Fault::new(FaultKind::NotSent, "the server is no part of the cluster any more");
        self.at(placement).ok_or_else(gone)?.run(&*self.world, call).await
    }

    /// The server of this placement in a cluster.
    fn at(&self, placement: Placement) -> Option<Arc<Member>> {
        match &self.servers {
            Servers::Cluster(cluster) => cluster.at(placement.member),
            Servers::Fixed { .. } | Servers::Primary(_) => None,
        }
    }

    /// As `run_placed`, for a call that tells a moment in its server's time: it is made anew for each server that it is sent to.
    pub(crate) async fn run_timed(
        &self,
        name: &LockName,
        call: impl Fn(&ServerClock) -> Call + Send + Sync,
    ) -> Result<Answered, Fault> {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                let placement = self.placement(name);
                let member = &members[placement.member.index()];
                let outcome = member.run(&*self.world, call(member.clock())).await;
                member.note(&outcome);
                let reply = outcome?;
                Ok(Answered { reply, placement, clock: MemberClock(Arc::clone(member)) })
            }
            Servers::Cluster(cluster) => cluster.run(&*self.world, name, &call).await,
            Servers::Primary(primary) => primary.run(&call).await,
        }
    }

    /// The members of now.
    fn all(&self) -> Vec<Arc<Member>> {
        match &self.servers {
            Servers::Fixed { members, .. } => members.to_vec(),
            Servers::Cluster(cluster) => cluster.all(),
            Servers::Primary(primary) => vec![primary.member()],
        }
    }

    /// Refuses connections by which replicas cannot be asked, where they have to be.
    ///
    /// *Errors*: [`Unsupported`](crate::Error::Unsupported).
    pub(crate) fn check_lanes(&self) -> Result<()> {
        self.all().iter().try_for_each(|member| member.acknowledgement().check_connection(&**member.transport()))
    }

    /// Refuses servers whose replicas cannot be asked, where they have to be: asks each of them whether it can `WAIT`.
    ///
    /// *Errors*: [`Unsupported`](crate::Error::Unsupported).
    pub(crate) async fn check_acknowledgement(&self) -> Result<()> {
        let members = self.all();
        let checks = members.iter().map(|member| member.acknowledgement().check(&**member.transport()));
        futures::future::try_join_all(checks).await.map(drop)
    }

    /// Subscribes to the channel of a name, as [`Transport::subscribe`] does.
    pub(crate) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                self.fixed_member(members, name).transport().subscribe(name.channel.clone()).await
            }
            Servers::Cluster(cluster) => cluster.subscribe(name).await,
            Servers::Primary(primary) => primary.subscribe(name).await,
        }
    }

    /// Ends the subscription to the channel of a name.
    pub(crate) async fn unsubscribe(&self, name: &LockName) {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                self.fixed_member(members, name).transport().unsubscribe(name.channel.clone()).await;
            }
            Servers::Cluster(cluster) => cluster.unsubscribe(name).await,
            Servers::Primary(primary) => primary.unsubscribe(name).await,
        }
    }

    /// Sets who hears of messages and of connections that broke. Called once, before the first subscription.
    pub(crate) fn listen(&self, listener: &Weak<dyn MemberListener>) {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                for member in &**members {
                    member.listen(Weak::clone(listener));
                }
            }
            Servers::Cluster(cluster) => cluster.listen(listener),
            Servers::Primary(primary) => primary.listen(listener),
        }
    }

    /// The command by which scripts publish on the channel of a name.
    pub(crate) fn publish(&self) -> Bytes {
        match &self.servers {
            Servers::Cluster(cluster) if cluster.is_sharded() => Bytes::from_static(b"SPUBLISH"),
            _ => Bytes::from_static(b"PUBLISH"),
        }
    }

    /// Refuses a name whose keys would lie in several slots, where that matters.
    pub(crate) fn check(&self, name: &LockName) -> Result<()> {
        match &self.servers {
            Servers::Cluster(_) => name.check_in_cluster(),
            Servers::Fixed { .. } | Servers::Primary(_) => Ok(()),
        }
    }

    /// True when answers of a name's server were due at that moment, and none had come for longer than they take. A command
    /// that failed leaves its answer due until there is another; one that was given up, for a second.
    pub(crate) fn is_silent(&self, name: &LockName, at: Moment) -> bool {
        match &self.servers {
            Servers::Fixed { members, .. } => self.fixed_member(members, name).is_silent(at),
            Servers::Cluster(cluster) => cluster.member(name).is_silent(at),
            Servers::Primary(primary) => primary.member().is_silent(at),
        }
    }

    /// The error for an answer about this name that did not arrive in time: [`Replicas`](Error::Replicas),
    /// [`Connection`](Error::Connection), or [`Timeout`](Error::Timeout) if only the answer itself is known to be missing.
    pub(crate) fn missing(&self, name: &LockName) -> Error {
        self.named(self.member(name).missing(), name)
    }

    /// The same error, of this lock and its server.
    pub(crate) fn named(&self, error: Error, name: &LockName) -> Error {
        error.about(&name.as_written).at(Some(&self.member(name).server()))
    }

    /// The server of a name.
    fn member(&self, name: &LockName) -> Arc<Member> {
        match &self.servers {
            Servers::Fixed { members, .. } => Arc::clone(self.fixed_member(members, name)),
            Servers::Cluster(cluster) => cluster.member(name),
            Servers::Primary(primary) => primary.member(),
        }
    }

    /// When most sentinels last confirmed the primary. None if renewals do not depend on that.
    pub(crate) fn confirmed(&self) -> Option<Moment> {
        match &self.servers {
            Servers::Primary(primary) => primary.confirmed(),
            Servers::Fixed { .. } | Servers::Cluster(_) => None,
        }
    }

    /// False once the server of this name has had no connection for messages for a while.
    pub(crate) fn hears(&self, name: &LockName) -> bool {
        match &self.servers {
            Servers::Fixed { members, .. } => !self.fixed_member(members, name).is_deaf(),
            Servers::Cluster(cluster) => !cluster.member(name).is_deaf(),
            Servers::Primary(primary) => !primary.member().is_deaf(),
        }
    }

    /// True where names live by their slots.
    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// Which servers these are, together: the same text wherever a name of theirs lives.
    pub(crate) fn identity(&self) -> &str {
        match &self.servers {
            Servers::Fixed { members, .. } => members.first().map_or("", |first| first.transport().address()),
            Servers::Cluster(cluster) => cluster.identity(),
            Servers::Primary(primary) => primary.identity(),
        }
    }

    /// The servers as they are known.
    pub(crate) fn info(&self) -> TopologyInfo {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                TopologyInfo::new(TopologyKind::Single, members.iter().map(|member| member.info(None)).collect())
            }
            Servers::Cluster(cluster) => cluster.info(),
            Servers::Primary(primary) => primary.info(),
        }
    }

    /// Ends the connections to all servers, within this time, as [`Transport::close`] does.
    pub(crate) async fn close(&self, within: Duration) {
        match &self.servers {
            Servers::Fixed { members, .. } => {
                futures::future::join_all(members.iter().map(|member| member.transport().close(within))).await;
            }
            Servers::Cluster(cluster) => cluster.close(within).await,
            Servers::Primary(primary) => primary.close(within).await,
        }
    }

    /// The clock and the random numbers of this client.
    pub(crate) fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Now, on the clock of deadlines.
    pub(crate) fn now(&self) -> Moment {
        self.world.now()
    }
}

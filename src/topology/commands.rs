//! Runs commands at the server that a name lives on, and reports the name's placement with each reply.

use std::ops::Deref;
use std::sync::Arc;

use super::clock::ServerClock;
use super::member::Member;
use super::{Placement, Servers, Topology};
use crate::names::LockName;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Call, Fault, FaultKind, Reply};

/// A reply to a command about a name.
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// Where the client's map placed the name when the command was sent. While the name's slot is being moved, the
    /// target of the move may have replied instead.
    pub(crate) placement: Placement,
    pub(crate) clock: MemberClock,
}

pub(crate) struct MemberClock(pub(super) Arc<Member>);

impl Deref for MemberClock {
    type Target = ServerClock;

    fn deref(&self) -> &ServerClock {
        self.0.clock()
    }
}

impl Topology {
    /// Runs a script at the server of a name, as [`Transport::run`] does.
    pub(crate) async fn run(&self, name: &LockName, call: Call) -> Result<Reply, Fault> {
        self.run_placed(name, call).await.map(|(reply, _)| reply)
    }

    /// Like [`run`](Self::run). Also returns the name's placement at the time when the command was sent. The name may
    /// have moved since.
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

    /// Returns what is known about scripts without declared keys at the server of this placement. `None` if the server
    /// refuses such scripts, has left the cluster, or is not part of a cluster.
    pub(crate) fn undeclared(&self, placement: Placement) -> Option<Arc<Undeclared>> {
        let member = self.at(placement)?;
        Some(Arc::clone(member.undeclared())).filter(|undeclared| undeclared.is_taken())
    }

    /// Returns whether all servers of a cluster accept scripts without declared keys. Ignores servers where that is
    /// unknown. `None` if that is unknown for every server, or if there is no cluster.
    pub(crate) fn undeclared_keys(&self) -> Option<bool> {
        let Servers::Cluster(cluster) = &self.servers else { return None };
        let known = cluster.all().into_iter().filter_map(|member| member.undeclared().known());
        known.reduce(|one, other| one && other)
    }

    /// Runs a call at the server of this placement, even if the name has moved since. Only for clusters.
    pub(crate) async fn run_at(&self, placement: Placement, call: Call) -> Result<Reply, Fault> {
        let gone = || Fault::new(FaultKind::NotSent, "the server is no part of the cluster any more");
        self.at(placement).ok_or_else(gone)?.run(&*self.world, call).await
    }

    fn at(&self, placement: Placement) -> Option<Arc<Member>> {
        match &self.servers {
            Servers::Cluster(cluster) => cluster.at(placement.member),
            Servers::Fixed { .. } | Servers::Primary(_) => None,
        }
    }

    /// Like [`run_placed`](Self::run_placed), for a call that contains a moment in the server's time. `call` builds the
    /// call with the clock of the server that will get it.
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
}

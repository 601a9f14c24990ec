//! On which server a name lives. Nobody above this room sees a server: commands, subscriptions and questions are about
//! names, and where a name lives is found anew each time. So far every name lives on one server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

#[cfg_attr(not(test), expect(dead_code, reason = "for clusters, which are being built"))]
mod address;
mod clock;
mod liveness;
mod member;
#[cfg_attr(not(test), expect(dead_code, reason = "for clusters, which are being built"))]
mod redirect;
#[cfg_attr(not(test), expect(dead_code, reason = "for clusters, which are being built"))]
mod slots;

pub(crate) use clock::ServerClock;
use member::Member;
pub(crate) use member::{MemberId, MemberListener};
pub(crate) use slots::{hash_tag, slot_of};

use crate::names::LockName;
use crate::transport::{Call, Fault, Reply, Transport};
use crate::world::{Moment, World};

/// The servers of a client.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    members: Arc<[Arc<Member>]>,
    rule: Rule,
    world: Arc<dyn World>,
}

/// Where a name lives. Of two that are read one after the other, equal means that it has not moved meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placement {
    pub(crate) member: MemberId,
    /// How often the name has moved. What a server said of a name that has moved since it was asked says nothing about now.
    generation: usize,
}

/// Which of the members a name lives on.
#[derive(Clone, Debug)]
enum Rule {
    /// The only one.
    Single,
    /// For tests of several: the one whose number the name ends in, or so many further on as names have moved.
    #[cfg(test)]
    LastDigit(Arc<std::sync::atomic::AtomicUsize>),
}

impl Topology {
    /// One server for every name.
    pub(crate) fn single(transport: Arc<dyn Transport>, world: Arc<dyn World>) -> Self {
        Self::of(vec![transport], Rule::Single, world)
    }

    /// Several servers, each with the names that end in its number.
    #[cfg(test)]
    pub(crate) fn by_last_digit(transports: Vec<Arc<dyn Transport>>, world: Arc<dyn World>) -> Self {
        Self::of(transports, Rule::LastDigit(Arc::default()), world)
    }

    /// Moves every name to the next server.
    #[cfg(test)]
    pub(crate) fn move_on(&self) {
        let Rule::LastDigit(moved) = &self.rule else { panic!("nothing moves where there is one server") };
        moved.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }

    fn of(transports: Vec<Arc<dyn Transport>>, rule: Rule, world: Arc<dyn World>) -> Self {
        let numbered = transports.into_iter().enumerate();
        let members = numbered.map(|(index, transport)| Member::new(MemberId::new(index), transport)).collect();
        Self { members, rule, world }
    }

    /// Where a name lives now. So far no name ever moves.
    pub(crate) fn placement(&self, _name: &LockName) -> Placement {
        match &self.rule {
            Rule::Single => Placement { member: MemberId::new(0), generation: 0 },
            #[cfg(test)]
            Rule::LastDigit(moved) => {
                let generation = moved.load(std::sync::atomic::Ordering::SeqCst);
                let digit = usize::from(_name.key.last().unwrap_or(&b'0') - b'0');
                Placement { member: MemberId::new((digit + generation) % self.members.len()), generation }
            }
        }
    }

    /// For each server one of these names that lives there: as many are looked at as that takes.
    pub(crate) fn one_each(&self, names: impl IntoIterator<Item = Arc<LockName>>) -> Vec<Arc<LockName>> {
        let mut found = Vec::new();
        let mut without: Vec<MemberId> = self.members().collect();
        for name in names {
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

    fn member(&self, name: &LockName) -> &Arc<Member> {
        &self.members[self.placement(name).member.index()]
    }

    /// Every server.
    pub(crate) fn members(&self) -> impl Iterator<Item = MemberId> {
        (0..self.members.len()).map(MemberId::new)
    }

    /// True when these are all there are.
    pub(crate) fn is_all(&self, members: &[MemberId]) -> bool {
        self.members().all(|member| members.contains(&member))
    }

    /// The clock of the server where a name lives now.
    pub(crate) fn clock(&self, name: &LockName) -> &ServerClock {
        self.member(name).clock()
    }

    /// Runs a script at the server of a name, as [`Transport::run`] does.
    pub(crate) async fn run(&self, name: &LockName, call: Call) -> Result<Reply, Fault> {
        self.member(name).run(&*self.world, call).await
    }

    /// Subscribes to the channel of a name, as [`Transport::subscribe`] does.
    pub(crate) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        self.member(name).transport().subscribe(name.channel.clone()).await
    }

    /// Ends the subscription to the channel of a name.
    pub(crate) async fn unsubscribe(&self, name: &LockName) {
        self.member(name).transport().unsubscribe(name.channel.clone()).await;
    }

    /// Sets who hears of messages and of connections that broke. Called once, before the first subscription.
    pub(crate) fn listen(&self, listener: &Weak<dyn MemberListener>) {
        for member in &*self.members {
            member.listen(Weak::clone(listener));
        }
    }

    /// The command by which scripts publish on the channel of a name: a cluster may want another one.
    pub(crate) fn publish(&self, _name: &LockName) -> Bytes {
        Bytes::from_static(b"PUBLISH")
    }

    /// True when answers of a name's server were due at that moment, and none had come for longer than they take. A command
    /// that failed leaves its answer due until there is another; one that was given up, for a second.
    pub(crate) fn is_silent(&self, name: &LockName, at: Moment) -> bool {
        self.member(name).is_silent(at)
    }

    /// Which servers these are, together: the same text wherever a name of theirs lives. So far it is the only one's address.
    pub(crate) fn identity(&self) -> &str {
        self.members.first().map_or("", |first| first.transport().address())
    }

    /// Ends the connections to all servers, within this time, as [`Transport::close`] does.
    pub(crate) async fn close(&self, within: Duration) {
        futures::future::join_all(self.members.iter().map(|member| member.transport().close(within))).await;
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

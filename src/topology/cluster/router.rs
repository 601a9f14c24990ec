//! Routes each command to the member that has its name's slot.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Cluster;
use super::gate::{is_about_whole_cluster, shut};
use crate::names::LockName;
use crate::topology::address::Address;
use crate::topology::clock::ServerClock;
use crate::topology::member::Member;
use crate::topology::redirect::Redirect;
use crate::topology::{Answered, MemberClock, Placement};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};
use crate::world::World;

/// Number of redirects that a command follows in a row before it pauses.
pub(super) const MOST_REDIRECTS: u32 = 8;

/// Pauses before a command is sent again. The first is `SHORTEST_PAUSE`. Each further pause is twice as long as the
/// pause before. The limit is `LONGEST_PAUSE_IN_MOVE` while the slot is being moved or servers disagree about the slot,
/// and otherwise `LONGEST_PAUSE`.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE_IN_MOVE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

static SPUBLISH: Script = Script::bare("cluster/announce", "SPUBLISH");

impl Cluster {
    /// Runs a call at the member that has the name's slot. The table in [`crate::topology::redirect`] lists what
    /// happens on each error.
    pub(in crate::topology) async fn run(
        &self,
        world: &dyn World,
        name: &LockName,
        call: &(dyn Fn(&ServerClock) -> Call + Send + Sync),
    ) -> Result<Answered, Fault> {
        let (slot, until) = (name.slot(), Instant::now() + self.settings.command_timeout);
        let (mut redirects, mut pause) = (0, SHORTEST_PAUSE);
        loop {
            let failed = match self.open_member(slot, until).await? {
                None => Failed::of(unowned(slot), None),
                Some((member, placement)) => {
                    let outcome = member.run(world, call(member.clock())).await;
                    member.note(&outcome);
                    match outcome {
                        Ok(reply) => return Ok(Answered { reply, placement, clock: MemberClock(member) }),
                        Err(fault) => Failed::of(fault, Some((member, placement))),
                    }
                }
            };
            if self.closed.load(Ordering::Relaxed) {
                return Err(failed.fault);
            }
            let is_query = || call(self.nobody.clock()).script.reads_only && Instant::now() < until;
            match self.next(slot, &failed, is_query, redirects < MOST_REDIRECTS) {
                Next::Fail(fault) => return Err(fault),
                Next::Repeat => continue,
                Next::Follow(to) => {
                    redirects += 1;
                    let seen = u32::try_from(failed.generation().unwrap_or(0)).unwrap_or(u32::MAX);
                    self.apply_redirect(slot, seen, &to).await;
                    continue;
                }
                Next::Ask(to) => {
                    if let Some((reply, member)) = self.ask(world, &to, call).await? {
                        self.announce_at_source(name, &member, call);
                        let placement = failed.at.map_or(Placement::NOWHERE, |(_, placement)| placement);
                        return Ok(Answered { reply, placement, clock: MemberClock(member) });
                    }
                }
                Next::Pause => {}
            }
            if Instant::now() + pause >= until {
                return Err(failed.last(slot));
            }
            // After a `MOVED`, servers may disagree about the slot, so a change of the slot map does not shorten the
            // pause.
            let is_news = || !failed.is_disputed() && self.is_news(slot, failed.generation());
            self.suspicion.pause(pause, is_news).await;
            redirects = 0;
            pause = (pause * 2).min(failed.longest_pause());
        }
    }

    /// Waits until the gate of the slot's member is open, and returns the member. `None` if no member is known to have
    /// the slot.
    async fn open_member(&self, slot: u16, until: Instant) -> Result<Option<(Arc<Member>, Placement)>, Fault> {
        loop {
            let at = self.state.read().at(slot).ok().map(|(member, placement)| (Arc::clone(member), placement));
            let Some((member, placement)) = at.as_ref().filter(|(member, _)| member.gate().is_shut()) else {
                return Ok(at);
            };
            let now = Instant::now();
            if now >= until {
                return Err(shut(member.host()));
            }
            let is_over = || !member.gate().is_shut() || self.is_news(slot, Some(placement.generation));
            self.suspicion.pause(until - now, is_over).await;
        }
    }

    /// Decides what follows a failed command. `is_query`: the command changes nothing, and there is time to repeat it.
    fn next(&self, slot: u16, failed: &Failed, is_query: impl Fn() -> bool, may_follow: bool) -> Next {
        let Failed { fault, redirect, at } = failed;
        if let (Redirect::Down, Some((member, _))) = (redirect, at)
            && is_about_whole_cluster(&fault.message)
        {
            self.shut(member);
        }
        match (&fault.kind, redirect) {
            // The member was closed because its server has lost all slots. The server may have run the command.
            (FaultKind::Closed, _) => {
                if let Some((_, placement)) = at {
                    self.forget_closed(placement.member);
                }
                if is_query() { Next::Repeat } else { Next::Fail(left(fault.clone())) }
            }
            (FaultKind::Lost | FaultKind::TimedOut, _) => {
                self.suspicion.raise();
                Next::Fail(fault.clone())
            }
            (FaultKind::RuntimeGone | FaultKind::Unacknowledged { .. }, _) | (FaultKind::Refused, Redirect::None) => {
                Next::Fail(fault.clone())
            }
            (_, Redirect::Moved { slot: told, to: Some(to) }) if *told == slot && may_follow => {
                self.suspicion.raise();
                Next::Follow(to.clone())
            }
            (_, Redirect::Ask { slot: told, to: Some(to) }) if *told == slot => Next::Ask(to.clone()),
            (_, Redirect::Moved { .. } | Redirect::Down | Redirect::Demoted | Redirect::NonLocal)
            | (FaultKind::NotSent, _) => {
                self.suspicion.raise();
                Next::Pause
            }
            (_, Redirect::Ask { .. } | Redirect::Again) => Next::Pause,
            (FaultKind::Elsewhere, Redirect::None) => Next::Fail(fault.clone()),
        }
    }

    /// True if the slot has a primary, and the slot's generation is not `seen`.
    fn is_news(&self, slot: u16, seen: Option<usize>) -> bool {
        self.state.read().at(slot).is_ok_and(|(_, placement)| Some(placement.generation) != seen)
    }

    /// Runs a call at the server that the slot is being moved to. Returns `None` if the call did not run there: the
    /// server was not reached, or refused with an error that [`Redirect`] recognises. A call that may touch more than
    /// one key is not sent, because some of the keys may not be there yet.
    async fn ask(
        &self,
        world: &dyn World,
        to: &Address,
        call: &(dyn Fn(&ServerClock) -> Call + Send + Sync),
    ) -> Result<Option<(Reply, Arc<Member>)>, Fault> {
        let is_of_one_key = |call: &Call| call.keys == 1 && !call.script.reaches_beyond;
        if !is_of_one_key(&call(self.nobody.clock())) {
            return Ok(None);
        }
        let to = &self.state.read().slots.as_known(to);
        let Some(member) = self.member_at(to).await else { return Ok(None) };
        // The server becomes a member even without a slot, because the next command may be redirected there too.
        let member = {
            let mut state = self.state.write();
            let is_new = !state.members.contains_key(to);
            let member = self.enter(&mut state, to.clone(), member);
            if is_new {
                state.update_replica_counts();
            }
            member
        };
        match member.ask(world, &*self.connector, to, call(member.clock())).await {
            Ok(reply) => Ok(Some((reply, member))),
            Err(fault) if fault.kind == FaultKind::NotSent => Ok(None),
            // Only this member was closed, not the client.
            Err(fault) if fault.kind == FaultKind::Closed && !self.closed.load(Ordering::Relaxed) => Err(left(fault)),
            Err(fault) => match (fault.kind, Redirect::of(&fault.message, to.host())) {
                (FaultKind::Refused | FaultKind::Elsewhere, redirect) if redirect != Redirect::None => Ok(None),
                _ => Err(fault),
            },
        }
    }

    /// Announces a release at the source of a slot move. Sharded subscriptions stay at the source until the move is
    /// done, and do not get messages that a script publishes at the target.
    fn announce_at_source(&self, name: &LockName, asked: &Member, call: &(dyn Fn(&ServerClock) -> Call + Send + Sync)) {
        if !self.is_sharded || !call(asked.clock()).script.announces {
            return;
        }
        let source = self.member(name);
        let words = vec![Arg::Text(name.channel.clone()), Arg::Int(0)];
        // Not awaited, because a waiter that misses the message checks the lock when the holder's lease ends.
        tokio::spawn(async move { source.transport().run(Call { script: &SPUBLISH, keys: 0, words }).await });
    }
}

struct Failed {
    fault: Fault,
    redirect: Redirect,
    at: Option<(Arc<Member>, Placement)>,
}

enum Next {
    Fail(Fault),
    /// Send the command to the member that has the slot now.
    Repeat,
    /// Patch the slot map, and send the command to this address.
    Follow(Address),
    /// Send the command to this address behind an `ASKING`. If that server refuses the command, pause.
    Ask(Address),
    /// Send the command again after a pause. It has not run, and the same server or another server may accept it soon.
    Pause,
}

impl Failed {
    fn of(fault: Fault, at: Option<(Arc<Member>, Placement)>) -> Self {
        let redirect = Redirect::of(&fault.message, at.as_ref().map_or("", |(member, _)| member.host()));
        Self { fault, redirect, at }
    }

    /// The generation of the slot when the command was sent.
    fn generation(&self) -> Option<usize> {
        self.at.as_ref().map(|(_, placement)| placement.generation)
    }

    /// True if the slot is being moved.
    const fn is_open(&self) -> bool {
        matches!(self.redirect, Redirect::Ask { .. } | Redirect::Again)
    }

    /// True if servers may disagree about the slot.
    const fn is_disputed(&self) -> bool {
        matches!(self.redirect, Redirect::Moved { .. })
    }

    const fn longest_pause(&self) -> Duration {
        if self.is_open() || self.is_disputed() { LONGEST_PAUSE_IN_MOVE } else { LONGEST_PAUSE }
    }

    /// The fault to report when the time limit has passed.
    fn last(self, slot: u16) -> Fault {
        match self {
            _ if self.is_open() => open(slot),
            _ if self.is_disputed() => unowned(slot),
            Self { fault, .. } => fault,
        }
    }
}

/// The fault of a command whose member was closed. The client itself is still open.
fn left(fault: Fault) -> Fault {
    let message = "the server has left the cluster, or lost its slots, while it was asked".to_owned();
    Fault { kind: FaultKind::Lost, message, ..fault }
}

fn open(slot: u16) -> Fault {
    let message =
        format!("TRYAGAIN slot {slot} is being moved, and the lock's keys are in two places until that is done");
    Fault::new(FaultKind::Elsewhere, message)
}

fn unowned(slot: u16) -> Fault {
    Fault::new(FaultKind::NotSent, format!("no server of the cluster is known to have slot {slot}"))
}

//! The way of a command to the member that has its name's slot, wherever that turns out to be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Cluster;
use super::gate::{shut, tells_of_cluster};
use crate::names::LockName;
use crate::topology::address::Address;
use crate::topology::clock::ServerClock;
use crate::topology::member::Member;
use crate::topology::redirect::Redirect;
use crate::topology::{Answered, MemberClock, Placement};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};
use crate::world::World;

/// So often in a row a command follows a redirect; then it pauses first.
pub(super) const MOST_REDIRECTS: u32 = 8;

/// How long a command waits at first where its slot is being moved, or its server serves nobody; and at the most, where a slot is
/// being moved, or servers disagree about it, and where nobody serves.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_millis(25);

/// Tells the subscribers of a channel that is a slot's own.
static SPUBLISH: Script = Script::bare("cluster/announce", "SPUBLISH");

impl Cluster {
    /// Runs a call where its name lives, wherever that turns out to be; see the table in [`crate::topology::redirect`].
    pub(in crate::topology) async fn run(
        &self,
        world: &dyn World,
        name: &LockName,
        call: &(dyn Fn(&ServerClock) -> Call + Send + Sync),
    ) -> Result<Answered, Fault> {
        let (slot, until) = (name.slot(), Instant::now() + self.settings.command_timeout);
        let (mut redirects, mut pause) = (0, SHORTEST_PAUSE);
        loop {
            let at = {
                let state = self.state.read();
                state.at(slot).ok().map(|(member, placement)| (Arc::clone(member), placement))
            };
            if let Some((member, placement)) = &at
                && member.gate().is_shut()
                && Instant::now() < until
            {
                let seen = Some(placement.generation);
                let is_over = || !member.gate().is_shut() || self.is_news(slot, seen);
                self.suspicion.pause(until - Instant::now(), is_over).await;
                continue;
            }
            let (fault, at) = match at {
                Some((member, _)) if member.gate().is_shut() => return Err(shut(member.host())),
                Some((member, placement)) => {
                    let outcome = member.run(world, call(member.clock())).await;
                    member.note(&outcome);
                    match outcome {
                        Ok(reply) => return Ok(Answered { reply, placement, clock: MemberClock(member) }),
                        Err(fault) => (fault, Some((member, placement))),
                    }
                }
                None => (unowned(slot), None),
            };
            if self.closed.load(Ordering::Relaxed) {
                return Err(fault);
            }
            let (host, placement) = at.as_ref().map_or(("", None), |(member, at)| (member.host(), Some(*at)));
            let redirect = Redirect::of(&fault.message, host);
            if let (Redirect::Down, Some((member, _))) = (&redirect, &at)
                && tells_of_cluster(&fault.message)
            {
                self.shut(member);
            }
            let is_open = matches!(redirect, Redirect::Ask { .. } | Redirect::Again);
            let is_disputed = matches!(redirect, Redirect::Moved { .. });
            match (fault.kind, redirect) {
                // It was closed because it has lost its slots: what was under way there may have been carried out.
                (FaultKind::Closed, _) => {
                    if let Some(placement) = placement {
                        self.forget_closed(placement.member);
                    }
                    // A query changes nothing, so it is retried at the server that has the slot now.
                    if call(self.nobody.clock()).script.reads_only && Instant::now() < until {
                        continue;
                    }
                    return Err(left(fault));
                }
                (FaultKind::Lost | FaultKind::TimedOut, _) => {
                    self.suspicion.raise();
                    return Err(fault);
                }
                (FaultKind::RuntimeGone | FaultKind::Unacknowledged { .. }, _)
                | (FaultKind::Refused, Redirect::None) => {
                    return Err(fault);
                }
                (_, Redirect::Moved { slot: told, to: Some(to) }) if told == slot && redirects < MOST_REDIRECTS => {
                    redirects += 1;
                    self.suspicion.raise();
                    let seen = placement.map_or(0, |placement| placement.generation);
                    let seen = u32::try_from(seen).unwrap_or(u32::MAX);
                    self.apply_redirect(slot, seen, &to).await;
                    continue;
                }
                (_, Redirect::Ask { slot: told, to: Some(to) }) if told == slot => {
                    if let Some((reply, member)) = self.ask(world, &to, call).await? {
                        self.announce_at_source(name, &member, call);
                        let placement = placement.unwrap_or(Placement::NOWHERE);
                        return Ok(Answered { reply, placement, clock: MemberClock(member) });
                    }
                }
                (_, Redirect::Moved { .. } | Redirect::Down | Redirect::Demoted | Redirect::NonLocal)
                | (FaultKind::NotSent, _) => self.suspicion.raise(),
                (_, Redirect::Ask { .. } | Redirect::Again) => {}
                (FaultKind::Elsewhere, Redirect::None) => return Err(fault),
            }
            // It has not run, and may have a place to run at in a moment.
            if Instant::now() + pause >= until {
                return Err(match fault {
                    _ if is_open => open(slot),
                    _ if is_disputed => unowned(slot),
                    fault => fault,
                });
            }
            let seen = placement.map(|placement| placement.generation);
            // News of a slot that servers send to each other for are of no use.
            self.suspicion.pause(pause, || !is_disputed && self.is_news(slot, seen)).await;
            redirects = 0;
            pause = (pause * 2).min(if is_open || is_disputed { LONGEST_PAUSE } else { LONGEST_REST });
        }
    }

    /// True where a slot has a primary that it did not have when this generation was seen, or when it had none.
    fn is_news(&self, slot: u16, seen: Option<usize>) -> bool {
        self.state.read().at(slot).is_ok_and(|(_, placement)| Some(placement.generation) != seen)
    }

    /// Runs a call at a server that the slot is being moved to. None where that does not let it in, and for a call of more than
    /// one key, of which only some may be there.
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
        // It may have no slot yet, and is asked for the next key as well.
        let member = {
            let mut state = self.state.write();
            let is_new = !state.members.contains_key(to);
            let member = self.enter(&mut state, to.clone(), member);
            if is_new {
                state.tell_of_replicas();
            }
            member
        };
        match member.ask(world, &*self.connector, to, call(member.clock())).await {
            Ok(reply) => Ok(Some((reply, member))),
            Err(fault) if fault.kind == FaultKind::NotSent => Ok(None),
            // Not by the client's end: as above.
            Err(fault) if fault.kind == FaultKind::Closed && !self.closed.load(Ordering::Relaxed) => Err(left(fault)),
            Err(fault) => match (fault.kind, Redirect::of(&fault.message, to.host())) {
                (FaultKind::Refused | FaultKind::Elsewhere, redirect) if redirect != Redirect::None => Ok(None),
                _ => Err(fault),
            },
        }
    }

    /// Where channels are a slot's own, subscribers stay at the server that a slot is moved away from until that is done, and do
    /// not hear what a script announces at the other one.
    fn announce_at_source(&self, name: &LockName, asked: &Member, call: &(dyn Fn(&ServerClock) -> Call + Send + Sync)) {
        if !self.is_sharded || !call(asked.clock()).script.announces {
            return;
        }
        let source = self.member(name);
        let words = vec![Arg::Text(name.channel.clone()), Arg::Int(0)];
        // Nobody waits for it: who is not told looks when the lease that was seen ends.
        tokio::spawn(async move { source.transport().run(Call { script: &SPUBLISH, keys: 0, words }).await });
    }
}

/// What a command is told whose server was closed under it, and not by the client's end.
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

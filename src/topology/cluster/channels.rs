//! Subscriptions in a cluster: each is at the primary of its channel's slot, and moves with it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt as _};

use super::{Cluster, MOST_REDIRECTS};
use crate::names::LockName;
use crate::topology::member::Member;
use crate::topology::redirect::Redirect;
use crate::topology::slots::slot_of;
use crate::transport::Fault;

/// The channels that are wanted, each with the member that was asked for it last.
pub(super) type Subscribed = HashMap<Bytes, Arc<Member>>;

impl Cluster {
    pub(in crate::topology) async fn subscribe(&self, name: &LockName) -> Result<(), Fault> {
        let mut redirects = 0;
        loop {
            let (member, placement) = (self.member(name), self.placement(name));
            // Wanted from here on: a slot that moves meanwhile takes it along.
            self.subscribed.lock().insert(name.channel.clone(), Arc::clone(&member));
            let fault = match member.transport().subscribe(name.channel.clone()).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            self.suspicion.raise();
            redirects += 1;
            match Redirect::of(&fault.message, "") {
                Redirect::Moved { to: Some(to), .. } if redirects <= MOST_REDIRECTS => {
                    self.moved(name.slot(), placement.generation, &to).await;
                }
                _ => return Err(fault),
            }
        }
    }

    pub(in crate::topology) async fn unsubscribe(&self, name: &LockName) {
        let member = {
            let mut subscribed = self.subscribed.lock();
            let member = subscribed.remove(&name.channel);
            crate::slim::slim(&mut subscribed);
            member
        };
        if let Some(member) = member {
            member.transport().unsubscribe(name.channel.clone()).await;
        }
    }

    /// Subscribes at their new places to the channels whose slots have moved; whoever waits there looks once that is confirmed.
    /// False where some could not be, and have to be tried again.
    pub(super) async fn follow_slots(&self) -> bool {
        let moved: Vec<(Bytes, Arc<Member>, Arc<Member>)> = {
            let subscribed = self.subscribed.lock();
            let state = self.state.read();
            let moved = subscribed.iter().filter_map(|(channel, before)| {
                let (member, _) = state.at(slot_of(channel)).ok()?;
                (member.id() != before.id()).then(|| (channel.clone(), Arc::clone(before), Arc::clone(member)))
            });
            moved.collect()
        };
        let mut under_way: FuturesUnordered<_> =
            moved.into_iter().map(|(channel, before, member)| self.follow(channel, before, member)).collect();
        let mut is_done = true;
        while let Some(followed) = under_way.next().await {
            is_done &= followed;
        }
        is_done
    }

    async fn follow(&self, channel: Bytes, before: Arc<Member>, member: Arc<Member>) -> bool {
        let outcome = member.transport().subscribe(channel.clone()).await;
        let is_wanted = {
            let mut subscribed = self.subscribed.lock();
            let wanted = subscribed.get_mut(&channel).filter(|known| known.id() == before.id());
            match (&outcome, wanted) {
                (Ok(()), Some(known)) => {
                    *known = Arc::clone(&member);
                    true
                }
                (_, wanted) => wanted.is_some(),
            }
        };
        before.transport().unsubscribe(channel.clone()).await;
        if !is_wanted {
            // Ended meanwhile, or taken elsewhere by another: that one is not told of this.
            let is_there = self.subscribed.lock().get(&channel).is_some_and(|known| known.id() == member.id());
            if !is_there {
                member.transport().unsubscribe(channel).await;
            }
            return true;
        }
        if let Err(fault) = &outcome {
            tracing::debug!(?fault, "cannot subscribe where a slot is now: tried again");
        }
        // A release may have been announced where nobody listened any more.
        self.notify(|listener| listener.moved(&channel));
        outcome.is_ok()
    }
}

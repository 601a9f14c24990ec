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
            let (member, generation, host) = {
                let state = self.state.read();
                let host = state.slots.primary(name.slot()).map(|address| address.host().to_owned());
                let generation = usize::try_from(state.slots.generation(name.slot())).unwrap_or(usize::MAX);
                let member =
                    state.at(name.slot()).map_or_else(|_| Arc::clone(&self.nobody), |(member, _)| Arc::clone(member));
                (member, generation, host.unwrap_or_default())
            };
            // Wanted from here on: a slot that moves meanwhile takes it along.
            self.subscribed.lock().insert(name.channel.clone(), Arc::clone(&member));
            let fault = match member.transport().subscribe(name.channel.clone()).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            self.suspicion.raise();
            redirects += 1;
            member.transport().forget(&name.channel);
            match Redirect::of(&fault.message, &host) {
                Redirect::Moved { slot, to: Some(to) } if slot == name.slot() && redirects <= MOST_REDIRECTS => {
                    self.moved(slot, generation, &to).await;
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
        if self.is_sharded {
            // The server has ended it with the slot, and refuses to be told so.
            before.transport().forget(&channel);
        } else {
            // Nobody waits for it: that server may be away.
            let (before, channel) = (Arc::clone(&before), channel.clone());
            tokio::spawn(async move { before.transport().unsubscribe(channel).await });
        }
        if !is_wanted {
            // Ended meanwhile, or taken elsewhere by another: that one is not told of this.
            let is_there = self.subscribed.lock().get(&channel).is_some_and(|known| known.id() == member.id());
            if !is_there {
                member.transport().unsubscribe(channel).await;
            }
            return true;
        }
        if let Err(fault) = &outcome {
            member.transport().forget(&channel);
            tracing::debug!(?fault, "cannot subscribe where a slot is now: tried again");
        }
        // A release may have been announced where nobody listened any more.
        self.notify(|listener| listener.moved(&channel));
        outcome.is_ok()
    }
}

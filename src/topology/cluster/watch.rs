//! Keeping the map of slots: from time to time, and often while there is a reason to doubt it.

use std::future::Future;
use std::iter;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

use super::{Cluster, State};
use crate::runtime::standstill::within;
use crate::topology::address::Address;
use crate::topology::member::Member;
use crate::topology::slots::view::SlotView;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, Reply};
use crate::world::World;

/// The command that tells a server's picture of the cluster.
static NODES: Script = Script::bare("cluster/nodes", "CLUSTER");

/// How often the servers are asked while the map is in doubt and none answers, and for how long it has to be whole and quiet to be
/// believed again.
pub(super) const SUSPICIOUS: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(1);

/// How often while they answer, and how many times in a row only one of them is asked, before it is several again. Who is promoted
/// tells all other servers at once, so any of them that answers has the news: it is heard the sooner, the more often one is asked.
const OFTEN: Duration = Duration::from_millis(100);
const ONE_BY_ONE: u32 = 2;

/// How long that one has before several are asked.
const ONE_WITHIN: Duration = Duration::from_millis(100);

/// How often it is looked whether a server has fallen silent.
const LISTENS: Duration = Duration::from_millis(250);

/// After so long in doubt they are asked that seldom: a primary may be away for good, and nobody be there to take its place.
const ACUTE: Duration = Duration::from_secs(60);
const CHRONIC: Duration = Duration::from_secs(1);

/// How long a server may take to tell, where others can be asked.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// How long all of those may take that have to be connected to first.
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);

/// How long the others have once one has told.
const OTHERS_WITHIN: Duration = Duration::from_millis(20);

/// How many are asked at a time.
const ASKED: usize = 3;

/// Asks a server for its picture.
pub(super) fn nodes() -> Call {
    Call { script: &NODES, keys: 0, words: vec![Arg::Text(bytes::Bytes::from_static(b"NODES"))] }
}

/// The picture of a server at `host`, from its answer, which has to come within `limit`.
pub(super) async fn view_of(
    answer: impl Future<Output = Result<Reply, Fault>>,
    host: &str,
    limit: Duration,
) -> Result<SlotView, String> {
    match within(limit, answer).await {
        Some(Ok(Reply::Text(text))) => {
            SlotView::parse(&String::from_utf8_lossy(&text), host).map_err(|error| error.to_string())
        }
        Some(Ok(_)) => Err("the reply to CLUSTER NODES is no text".to_owned()),
        Some(Err(fault)) => Err(fault.message),
        None => Err(format!("no answer to CLUSTER NODES within {limit:?}")),
    }
}

/// Asks a member for its picture; None where it gives none.
async fn ask_view(world: &dyn World, address: &Address, member: &Member) -> Option<SlotView> {
    let view = view_of(member.run(world, nodes()), address.host(), ANSWERS_WITHIN).await;
    view.inspect_err(|error| tracing::debug!(error, "a server of the cluster did not tell its nodes")).ok()
}

/// Keeps the map until the cluster is closed or forgotten.
pub(super) async fn run(cluster: Weak<Cluster>, scan_interval: Duration) {
    let (mut doubted_until, mut doubted_since, mut asked) = (Instant::now(), Instant::now(), Instant::now());
    let (mut has_answered, mut one_by_one) = (false, 0);
    loop {
        let Some(this) = cluster.upgrade() else { return };
        let now = Instant::now();
        let is_doubted = now < doubted_until;
        if !is_doubted {
            doubted_since = now;
        }
        let is_acute = now - doubted_since < ACUTE;
        let often = match has_answered {
            _ if !is_acute => CHRONIC.min(scan_interval),
            true => OFTEN,
            false => SUSPICIOUS,
        };
        let pause = if is_doubted { often } else { scan_interval };
        // The cluster is not held while nothing is to be done.
        let suspicion = Arc::clone(&this.suspicion);
        drop(this);
        let next = now + pause;
        let notified = loop {
            let look = (Instant::now() + LISTENS).min(next);
            if tokio::time::timeout_at(look, suspicion.raised()).await.is_ok() {
                break true;
            }
            let Some(this) = cluster.upgrade() else { return };
            // Another one may be about to take its place, and it must not go on as if nothing had happened when it wakes.
            if this.is_any_silent() {
                suspicion.raise();
            } else if Instant::now() >= next {
                break false;
            }
        };
        let Some(this) = cluster.upgrade() else { return };
        if suspicion.take() {
            doubted_until = Instant::now() + QUIET;
        }
        // In this order: closing raises a suspicion, so that it is not overlooked.
        if this.closed.load(Ordering::Relaxed) {
            return;
        }
        if !notified || doubted_until > Instant::now() {
            // Of many reasons that come one after the other one is enough.
            tokio::time::sleep_until(asked + often).await;
            if is_doubted && is_acute && one_by_one < ONE_BY_ONE && this.ask_one().await {
                (has_answered, one_by_one) = (true, one_by_one + 1);
            } else {
                one_by_one = 0;
                has_answered = this.ask_some().await;
            }
            this.forget_guests(this.nobody.transport().world().now());
            asked = Instant::now();
            if !has_answered || !this.is_sound() {
                doubted_until = Instant::now() + QUIET;
            }
        }
    }
}

impl Cluster {
    /// True when answers of a primary are due, and do not come.
    fn is_any_silent(&self) -> bool {
        let now = self.nobody.transport().world().now();
        self.state.read().members.values().any(|member| member.is_silent(now))
    }

    /// True when the map is whole and sure.
    fn is_sound(&self) -> bool {
        let mut state = self.state.write();
        let State { members, away, slots, .. } = &mut *state;
        away.retain(|away| members.values().any(|member| member.id() == *away));
        away.is_empty() && slots.is_whole() && !slots.is_hearsay()
    }

    /// Asks one server that is not known to be away. True when it has answered.
    async fn ask_one(&self) -> bool {
        let world = self.nobody.transport().world();
        let one = {
            let (state, now) = (self.state.read(), world.now());
            let is_there = |member: &Member| !state.away.contains(&member.id()) && !member.is_silent(now);
            let there: Vec<_> = state.members.iter().filter(|(_, member)| is_there(member)).collect();
            let one = usize::try_from(world.random()).unwrap_or(0).checked_rem(there.len()).map(|at| there[at]);
            one.map(|(address, member)| (address.clone(), Arc::clone(member)))
        };
        let Some((address, member)) = one else { return false };
        self.merge_first(iter::once(ask_view(&*world, &address, &member)), ONE_WITHIN).await > 0
    }

    /// Asks a few servers for their pictures and takes over what they know better. True when any has answered.
    async fn ask_some(&self) -> bool {
        let mut members: Vec<_> = {
            let state = self.state.read();
            state.members.iter().map(|(address, member)| (address.clone(), Arc::clone(member))).collect()
        };
        let world = self.nobody.transport().world();
        members.sort_by_cached_key(|_| world.random());
        for some in members.chunks(ASKED) {
            let asking = some.iter().map(|(address, member)| ask_view(&*world, address, member));
            if self.merge_first(asking, ANSWERS_WITHIN).await > 0 {
                return true;
            }
        }
        if !self.closed.load(Ordering::Relaxed) {
            self.ask_others().await;
        }
        false
    }

    /// No primary answers: replicas that are known, and the servers of the start, are asked.
    async fn ask_others(&self) {
        let mut others: Vec<Address> =
            self.state.read().slots.known().iter().filter_map(|peer| peer.address.clone()).collect();
        others.extend(self.settings.seeds.iter().cloned());
        others.sort_unstable();
        others.dedup();
        let asking = others.into_iter().map(|address| async move { self.view_at(&address).await });
        self.merge_first(asking, CONNECTED_WITHIN).await;
    }

    /// Takes over the views that come in within that time, and soon after the first of them. How many that were.
    async fn merge_first(
        &self,
        asking: impl Iterator<Item = impl Future<Output = Option<SlotView>>>,
        most: Duration,
    ) -> usize {
        let mut asking: FuturesUnordered<_> = asking.collect();
        let mut end = std::pin::pin!(tokio::time::sleep(most));
        let mut answered = 0;
        loop {
            let view = tokio::select! {
                biased;
                view = asking.next() => view,
                // One that is away holds up nobody.
                () = &mut end => return answered,
            };
            match view {
                Some(Some(view)) => {
                    if answered == 0 {
                        end.set(tokio::time::sleep(OTHERS_WITHIN));
                    }
                    answered += 1;
                    self.merge(&view).await;
                }
                Some(None) => {}
                None => return answered,
            }
        }
    }

    /// Takes over what a view knows better.
    pub(super) async fn merge(&self, view: &SlotView) {
        let named = self.by_name.then(|| view.clone().by_name());
        let view = named.as_ref().unwrap_or(view);
        if !view.open().is_empty() {
            tracing::debug!(slots = ?view.open(), "slots are being moved: locks of several keys wait there");
        }
        self.state.write().prepare(view, self.nobody.transport().world().now());
        let merged = {
            let mut slots = self.state.read().slots.clone();
            slots.merge(view).map(|changes| (slots, changes))
        };
        let Some((slots, _)) = merged else { return };
        // Members are made before they have slots, so that no slot is without.
        let mut members = Vec::new();
        for address in slots.addresses() {
            let Some(member) = self.member_at(&address).await else { continue };
            members.push((address, member));
        }
        let changes = {
            let mut state = self.state.write();
            // A redirect may have come meanwhile.
            state.prepare(view, self.nobody.transport().world().now());
            let Some(changes) = state.slots.merge(view) else { return };
            let addresses = state.slots.addresses();
            for (address, member) in members {
                if addresses.binary_search(&address).is_ok() {
                    self.enter(&mut state, address, member);
                }
            }
            state.tell_of_replicas();
            state.forget(&changes)
        };
        self.changed(changes);
    }
}

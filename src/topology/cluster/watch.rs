//! Keeps the slot map up to date by querying servers for their views (`CLUSTER NODES`).
//!
//! | state | query |
//! |---|---|
//! | no doubt | three servers every `scan_interval` |
//! | in doubt, servers answer | one server every 100 ms, every third time three |
//! | in doubt, no server answers | all primaries, then replicas and seeds, with pauses of 200 ms |
//! | in doubt for more than a minute | three servers every second, or every `scan_interval` if that is shorter |
//!
//! Doubt begins with a redirect, a broken connection, an overdue reply or an incomplete map. The doubt ends after a
//! second without such a reason.

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

static NODES: Script = Script::bare("cluster/nodes", "CLUSTER");

/// Interval of queries while the map is in doubt and no server answers. Doubt ends when no new reason for it has come
/// for `QUIET`.
pub(super) const SUSPICIOUS: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(1);

/// Interval of queries in doubt while servers answer. `ONE_BY_ONE` is the number of queries in a row that go to only
/// one server. One server is enough, because a promoted server informs all other servers at once.
const OFTEN: Duration = Duration::from_millis(100);
const ONE_BY_ONE: u32 = 2;

/// Time that a single server has to answer before several servers are queried in parallel.
const ONE_WITHIN: Duration = Duration::from_millis(100);

/// Interval of checks for servers that have fallen silent.
const LISTENS: Duration = Duration::from_millis(250);

/// After `ACUTE` in doubt, the interval is `CHRONIC`, because a primary may be down for good, without a replacement.
const ACUTE: Duration = Duration::from_secs(60);
const CHRONIC: Duration = Duration::from_secs(1);

/// Time that a server has to answer if other servers can be queried.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// Time limit for replicas and seeds, including the time to connect to them.
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);

/// Time that the other servers have to answer once one server has answered.
const OTHERS_WITHIN: Duration = Duration::from_millis(20);

/// Number of servers that are queried in parallel.
const ASKED: usize = 3;

pub(super) fn nodes() -> Call {
    Call { script: &NODES, keys: 0, words: vec![Arg::Text(bytes::Bytes::from_static(b"NODES"))] }
}

/// Parses the view of the server at `host` from its reply, which has to arrive within `limit`.
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

/// Queries a member for its view. `None` if the member returns no view.
async fn ask_view(world: &dyn World, address: &Address, member: &Member) -> Option<SlotView> {
    let view = view_of(member.run(world, nodes()), address.host(), ANSWERS_WITHIN).await;
    view.inspect_err(|error| tracing::debug!(error, "a server of the cluster did not list its nodes")).ok()
}

/// Keeps the map up to date until the cluster is closed or dropped.
pub(super) async fn run(cluster: Weak<Cluster>, scan_interval: Duration) {
    let [mut doubted_until, mut doubted_since, mut asked] = [Instant::now(); 3];
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
        let next = now + if is_doubted { often } else { scan_interval };
        // The cluster is not kept alive during the wait.
        let suspicion = Arc::clone(&this.suspicion);
        drop(this);
        let notified = loop {
            let look = (Instant::now() + LISTENS).min(next);
            if tokio::time::timeout_at(look, suspicion.raised()).await.is_ok() {
                break true;
            }
            let Some(this) = cluster.upgrade() else { return };
            // Another server may be about to replace the silent server. The client must learn of the replacement before
            // a frozen server wakes up.
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
        // `close` sets `closed`, and then raises a suspicion. `closed` is checked after `take`, so a close whose
        // suspicion `take` has just cleared is still seen.
        if this.closed.load(Ordering::Relaxed) {
            return;
        }
        if !notified || doubted_until > Instant::now() {
            // At least `often` passes between two queries, so several suspicions within that time cause one query.
            tokio::time::sleep_until(asked + often).await;
            if is_doubted && is_acute && one_by_one < ONE_BY_ONE && this.ask_one().await {
                (has_answered, one_by_one) = (true, one_by_one + 1);
            } else {
                one_by_one = 0;
                has_answered = this.ask_some().await;
            }
            this.drop_unused_members(this.nobody.transport().world().now());
            asked = Instant::now();
            if !has_answered || !this.is_sound() {
                doubted_until = Instant::now() + QUIET;
            }
        }
    }
}

impl Cluster {
    fn is_any_silent(&self) -> bool {
        let now = self.nobody.transport().world().now();
        self.state.read().members.values().any(|member| member.is_silent(now))
    }

    /// True if every slot has a primary, no primary is known from a redirect only, and no member has a broken
    /// connection.
    fn is_sound(&self) -> bool {
        let mut state = self.state.write();
        let State { members, away, slots, .. } = &mut *state;
        away.retain(|away| members.values().any(|member| member.id() == *away));
        away.is_empty() && slots.is_whole() && !slots.is_hearsay()
    }

    /// Queries one random server that is not known to be unreachable. Returns true if that server has answered.
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

    /// Queries a few servers at a time until one has answered, and merges their views. Returns true if any server has
    /// answered.
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

    /// Queries all known nodes and the seeds, because no member has answered.
    async fn ask_others(&self) {
        let mut others: Vec<Address> =
            self.state.read().slots.known().iter().filter_map(|peer| peer.address.clone()).collect();
        others.extend(self.settings.seeds.iter().cloned());
        others.sort_unstable();
        others.dedup();
        let asking = others.into_iter().map(|address| async move { self.view_at(&address).await });
        self.merge_first(asking, CONNECTED_WITHIN).await;
    }

    /// Merges the views that arrive within `most`. After the first view, the other servers have [`OTHERS_WITHIN`].
    /// Returns the number of views.
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
                // An unreachable server does not delay the merge of other views.
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
        // Members are created before they get slots, so that every slot has a member.
        let mut members = Vec::new();
        for address in slots.addresses() {
            let Some(member) = self.member_at(&address).await else { continue };
            members.push((address, member));
        }
        let changes = {
            let mut state = self.state.write();
            // A redirect may have changed the map meanwhile.
            state.prepare(view, self.nobody.transport().world().now());
            let Some(changes) = state.slots.merge(view) else { return };
            let addresses = state.slots.addresses();
            for (address, member) in members {
                if addresses.binary_search(&address).is_ok() {
                    self.enter(&mut state, address, member);
                }
            }
            state.update_replica_counts();
            state.forget(&changes)
        };
        self.changed(changes);
    }
}

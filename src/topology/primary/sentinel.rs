//! Finds the primary of a set that sentinels watch. Sentinels promote a replica when the primary fails.
//!
//! 1. The client subscribes at all sentinels, and acts on the first announcement of a new primary. It does not wait for
//!    the sentinel that leads the failover, which is often the last to announce the new primary.
//! 2. The client also queries all sentinels every `scan_interval`. The highest epoch wins, so a stale sentinel changes
//!    nothing.
//! 3. In doubt, the client queries the replicas too, because a replica is promoted a while before any sentinel reports
//!    the promotion. The client accepts a promoted replica *early*, before a sentinel names it, if that server
//!    continues the primary's replication history.
//!
//! All these reports are only hints: the named server itself must say that it is a primary.

mod start;
mod told;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

use super::watch::{ANSWERS_WITHIN, Finder};
use super::witnesses::ask;
use super::{Known, Primary, SILENT_WITHIN};
use crate::topology::address::Address;
use crate::topology::role::{Replication, replication};
use crate::transport::Listener;
use told::{Told, agreed_upon, listed, master, replicas_of};

/// Channels of sentinels with events that may concern the primary.
const EVENTS: [&str; 6] = ["+switch-master", "+sdown", "+odown", "-role-change", "+sentinel", "+slave"];

/// In doubt, one of this many looks queries all sentinels. The other looks query one sentinel, which is enough because
/// sentinels announce changes.
const ALL_EVERY: u32 = 5;

/// Interval at which sentinels are queried for the replicas and the other sentinels.
const LISTED_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of sentinels, and of replicas, that the client connects to. The lists come from servers, and a real
/// set has a handful.
const MOST_LISTED: usize = 64;

/// Receives the announcements of one sentinel.
struct Ear {
    of: Address,
    name: Arc<str>,
    primary: Arc<OnceLock<Weak<Primary>>>,
}

impl Ear {
    fn primary(&self) -> Option<Arc<Primary>> {
        self.primary.get().and_then(Weak::upgrade)
    }

    /// Asks the sentinel at once, and acts on its reply.
    fn ask(&self) {
        let (Some(primary), of, name) = (self.primary(), self.of.clone(), Arc::clone(&self.name)) else { return };
        // Not awaited. The task ends with the runtime.
        tokio::spawn(async move {
            let standing = primary.sentinels.standing();
            let Some((_, sentinel)) = standing.into_iter().find(|(address, _)| *address == of) else { return };
            if let Ok(told) = master(&*sentinel, &name, ANSWERS_WITHIN).await {
                primary.heard(&told, false).await;
            }
        });
    }
}

impl Listener for Ear {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        let payload = String::from_utf8_lossy(payload);
        let mut words = payload.split(' ');
        let is_switch = channel == b"+switch-master" && words.next() == Some(&*self.name);
        let is_about_it = || payload.split(' ').any(|word| word == &*self.name);
        if !is_switch && !is_about_it() {
            return;
        }
        if let Some(primary) = self.primary() {
            primary.suspicion.raise();
        }
        if is_switch {
            self.ask();
        }
    }

    fn missed(&self) {
        self.ask();
    }

    fn reconnected(&self) {}
}

impl Primary {
    /// Acts on the report of a sentinel. `is_agreed` is true if most known sentinels report the same server. Returns
    /// true if that server is the primary now.
    async fn heard(&self, told: &Told, is_agreed: bool) -> bool {
        self.confirm(&told.address, told.epoch);
        let mut asked = self.taking.lock().await;
        let (address, epoch, is_early) = {
            let current = self.current.read();
            (current.address.clone(), current.epoch, current.is_early)
        };
        if self.is_closed() || address == told.address {
            return address == told.address;
        }
        // The report is stale, or the sentinels were set up again with lower epochs. The report counts only if most
        // sentinels agree, and the current primary denies its role or does not answer. For an early primary, a missing
        // answer is not enough.
        if told.epoch <= epoch {
            if !is_agreed {
                return false;
            }
            let may_be_ours = match self.role_of_current(ANSWERS_WITHIN).await {
                Some(role) => role.is_primary(),
                None => is_early,
            };
            if may_be_ours {
                return false;
            }
        }
        self.take_over(&told.address, Known::Told(told.epoch), &mut asked).await
    }
}

struct BySentinels {
    name: Arc<str>,
    /// The address of the primary, and the replication id in the primary's last answer (empty before the first answer).
    history: (Address, String),
    looks: u32,
    /// Since when there has been doubt.
    doubted: Option<Instant>,
    /// When the sentinels last listed the members of the set.
    listed: Option<Instant>,
}

impl Finder for BySentinels {
    fn look<'a>(&'a mut self, primary: &'a Arc<Primary>, is_doubted: bool) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if !is_doubted {
                primary.servers.keep(&[]);
                primary.leave_candidate();
                self.doubted = None;
                return self.ask_sentinels(primary, true).await != Some(false);
            }
            self.looks = self.looks.wrapping_add(1);
            self.doubted.get_or_insert_with(Instant::now);
            let all = self.looks % ALL_EVERY == 1;
            let is_well = self.ask_servers(primary).await;
            let told = self.ask_sentinels(primary, all).await;
            is_well && told != Some(false)
        })
    }
}

impl BySentinels {
    /// Asks all sentinels, or one of them. Returns `None` if no sentinel answers. Otherwise returns whether they name
    /// the current primary and consider it up.
    async fn ask_sentinels(&mut self, primary: &Arc<Primary>, all: bool) -> Option<bool> {
        let mut standing = primary.sentinels.standing();
        if !all && !standing.is_empty() {
            let one = self.looks as usize % standing.len();
            standing = vec![standing.swap_remove(one)];
        }
        let began = primary.world.now();
        let asked = standing.iter().map(async |(_, sentinel)| master(&**sentinel, &self.name, ANSWERS_WITHIN).await);
        let mut asking: FuturesUnordered<_> = asked.collect();
        let mut answers = Vec::new();
        while let Some(answer) = asking.next().await {
            let Ok(told) = answer.inspect_err(|why| tracing::debug!(error = why, "a sentinel does not answer")) else {
                continue;
            };
            // Acts on each report at once, because the other reports may take longer.
            primary.heard(&told, false).await;
            answers.push(told);
        }
        drop(asking);
        let highest = answers.iter().max_by_key(|told| told.epoch)?.clone();
        let most = answers.iter().map(|told| told.others).max().unwrap_or(0).div_ceil(2);
        let agreed = agreed_upon(&answers, most).cloned();
        if all && primary.address() != highest.address {
            let is_agreed = agreed.as_ref().is_some_and(|told| told.address == highest.address);
            primary.heard(&highest, is_agreed).await;
        }
        if all && let Some(told) = agreed.as_ref().filter(|told| told.address != highest.address) {
            // A sentinel that was not set up again with the others keeps the highest epoch for good. The majority
            // outweighs that sentinel.
            primary.heard(told, true).await;
        }
        let now_at = primary.address();
        let sentinels =
            primary.sentinels.addresses().len().max(answers.iter().map(|told| told.others + 1).max().unwrap_or(0));
        if answers.iter().filter(|told| told.address == now_at && !told.is_down).count() > sentinels / 2 {
            primary.confirmed.store(began.as_nanos(), Ordering::Relaxed);
        }
        if self.listed.is_none_or(|at| at.elapsed() >= LISTED_EVERY) {
            self.list(primary, ANSWERS_WITHIN).await;
        }
        let told = agreed.filter(|told| all && told.address != highest.address).unwrap_or(highest);
        Some(primary.address() == told.address && !told.is_down)
    }

    /// Asks the sentinels for the members of the set. `limit` is the time for each answer.
    async fn list(&mut self, primary: &Primary, limit: Duration) {
        let (name, now, current) = (&*self.name, Instant::now(), primary.address());
        let standing = primary.sentinels.standing();
        let asked = standing.iter().map(|(_, sentinel)| {
            let replicas = replicas_of(&current, &**sentinel, name, limit);
            futures::future::join(listed(&**sentinel, "SENTINELS", name, limit), replicas)
        });
        let (mut known, mut replicas) = (Vec::new(), None::<BTreeSet<Address>>);
        let mut answered = Vec::new();
        let answers = futures::future::join_all(asked).await;
        for ((address, _), (others, slaves)) in standing.iter().zip(answers) {
            if others.is_some() {
                answered.push(address.clone());
            }
            known.extend(others.unwrap_or_default());
            if let Some(slaves) = slaves {
                replicas.get_or_insert_default().extend(slaves);
            }
        }
        // A sentinel that does not answer stays known while another sentinel lists it. If no sentinel answers, all stay
        // known.
        if answered.is_empty() {
            answered = primary.sentinels.addresses();
        }
        let mut sentinels: BTreeSet<Address> = primary.settings.seeds.iter().cloned().chain(answered).collect();
        for one in known {
            if sentinels.len() < MOST_LISTED {
                sentinels.insert(one);
            }
        }
        primary.sentinels.keep(&sentinels.into_iter().collect::<Vec<_>>());
        if let Some(replicas) = replicas
            && primary.set_replicas(&current, replicas)
        {
            self.listed = Some(now);
        }
    }

    /// True while the primary may still answer over the second connection, which was opened when the doubt began.
    fn was_doubted_lately(&self, primary: &Primary, current: &Address) -> bool {
        primary.servers.is_connecting(current) && self.doubted.is_some_and(|since| since.elapsed() < ANSWERS_WITHIN)
    }

    /// Asks the primary and its replicas for their replication histories, because a replica may have been promoted.
    /// Returns true if the primary reports that it is a primary.
    async fn ask_servers(&mut self, primary: &Arc<Primary>) -> bool {
        let current = primary.address();
        if self.history.0 != current {
            (self.history, self.listed) = ((current.clone(), String::new()), None);
        }
        // The primary is queried over a second connection too, because a broken connection does not mean that the
        // server is unreachable.
        let mut all: Vec<Address> = primary.replicas.read().iter().take(MOST_LISTED).cloned().collect();
        all.push(current.clone());
        primary.servers.keep(&all);
        let mut others = primary.servers.standing();
        let again = others.iter().position(|(address, _)| *address == current).map(|at| others.swap_remove(at).1);
        let asked = others.iter().map(async |(address, server)| {
            let reply = ask(&**server, replication(), ANSWERS_WITHIN).await;
            Some((address, Replication::of(&reply.ok()?)))
        });
        let mut asking: FuturesUnordered<_> = asked.collect();
        let again = async {
            let Some(again) = &again else { return None };
            let reply = ask(&**again, replication(), SILENT_WITHIN).await;
            reply.ok().map(|reply| Replication::of(&reply))
        };
        let (ours, again) = futures::future::join(primary.replication_of_current(), again).await;
        let ours = ours.or(again);
        if ours.is_none() && self.was_doubted_lately(primary, &current) {
            return false;
        }
        let is_well = ours.as_ref().is_some_and(|ours| ours.is_primary);
        if let Some(ours) = ours.filter(|ours| ours.is_primary) {
            self.history.1 = ours.id;
        }
        while let Some(answer) = asking.next().await {
            let Some((address, of)) = answer else { continue };
            if is_well || !of.continues_history(&self.history.1) {
                continue;
            }
            let mut asked = primary.taking.lock().await;
            if primary.address() == current {
                primary.take_over(address, Known::Found, &mut asked).await;
            }
            return false;
        }
        is_well
    }
}

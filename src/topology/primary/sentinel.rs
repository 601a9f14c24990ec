//! Sentinels: servers that look after a primary, and put one of its replicas in its place when it fails.
//!
//! All of them are listened to, and the first that tells of a new primary is acted upon: the one that leads a failover is often the
//! last to say so. What they tell is a hint: the server named has to say itself that it is a primary. Of what they say
//! when asked, the highest epoch counts, so that one that was cut off for a while turns nothing back. While there is doubt, the replicas
//! are asked as well: one is promoted a while before any sentinel says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::watch::{ANSWERS_WITHIN, Finder};
use super::witnesses::{Witnesses, ask};
use super::{Known, Primary, SILENT_WITHIN, watch};
use crate::error::{Error, Result, Step};
use crate::topology::address::Address;
use crate::topology::role::{History, Role, history, number, role, text};
use crate::topology::{Settings, TopologyKind};
use crate::transport::connector::{Connector, Purpose};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Listener, Reply, Transport};
use crate::world::World;

static SENTINEL: Script = Script::bare("topology/sentinel", "SENTINEL");

/// What sentinels tell by themselves that may be about a change of the primary.
const EVENTS: [&str; 6] = ["+switch-master", "+sdown", "+odown", "-role-change", "+sentinel", "+slave"];

/// How long the others have to answer at the start once one has.
const OTHERS_WITHIN: Duration = Duration::from_millis(100);

/// Every so many looks in doubt all sentinels are asked, and one at the others: what they find out they tell by themselves.
const ALL_EVERY: u32 = 5;

/// How often they are asked which replicas and which other sentinels there are.
const LISTED_EVERY: Duration = Duration::from_secs(10);

/// So many sentinels, and replicas, are connected to at the most: lists come from servers, and a set has a handful.
const MOST_LISTED: usize = 64;

/// What a sentinel says of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    address: Address,
    /// How often sentinels had put a server there when they put this one.
    epoch: u64,
    /// It is taken to be down, or is being replaced.
    is_down: bool,
    /// How many other sentinels it knows.
    others: usize,
}

/// What is told by one sentinel by itself.
struct Ear {
    of: Address,
    name: Arc<str>,
    primary: Arc<OnceLock<Weak<Primary>>>,
}

impl Ear {
    fn primary(&self) -> Option<Arc<Primary>> {
        self.primary.get().and_then(Weak::upgrade)
    }

    /// Asks it at once, and follows what it says.
    fn ask(&self) {
        let (Some(primary), of, name) = (self.primary(), self.of.clone(), Arc::clone(&self.name)) else { return };
        // Nobody waits for it; it ends with the runtime.
        tokio::spawn(async move {
            let standing = primary.sentinels.standing();
            let Some((_, sentinel)) = standing.into_iter().find(|(address, _)| *address == of) else { return };
            if let Ok(told) = master(&*sentinel, &name).await {
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

fn call(subcommand: &'static str, name: &str) -> Call {
    let words = [Bytes::from_static(subcommand.as_bytes()), Bytes::copy_from_slice(name.as_bytes())];
    Call { script: &SENTINEL, keys: 0, words: words.map(Arg::Text).into() }
}

/// The fields of a reply that is a map, or a list of names and values.
fn fields(reply: &Reply) -> BTreeMap<&str, &Reply> {
    let Reply::List(parts) = reply else { return BTreeMap::new() };
    parts.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, &pair[1]))).collect()
}

fn address_in(fields: &BTreeMap<&str, &Reply>) -> Option<Address> {
    let port = fields.get("port").and_then(|port| number(port)).and_then(|port| u16::try_from(port).ok())?;
    Address::new(fields.get("ip").and_then(|ip| text(ip))?, port)
}

/// What a sentinel says of the primary. An error in its words.
async fn master(sentinel: &dyn Transport, name: &str) -> Result<Told, String> {
    let reply = ask(sentinel, call("MASTER", name), ANSWERS_WITHIN).await?;
    told(&reply).ok_or_else(|| "its answer to SENTINEL MASTER cannot be read".to_owned())
}

fn told(reply: &Reply) -> Option<Told> {
    let fields = fields(reply);
    let number_of = |field: &str| fields.get(field).and_then(|value| number(value));
    let flags = fields.get("flags").and_then(|flags| text(flags)).unwrap_or_default();
    let has = |wanted: &[&str]| flags.split(',').any(|flag| wanted.contains(&flag));
    let epoch = number_of("config-epoch").and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or(0);
    // The sentinel that leads a failover names the primary of before until all replicas follow the new one, and has the epoch of that
    // already: those who took this for the old one's would not believe the new one.
    let is_replacing = has(&["failover_in_progress"]);
    Some(Told {
        address: address_in(&fields)?,
        epoch: epoch.saturating_sub(u64::from(is_replacing)),
        is_down: is_replacing || has(&["s_down", "o_down"]),
        others: number_of("num-other-sentinels").and_then(|others| usize::try_from(others).ok()).unwrap_or(0),
    })
}

/// The replicas of this primary by a sentinel; None where that has another one. What it names may change in between: then its list
/// may lack the one that is promoted.
async fn replicas_of(primary: &Address, sentinel: &dyn Transport, name: &str) -> Option<Vec<Address>> {
    let before = master(sentinel, name).await.ok()?;
    let replicas = listed(sentinel, "REPLICAS", name).await?;
    let after = master(sentinel, name).await.ok()?;
    (before.address == *primary && after.address == *primary).then_some(replicas)
}

/// What more than so many of them say.
fn agreed_upon(answers: &[Told], most: usize) -> Option<&Told> {
    answers.iter().find(|told| answers.iter().filter(|other| other.address == told.address).count() > most)
}

/// Those that a sentinel lists.
async fn listed(sentinel: &dyn Transport, what: &'static str, name: &str) -> Option<Vec<Address>> {
    let Ok(Reply::List(list)) = ask(sentinel, call(what, name), ANSWERS_WITHIN).await else { return None };
    Some(list.iter().filter_map(|one| address_in(&fields(one))).collect())
}

impl Primary {
    /// The primary that the sentinels of this name it by look after.
    ///
    /// *Errors*: [`Error::Config`] where no sentinel that answers knows the name; else why none answers, or why the primary that they
    /// name cannot be connected to, or is none.
    pub(crate) async fn by_sentinels(
        settings: Settings,
        connector: Arc<dyn Connector>,
        world: Arc<dyn World>,
        name: String,
    ) -> Result<Arc<Self>> {
        let (name, cell): (Arc<str>, Arc<OnceLock<Weak<Self>>>) = (name.into(), Arc::default());
        let ears = (Arc::clone(&name), Arc::clone(&cell));
        let ear = move |of: &Address| {
            let (name, primary) = (Arc::clone(&ears.0), Arc::clone(&ears.1));
            Arc::new(Ear { of: of.clone(), name, primary }) as Arc<dyn Listener>
        };
        let sentinels = Witnesses::heard(Arc::clone(&connector), Purpose::Sentinel, ear, &EVENTS);
        let why = Mutex::new(None);
        let found = first(&settings, &*connector, &sentinels, &name, &why);
        let found = match tokio::time::timeout(settings.connect_timeout, found).await {
            Ok(found) => found,
            Err(_) => Err(why.into_inner().unwrap_or(Error::Timeout { step: Step::Connect })),
        };
        let told = match found {
            Ok(told) => told,
            Err(error) => {
                sentinels.close(settings.connect_timeout).await;
                return Err(error);
            }
        };
        let identity = (TopologyKind::Sentinel, format!("sentinel {name}"));
        let servers = Witnesses::new(Arc::clone(&connector), Purpose::Watch);
        let at = (told.address, told.epoch);
        let primary = Self::of(settings, connector, world, identity, at, (sentinels, servers)).await?;
        // Set once, here.
        let _ = cell.set(Weak::clone(&primary.this));
        let mut finder =
            BySentinels { name, history: (primary.address(), String::new()), looks: 0, doubted: None, listed: None };
        // How many replicas there are is known before the first lock is had.
        finder.list(&primary).await;
        let limit = Instant::now() + primary.settings.connect_timeout;
        while primary.settings.acks.is_all() && finder.listed.is_none() {
            if Instant::now() >= limit {
                primary.close(OTHERS_WITHIN).await;
                return Err(Error::Timeout { step: Step::Connect });
            }
            tokio::time::sleep(OTHERS_WITHIN).await;
            finder.list(&primary).await;
        }
        tokio::spawn(watch::run(Weak::clone(&primary.this), finder));
        // What was told before there was anybody to hear it.
        primary.suspicion.raise();
        Ok(primary)
    }

    /// Follows what a sentinel says. `is_agreed`: so do most that are known. True where the server named has the place now.
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
        // Of old, or begun anew with lower numbers: not while the one that there is says that it is the primary. One that no sentinel has
        // named yet has to say that it is none.
        if told.epoch <= epoch {
            let may_be_ours = match self.role_of_current(ANSWERS_WITHIN).await {
                Some(role) => role.is_primary(),
                None => is_early,
            };
            if !is_agreed || may_be_ours {
                return false;
            }
        }
        self.take_over(&told.address, Known::Told(told.epoch), &mut asked).await
    }
}

/// The primary that is named by whichever sentinels answer first, once it says that it is one. Why it has not yet is left in `latest`.
async fn first(
    settings: &Settings,
    connector: &dyn Connector,
    sentinels: &Witnesses,
    name: &Arc<str>,
    latest: &Mutex<Option<Error>>,
) -> Result<Told> {
    let (send, mut answers) = mpsc::unbounded_channel();
    for seed in &settings.seeds {
        let (sentinels, seed, name, send) = (sentinels.clone(), seed.clone(), Arc::clone(name), send.clone());
        tokio::spawn(async move {
            let outcome = match sentinels.connect(&seed).await {
                Some(Ok(sentinel)) => master(&*sentinel, &name).await.map_err(|why| refused(&seed, &name, &why)),
                Some(Err(error)) => Err(error),
                None => return,
            };
            // Nobody may listen any more.
            let _ = send.send(outcome);
        });
    }
    drop(send);
    let (mut best, mut why): (Option<Told>, Option<Error>) = (None, None);
    loop {
        let limit = if best.is_some() { OTHERS_WITHIN } else { settings.connect_timeout };
        match tokio::time::timeout(limit, answers.recv()).await {
            Ok(Some(Ok(told))) => {
                if best.as_ref().is_none_or(|best| told.epoch > best.epoch) {
                    best = Some(told);
                }
            }
            // Of several reasons the one that says most: what a server has said, rather than that somebody is away.
            Ok(Some(Err(_))) if matches!(why, Some(Error::Server { .. } | Error::Config { .. })) => {}
            Ok(Some(Err(error))) => why = Some(error),
            Ok(None) | Err(_) => break,
        }
    }
    let Some(mut best) = best else {
        return Err(why.unwrap_or(Error::Timeout { step: Step::Connect }));
    };
    let mut proving = Box::pin(proven(connector, best.address.clone(), settings.connect_timeout));
    loop {
        match tokio::time::timeout(OTHERS_WITHIN, &mut proving).await {
            Ok(Ok(role)) if role.is_primary() => return Ok(best),
            Ok(Err(error @ (Error::Server { .. } | Error::Config { .. } | Error::Unsupported { .. }))) => {
                return Err(error);
            }
            // It is down, or is just being replaced: the time for all this is the caller's limit.
            Ok(outcome) => {
                if let Err(error) = outcome {
                    *latest.lock() = Some(error);
                }
                tokio::time::sleep(OTHERS_WITHIN).await;
                proving = Box::pin(proven(connector, best.address.clone(), settings.connect_timeout));
            }
            Err(_) => {}
        }
        let before = best.address.clone();
        for (_, sentinel) in sentinels.standing() {
            match master(&*sentinel, name).await {
                Ok(told) if told.epoch >= best.epoch => best = told,
                Ok(_) | Err(_) => {}
            }
        }
        if best.address != before {
            proving = Box::pin(proven(connector, best.address.clone(), settings.connect_timeout));
        }
    }
}

/// What part the server at an address has, by a connection made for that.
async fn proven(connector: &dyn Connector, address: Address, limit: Duration) -> Result<Role> {
    let transport = connector.connect(&address.to_string(), Purpose::Seed).await?;
    let reply = ask(&*transport, role(), limit).await;
    transport.close(limit).await;
    match reply {
        Ok(reply) => Ok(Role::of(&reply)),
        Err(why) if why.starts_with("NOPERM") || why.contains("unknown command") => Err(Error::Server {
            message: format!("{address} does not say whether it is the primary, for which ROLE is needed: {why}"),
        }),
        Err(why) => {
            let message = format!("{address}: {why}");
            Err(Error::Connection { message, outcome_unknown: false, source: None })
        }
    }
}

/// What it means that a sentinel does not tell.
fn refused(address: &Address, name: &str, why: &str) -> Error {
    if why.contains("No such master") {
        return Error::config(format!("the sentinel {address} looks after no primary by the name {name:?}"));
    }
    if why.contains("unknown command") || why.contains("Unknown sentinel subcommand") {
        return Error::config(format!(
            "{address} is no sentinel: redis-sentinel:// names those, and not the servers that they look after ({why})"
        ));
    }
    if why.starts_with("NOPERM") || why.starts_with("NOAUTH") {
        return Error::Server { message: format!("the sentinel {address}: {why}") };
    }
    Error::Connection { message: format!("the sentinel {address}: {why}"), outcome_unknown: false, source: None }
}

/// Finds the primary by what sentinels say.
struct BySentinels {
    name: Arc<str>,
    /// The history of the primary's writes, by its last answer, and of which server that is.
    history: (Address, String),
    looks: u32,
    /// Since when there has been doubt.
    doubted: Option<Instant>,
    /// When it was asked last who else there is.
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
    /// Asks the sentinels, or one of them. None where none answers; else whether all is well.
    async fn ask_sentinels(&mut self, primary: &Arc<Primary>, all: bool) -> Option<bool> {
        let mut standing = primary.sentinels.standing();
        if !all && !standing.is_empty() {
            let one = self.looks as usize % standing.len();
            standing = vec![standing.swap_remove(one)];
        }
        let asked = standing.iter().map(async |(_, sentinel)| master(&**sentinel, &self.name).await);
        let mut asking: FuturesUnordered<_> = asked.collect();
        let mut answers = Vec::new();
        while let Some(answer) = asking.next().await {
            let Ok(told) = answer.inspect_err(|why| tracing::debug!(error = why, "a sentinel does not answer")) else {
                continue;
            };
            // The first that tells of a new one is acted upon.
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
            // One that was not set up anew with the others has the highest epoch for good: it does not outweigh them.
            primary.heard(told, true).await;
        }
        if self.listed.is_none_or(|at| at.elapsed() >= LISTED_EVERY) {
            self.list(primary).await;
        }
        let told = agreed.filter(|told| all && told.address != highest.address).unwrap_or(highest);
        Some(primary.address() == told.address && !told.is_down)
    }

    /// Asks who else there is.
    async fn list(&mut self, primary: &Primary) {
        let (name, now, current) = (&*self.name, Instant::now(), primary.address());
        let standing = primary.sentinels.standing();
        let asked = standing.iter().map(|(_, sentinel)| {
            let replicas = replicas_of(&current, &**sentinel, name);
            futures::future::join(listed(&**sentinel, "SENTINELS", name), replicas)
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
        // One that does not answer is still one of them as long as others list it, or nobody is there to say that it is none.
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

    /// True for as long as the primary may take to answer by the connection that is made to it since there is doubt.
    fn is_just_doubted(&self, primary: &Primary, current: &Address) -> bool {
        primary.servers.is_connecting(current) && self.doubted.is_some_and(|since| since.elapsed() < ANSWERS_WITHIN)
    }

    /// Asks the primary and its replicas for their histories: one of these may have been promoted. True where the primary says that it
    /// is one.
    async fn ask_servers(&mut self, primary: &Arc<Primary>) -> bool {
        let current = primary.address();
        if self.history.0 != current {
            (self.history, self.listed) = ((current.clone(), String::new()), None);
        }
        // The primary as well: a connection to it that is broken does not mean that it is away.
        let mut all: Vec<Address> = primary.replicas.read().iter().take(MOST_LISTED).cloned().collect();
        all.push(current.clone());
        primary.servers.keep(&all);
        let mut others = primary.servers.standing();
        let again = others.iter().position(|(address, _)| *address == current).map(|at| others.swap_remove(at).1);
        let asked = others.iter().map(async |(address, server)| {
            let reply = ask(&**server, history(), ANSWERS_WITHIN).await;
            Some((address, History::of(&reply.ok()?)))
        });
        let mut asking: FuturesUnordered<_> = asked.collect();
        let again = async {
            let Some(again) = &again else { return None };
            let reply = ask(&**again, history(), SILENT_WITHIN).await;
            reply.ok().map(|reply| History::of(&reply))
        };
        let (ours, again) = futures::future::join(primary.history_of_current(), again).await;
        let ours = ours.or(again);
        if ours.is_none() && self.is_just_doubted(primary, &current) {
            return false;
        }
        let is_well = ours.as_ref().is_some_and(|ours| ours.is_primary);
        if let Some(ours) = ours.filter(|ours| ours.is_primary) {
            self.history.1 = ours.id;
        }
        while let Some(answer) = asking.next().await {
            let Some((address, of)) = answer else { continue };
            if is_well || !of.goes_on_from(&self.history.1) {
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

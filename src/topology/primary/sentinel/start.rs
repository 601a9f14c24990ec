//! Connects through sentinels, once the server that they name reports that it is a primary.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::told::{Told, master};
use super::{BySentinels, EVENTS, Ear};
use crate::error::{Error, Result, Step};
use crate::topology::address::Address;
use crate::topology::primary::witnesses::{Witnesses, ask};
use crate::topology::primary::{Primary, watch};
use crate::topology::reason::{Reason, SAYS_WHY, away, unreachable};
use crate::topology::role::{Role, role, role_not_reported};
use crate::topology::{Settings, TopologyKind};
use crate::transport::Listener;
use crate::transport::connector::{Connector, Purpose};
use crate::world::World;

/// Time that the other sentinels have to answer once one sentinel has answered.
const OTHERS_WITHIN: Duration = Duration::from_millis(100);

impl Primary {
    /// Connects to the primary that the sentinels of the URL know by `name`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if no sentinel that answers knows the name. Otherwise the reason why none answers, or why the
    /// named primary cannot be used.
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
        let found = match tokio::time::timeout(settings.connect_timeout + SAYS_WHY, found).await {
            Ok(found) => found,
            Err(_) => Err(why.into_inner().unwrap_or(Error::timeout(Step::Connect))),
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
        // Replicas are counted before the first acquire. If all replicas must acknowledge, connecting waits for the
        // count.
        finder.list(&primary, watch::ANSWERS_WITHIN).await;
        let limit = Instant::now() + primary.settings.connect_timeout;
        while primary.settings.acks.is_all() && finder.listed.is_none() {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                primary.close(OTHERS_WITHIN).await;
                return Err(Error::timeout(Step::Connect));
            }
            tokio::time::sleep(OTHERS_WITHIN).await;
            let _ = tokio::time::timeout(left, finder.list(&primary, left)).await;
        }
        tokio::spawn(watch::run(Weak::clone(&primary.this), finder));
        // Announcements so far had no receiver, so the sentinels are queried again.
        primary.suspicion.raise();
        Ok(primary)
    }
}

/// Asks all sentinels of the URL. Returns the report with the highest epoch that arrives within [`OTHERS_WITHIN`] after
/// the first report.
async fn told(settings: &Settings, sentinels: &Witnesses, name: &Arc<str>) -> Result<Told> {
    let (send, mut answers) = mpsc::unbounded_channel();
    for seed in &settings.seeds {
        let (sentinels, seed, name, send) = (sentinels.clone(), seed.clone(), Arc::clone(name), send.clone());
        // Each sentinel has the full time, because there may be no other sentinel.
        let limit = settings.connect_timeout;
        tokio::spawn(async move {
            let outcome = match sentinels.connect(&seed).await {
                Some(Ok(sentinel)) => master(&*sentinel, &name, limit).await.map_err(|why| refused(&seed, &name, &why)),
                Some(Err(error)) => Err(unreachable(&format_args!("the sentinel {seed}"), error)),
                None => return,
            };
            // The receiver may be gone.
            let _ = send.send(outcome);
        });
    }
    drop(send);
    let (mut best, mut reason): (Option<Told>, Reason) = (None, Reason::default());
    // This limit is slightly shorter than the caller's, because the error after the caller's limit has no reason.
    let mut until = Instant::now() + settings.connect_timeout + SAYS_WHY / 2;
    loop {
        match tokio::time::timeout_at(until, answers.recv()).await {
            Ok(Some(Ok(told))) => {
                until = until.min(Instant::now() + OTHERS_WITHIN);
                if best.as_ref().is_none_or(|best| told.epoch > best.epoch) {
                    best = Some(told);
                }
            }
            Ok(Some(Err(error))) => reason.note(error),
            Ok(None) | Err(_) => break,
        }
    }
    best.ok_or_else(|| reason.or(Error::timeout(Step::Connect)))
}

/// Returns the sentinels' report, once the named server reports that it is a primary. Until then, `latest` has the last
/// error of that server.
async fn first(
    settings: &Settings,
    connector: &dyn Connector,
    sentinels: &Witnesses,
    name: &Arc<str>,
    latest: &Mutex<Option<Error>>,
) -> Result<Told> {
    let mut best = told(settings, sentinels, name).await?;
    let mut proving = Box::pin(proven(connector, best.address.clone(), settings.connect_timeout));
    loop {
        match tokio::time::timeout(OTHERS_WITHIN, &mut proving).await {
            Ok(Ok(role)) if role.is_primary() => return Ok(best),
            Ok(Err(error @ (Error::Server { .. } | Error::Config { .. } | Error::Unsupported { .. }))) => {
                return Err(error);
            }
            // The named server is down, or is just being replaced. The caller limits the total time.
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
        let standing = sentinels.standing();
        let asked = standing.iter().map(|(_, sentinel)| master(&**sentinel, name, watch::ANSWERS_WITHIN));
        for told in futures::future::join_all(asked).await.into_iter().flatten() {
            if told.epoch >= best.epoch {
                best = told;
            }
        }
        if best.address != before {
            proving = Box::pin(proven(connector, best.address.clone(), settings.connect_timeout));
        }
    }
}

/// Returns the role of the server at an address, over a temporary connection.
async fn proven(connector: &dyn Connector, address: Address, limit: Duration) -> Result<Role> {
    let transport = connector.connect(&address.to_string(), Purpose::Seed).await?;
    let reply = ask(&*transport, role(), limit).await;
    transport.close(limit).await;
    reply.map(|reply| Role::of(&reply)).map_err(|why| role_not_reported(&address, &why))
}

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
        return Error::server(format!("the sentinel {address}: {why}"));
    }
    away(&format_args!("the sentinel {address}"), why)
}

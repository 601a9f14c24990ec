//! Finds the primary of a replicated setup by querying the role of all servers. A replicated setup is a managed service
//! without cluster mode, or a primary with replicas that an operator promotes.
//!
//! If several servers report that they are the primary, the current primary stays. It is replaced only if it reports
//! that it is a replica, or misses [`MOST_MISSES`] answers in a row.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::watch::{ANSWERS_WITHIN, Finder};
use super::witnesses::{Witnesses, ask};
use super::{Known, Primary, watch};
use crate::error::{Error, Result, Step};
use crate::topology::address::Address;
use crate::topology::reason::{Reason, SAYS_WHY, away, unreachable};
use crate::topology::role::{Role, role, role_not_reported};
use crate::topology::{Settings, TopologyKind};
use crate::transport::connector::{Connector, Purpose};
use crate::world::World;

/// Number of missed answers in a row after which another server may replace the primary.
const MOST_MISSES: u32 = 3;

/// At connect, time that the other servers have to answer once a primary has answered.
const OTHERS_WITHIN: Duration = Duration::from_millis(200);

/// At connect, interval at which a server is queried again.
const AGAIN: Duration = Duration::from_millis(100);

impl Primary {
    /// Connects to the server that reports that it is a primary. Of several such servers, connects to the server with
    /// the most replicas.
    ///
    /// # Errors
    ///
    /// The reason why no server can be reached, or an error that no server is a primary.
    pub(crate) async fn of_replicated(
        settings: Settings,
        connector: Arc<dyn Connector>,
        world: Arc<dyn World>,
    ) -> Result<Arc<Self>> {
        let servers = Witnesses::new(Arc::clone(&connector), Purpose::Watch);
        let found = first(&settings, &servers).await;
        let (replicas, address) = match found {
            Ok(found) => found,
            Err(error) => {
                servers.close(settings.connect_timeout).await;
                return Err(error);
            }
        };
        let names: Vec<String> = settings.seeds.iter().map(ToString::to_string).collect();
        let identity = (TopologyKind::Replicated, format!("replicated {}", names.join(",")));
        let sentinels = Witnesses::new(Arc::clone(&connector), Purpose::Sentinel);
        let primary = Self::of(settings, connector, world, identity, (address, 0), (sentinels, servers)).await?;
        primary.set_replicas(&primary.address(), primary.settings.seeds.iter().cloned().collect());
        primary.member().acknowledgement().has_seen(replicas);
        tokio::spawn(watch::run(Weak::clone(&primary.this), BySaying { misses: 0, is_told: false }));
        Ok(primary)
    }
}

/// Returns the primary and its number of replicas. Of several primaries, returns the primary with the most replicas.
async fn first(settings: &Settings, servers: &Witnesses) -> Result<(usize, Address)> {
    let (send, mut answers) = mpsc::unbounded_channel();
    for seed in &settings.seeds {
        let (servers, seed, send) = (servers.clone(), seed.clone(), send.clone());
        let limit = settings.connect_timeout;
        tokio::spawn(async move {
            let server = match servers.connect(&seed).await {
                Some(Ok(server)) => server,
                Some(Err(error)) => return drop(send.send(Err(unreachable(&seed, error)))),
                None => return,
            };
            // Queried repeatedly, because a replica may be promoted at any moment. Ends when the receiver is gone.
            loop {
                let reply = ask(&*server, role(), limit).await;
                let told =
                    reply.map(|reply| (seed.clone(), Role::of(&reply))).map_err(|why| role_not_reported(&seed, &why));
                // The login may not run `ROLE`. Waiting does not change that.
                let is_final = matches!(told, Err(Error::Server { .. }));
                if send.send(told).is_err() || is_final {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
    drop(send);
    let (mut best, mut reason): (Option<(usize, Address)>, Reason) = (None, Reason::default());
    let mut until = Instant::now() + settings.connect_timeout + SAYS_WHY;
    while let Ok(Some(told)) = tokio::time::timeout_at(until, answers.recv()).await {
        match told {
            Ok((address, Role::Primary { replicas })) => {
                if best.is_none() {
                    until = Instant::now() + OTHERS_WITHIN;
                }
                if best.as_ref().is_none_or(|(most, _)| replicas > *most) {
                    best = Some((replicas, address));
                }
            }
            Ok((address, _)) => {
                reason.note(away(&address, "it is no primary, and none of the others that are named is one"));
            }
            Err(error) => reason.note(error),
        }
    }
    match best {
        Some(best) => Ok(best),
        None => Err(reason.or(Error::timeout(Step::Connect))),
    }
}

struct BySaying {
    /// Number of answers in a row that the primary has missed.
    misses: u32,
    /// True if the log already reports the second primary.
    is_told: bool,
}

impl Finder for BySaying {
    fn look<'a>(&'a mut self, primary: &'a Arc<Primary>, _is_doubted: bool) -> BoxFuture<'a, bool> {
        Box::pin(self.ask_all(primary))
    }
}

impl BySaying {
    async fn ask_all(&mut self, primary: &Arc<Primary>) -> bool {
        let current = primary.address();
        primary.servers.keep(&primary.settings.seeds);
        let servers = primary.servers.standing();
        let roles = servers.iter().filter(|(address, _)| *address != current).map(async |(address, server)| {
            let reply = ask(&**server, role(), ANSWERS_WITHIN).await;
            reply.ok().map(|reply| (address.clone(), Role::of(&reply)))
        });
        let all = futures::future::join_all(roles);
        let (ours, roles) = futures::future::join(primary.role_of_current(ANSWERS_WITHIN), all).await;
        let primaries = roles.into_iter().flatten().filter_map(|(address, role)| match role {
            Role::Primary { replicas } => Some((replicas, address)),
            Role::Replica | Role::Other => None,
        });
        let other = primaries.max();
        match ours {
            Some(Role::Primary { replicas }) => {
                self.misses = 0;
                primary.leave_candidate();
                // The primary may know its replicas by other names than the URL has, so the larger count is used.
                let known = replicas.max(primary.settings.seeds.len() - 1);
                // The count never falls, because an unreachable replica is not reported, and the URL may lack servers.
                primary.member().acknowledgement().has_seen(known);
                match other {
                    Some((_, other)) if !self.is_told => {
                        tracing::warn!(%current, %other, "two servers claim to be the primary: the current one is kept");
                        self.is_told = true;
                    }
                    Some(_) => {}
                    None => self.is_told = false,
                }
                return true;
            }
            // The primary was made a replica.
            Some(_) => self.misses = MOST_MISSES,
            None => self.misses = self.misses.saturating_add(1),
        }
        if self.misses >= MOST_MISSES {
            // If no other server is a primary, the current primary's host name is resolved again, because the name may
            // lead to another server now.
            let to = other.map_or_else(|| current.clone(), |(_, other)| other);
            let mut asked = primary.taking.lock().await;
            if primary.take_over(&to, Known::Found, &mut asked).await {
                self.misses = 0;
                // The old connection in `servers` leads to the old primary.
                primary.servers.leave(&to);
            }
        }
        false
    }
}

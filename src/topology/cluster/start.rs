//! Connects to a cluster: queries all seeds at once, and uses the view of the first seed that answers.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::{Mutex, RwLock};

use super::{Cluster, Settings, State, channels, watch};
use crate::config::Sharded;
use crate::error::{Error, Result};
use crate::topology::AckRule;
use crate::topology::address::Address;
use crate::topology::member::{Member, MemberId};
use crate::topology::reason::{Reason, away, unreachable, untold};
use crate::topology::slots::view::SlotView;
use crate::transport::connector::{Connector, Purpose};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply, Transport};
use crate::world::World;

/// Asks for the slots and the endpoints that clients should use.
static SLOTS: Script = Script::bare("cluster/slots", "CLUSTER");

/// Asks whether the server supports sharded channels.
static PUBSUB: Script = Script::bare("cluster/sharded", "PUBSUB");

/// Transport of the placeholder member, for names that no server has.
#[derive(Debug)]
struct Nowhere(Arc<dyn World>);

impl Transport for Nowhere {
    fn run(&self, _call: Call) -> futures::future::BoxFuture<'static, Result<Reply, Fault>> {
        Box::pin(std::future::ready(Err(nowhere())))
    }

    fn subscribe(&self, _channel: Bytes) -> futures::future::BoxFuture<'static, Result<(), Fault>> {
        Box::pin(std::future::ready(Err(nowhere())))
    }

    fn unsubscribe(&self, _channel: Bytes) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn listen(&self, _listener: std::sync::Weak<dyn crate::transport::Listener>) {}

    fn address(&self) -> &str {
        "nowhere"
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::clone(&self.0)
    }

    fn close(&self, _within: Duration) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn nowhere() -> Fault {
    Fault::new(FaultKind::NotSent, "no server of the cluster is known to have this slot")
}

impl Cluster {
    /// Connects to the cluster through the first of its servers that answers.
    ///
    /// # Errors
    ///
    /// The reason why no seed could be used. [`Error::Config`] if a seed is a single server.
    pub(crate) async fn start(
        settings: Settings,
        connector: Arc<dyn Connector>,
        world: Arc<dyn World>,
    ) -> Result<Arc<Self>> {
        let First { view, by_name, is_sharded } = first_view(&settings, &*connector).await?;
        let identity = view.peers().iter().map(|peer| &*peer.id).min().unwrap_or_default().to_owned();
        let cluster = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            connector,
            state: RwLock::new(State::default()),
            nobody: Member::new(MemberId::new(usize::MAX), Arc::new(Nowhere(world)), AckRule::off()),
            next: AtomicUsize::new(0),
            listener: OnceLock::new(),
            suspicion: Arc::default(),
            strays: Arc::default(),
            subscribed: Mutex::default(),
            identity: format!("cluster {identity}"),
            is_sharded,
            by_name,
            closed: AtomicBool::new(false),
            settings,
        });
        cluster.merge(&view).await;
        if cluster.members().is_empty() {
            let message = "none of the cluster's servers has a slot, or none of them can be connected to".to_owned();
            return Err(Error::connection(message, false, None));
        }
        tokio::spawn(watch::run(Arc::downgrade(&cluster), cluster.settings.scan_interval));
        tokio::spawn(channels::run(Arc::downgrade(&cluster)));
        Ok(cluster)
    }

    /// Returns the view of the server at an address, over a temporary connection.
    pub(super) async fn view_at(&self, address: &Address) -> Option<SlotView> {
        let farewell = self.settings.connect_timeout;
        let (view, transport) = asked(address, &*self.connector, watch::ANSWERS_WITHIN, farewell).await.ok()?;
        leave(transport, farewell);
        Some(view)
    }
}

/// Connects to a server and queries its view. `limit` is the time for the server's answer. `farewell` is the time for
/// closing the connection.
async fn asked(
    address: &Address,
    connector: &dyn Connector,
    limit: Duration,
    farewell: Duration,
) -> Result<(SlotView, Arc<dyn Transport>)> {
    // The connection attempt ends by itself after `connect_timeout`, with a reason.
    let connected = connector.connect(&address.to_string(), Purpose::Seed).await;
    let transport = connected.map_err(|error| unreachable(address, error))?;
    match watch::view_of(transport.run(watch::nodes()), address.host(), limit).await {
        Ok(view) => Ok((view, transport)),
        Err(why) => {
            leave(transport, farewell);
            Err(refused(address, &why))
        }
    }
}

fn leave(transport: Arc<dyn Transport>, farewell: Duration) {
    tokio::spawn(async move { transport.close(farewell).await });
}

fn refused(address: &Address, why: &str) -> Error {
    if why.contains("cluster support disabled") {
        return Error::config(format!("{address} is a single server, no part of a cluster: use redis:// for it"));
    }
    untold(address, "its cluster", "CLUSTER NODES", why)
}

struct First {
    view: SlotView,
    /// True if the servers prefer the host names that they announce.
    by_name: bool,
    /// True if channels belong to slots (sharded pub/sub).
    is_sharded: bool,
}

/// Returns the first view of any seed, and facts that hold for all servers.
async fn first_view(settings: &Settings, connector: &dyn Connector) -> Result<First> {
    let Settings { seeds, command_timeout, connect_timeout, .. } = settings;
    // Each seed has a full command timeout, because there may be no other server.
    let mut asking: FuturesUnordered<_> =
        seeds.iter().map(|seed| asked(seed, connector, *command_timeout, *connect_timeout)).collect();
    let mut reason = Reason::default();
    while let Some(outcome) = asking.next().await {
        match outcome {
            Ok((view, transport)) => {
                let is_sharded = match settings.sharded {
                    Sharded::On => true,
                    Sharded::Off => false,
                    Sharded::Auto => match knows_sharded(&*transport).await {
                        Ok(is_sharded) => is_sharded,
                        Err(fault) => {
                            // The server has just stopped answering. Another seed can answer the same question.
                            reason.note(away(&transport.address(), &fault.message));
                            leave(transport, *connect_timeout);
                            continue;
                        }
                    },
                };
                let by_name = view.has_names() && prefers_names(&*transport, &view).await;
                leave(transport, *connect_timeout);
                return Ok(First { view, by_name, is_sharded });
            }
            Err(error) => reason.note(error),
        }
    }
    Err(reason.or(Error::config("the URL of a cluster names no server")))
}

/// True if clients should use the host names that servers announce (`cluster-preferred-endpoint-type hostname`). In
/// that case, `CLUSTER SLOTS` has the name where `CLUSTER NODES` has the address. False if the login may not run
/// `CLUSTER SLOTS`.
async fn prefers_names(transport: &dyn Transport, view: &SlotView) -> bool {
    let words = vec![Arg::Text(Bytes::from_static(b"SLOTS"))];
    let reply = transport.run(Call { script: &SLOTS, keys: 0, words }).await;
    let Ok(Reply::List(ranges)) = reply else { return false };
    // Each range lists the first slot, the last slot, then the nodes. The first field of a node is its endpoint.
    let nodes = ranges.into_iter().filter_map(|range| if let Reply::List(range) = range { Some(range) } else { None });
    let endpoint = |node: Reply| match node {
        Reply::List(node) => node.into_iter().next(),
        _ => None,
    };
    let mut endpoints = nodes.flat_map(|range| range.into_iter().skip(2)).filter_map(endpoint);
    endpoints.any(|endpoint| matches!(endpoint, Reply::Text(host) if view.announces(&String::from_utf8_lossy(&host))))
}

/// Returns whether the server supports sharded channels. The command is the same as Redisson's.
///
/// # Errors
///
/// The fault of a server that did not answer.
async fn knows_sharded(transport: &dyn Transport) -> Result<bool, Fault> {
    let words = vec![Arg::Text(Bytes::from_static(b"SHARDNUMSUB"))];
    match transport.run(Call { script: &PUBSUB, keys: 0, words }).await {
        Ok(_) => Ok(true),
        Err(fault) if fault.kind == FaultKind::Refused => Ok(false),
        Err(fault) => Err(fault),
    }
}

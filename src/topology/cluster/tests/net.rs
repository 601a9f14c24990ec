//! Simulated servers of a cluster, and connections to them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Cluster, Settings};
use crate::config::Sharded;
use crate::error::Result;
use crate::topology::AckRule;
use crate::topology::address::Address;
use crate::transport::connector::{Connector, Purpose};
use crate::transport::{Arg, Call, Fault, FaultKind, Listener, Reply, Transport};
use crate::world::{Machine, World};

/// A server. It replies to a script as `says` prescribes, or with 1.
#[derive(Default)]
pub(super) struct Server {
    pub(super) nodes: Mutex<String>,
    /// Reply to `CLUSTER SLOTS`; `None` refuses the command.
    pub(super) slots: Mutex<Option<Reply>>,
    /// True if the server leaves the cluster at the next script.
    pub(super) leaves: AtomicBool,
    /// Number of `CLUSTER NODES` commands so far.
    pub(super) asked: Mutex<usize>,
    /// Time in ms until it answers `CLUSTER NODES`.
    pub(super) takes: AtomicU64,
    /// True if it never answers `CLUSTER NODES`.
    pub(super) is_stopped: AtomicBool,
    pub(super) says: Mutex<Option<Result<Reply, String>>>,
    /// The commands and scripts that arrived, each with its last word.
    pub(super) log: Mutex<Vec<(String, Option<Arg>)>>,
    pub(super) closed: Mutex<usize>,
    pub(super) is_down: AtomicBool,
    /// Number of `CLUSTER INFO` commands so far.
    pub(super) infos: Mutex<usize>,
    pub(super) listener: Mutex<Option<Weak<dyn Listener>>>,
    pub(super) subscribed: Mutex<HashSet<Bytes>>,
    /// The channels that a new connection would subscribe to again.
    pub(super) kept: Mutex<HashSet<Bytes>>,
    /// Error of each subscribe, if any.
    pub(super) refuses: Mutex<Option<String>>,
    /// If set, each subscribe waits here for a permit.
    pub(super) gate: Mutex<Option<Arc<Semaphore>>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

/// The servers of a cluster by address. `Line` is a connection to one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Net(pub(super) Arc<HashMap<String, Arc<Server>>>);

#[derive(Debug)]
struct Line(Arc<Server>, Purpose);

impl Net {
    /// Starts a client that knows the server at this host.
    pub(super) async fn cluster(self, seed: &str) -> Arc<Cluster> {
        self.cluster_in(seed, Arc::new(Machine)).await
    }

    pub(super) async fn cluster_in(self, seed: &str, world: Arc<dyn World>) -> Arc<Cluster> {
        let settings = Settings {
            seeds: vec![Address::new(seed, 1).unwrap()],
            command_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(3),
            scan_interval: Duration::from_secs(5),
            confirm_primary: false,
            sharded: Sharded::On,
            acks: AckRule::off(),
            coalesce: None,
        };
        Cluster::start(settings, Arc::new(self), world).await.unwrap()
    }
}

impl Connector for Net {
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, Result<Arc<dyn Transport>>> {
        let line: Arc<dyn Transport> = Arc::new(Line(Arc::clone(&self.0[address]), purpose));
        Box::pin(std::future::ready(Ok(line)))
    }
}

impl Transport for Line {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let (server, purpose) = (Arc::clone(&self.0), self.1);
        Box::pin(async move {
            let name = call.script.command.unwrap_or(call.script.name);
            if name == "CLUSTER" && call.words == [Arg::Text(Bytes::from_static(b"INFO"))] {
                *server.infos.lock() += 1;
                let state = if server.is_down.load(Ordering::Relaxed) { "fail" } else { "ok" };
                return Ok(Reply::Text(Bytes::from(format!("cluster_state:{state}\r\n"))));
            }
            if name == "CLUSTER" && call.words == [Arg::Text(Bytes::from_static(b"SLOTS"))] {
                let refused =
                    || Fault::new(FaultKind::Refused, "NOPERM no permissions to run the 'cluster|slots' command");
                return server.slots.lock().clone().ok_or_else(refused);
            }
            if name == "CLUSTER" {
                *server.asked.lock() += 1;
                tokio::time::sleep(Duration::from_millis(server.takes.load(Ordering::Relaxed))).await;
                if server.is_stopped.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                return Ok(Reply::Text(Bytes::from(server.nodes.lock().clone())));
            }
            if server.is_down.load(Ordering::Relaxed) {
                server.log.lock().push((name.to_owned(), None));
                return Err(Fault::new(FaultKind::Refused, "CLUSTERDOWN The cluster is down"));
            }
            server.log.lock().push((name.to_owned(), call.words.last().cloned()));
            // The reply takes a moment, as over a network.
            tokio::task::yield_now().await;
            if call.script.command.is_none() && server.leaves.swap(false, Ordering::Relaxed) {
                return Err(Fault::new(FaultKind::Closed, "the client is shut down"));
            }
            let says = server.says.lock().clone().filter(|_| call.script.command.is_none());
            match says.unwrap_or(Ok(Reply::Int(1))) {
                // A command behind an `ASKING` is accepted.
                Err(text) if purpose == Purpose::Asking && text.starts_with("MOVED") => Ok(Reply::Int(1)),
                Err(text) => Err(Fault::new(FaultKind::Elsewhere, text)),
                Ok(reply) => Ok(reply),
            }
        })
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            let gate = server.gate.lock().clone();
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            if let Some(text) = server.refuses.lock().clone() {
                return Err(Fault::new(FaultKind::Refused, text));
            }
            server.kept.lock().insert(channel.clone());
            server.subscribed.lock().insert(channel);
            Ok(())
        })
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        let server = Arc::clone(&self.0);
        Box::pin(async move {
            server.kept.lock().remove(&channel);
            server.subscribed.lock().remove(&channel);
        })
    }

    fn forget(&self, channel: &Bytes) {
        self.0.kept.lock().remove(channel);
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.0.listener.lock() = Some(listener);
    }

    fn address(&self) -> &str {
        "somewhere"
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine)
    }

    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        *self.0.closed.lock() += 1;
        Box::pin(std::future::ready(()))
    }
}

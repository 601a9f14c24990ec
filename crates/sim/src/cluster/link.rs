//! One client's connections to the servers of a simulated cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use distlock::transport::{Call, Connector, Fault, Listener, Moment, Purpose, Reply, Transport, World};
use distlock::{Client, Error, Options, Origin};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::{SimCluster, node_at};
use crate::faults::{Chaos, LinkOptions};
use crate::link::SimLink;
use crate::random::Random;

/// All connections of one client to a cluster. Clones share the same connections.
#[derive(Clone)]
pub struct SimClusterLink(Arc<Shared>);

struct Shared {
    cluster: SimCluster,
    options: LinkOptions,
    state: Mutex<State>,
}

struct State {
    lines: Vec<(usize, SimLink)>,
    chaos: Chaos,
    cut: BTreeSet<usize>,
    jitter: Random,
}

impl SimClusterLink {
    pub(super) fn new(cluster: SimCluster, options: LinkOptions, jitter: Random) -> Self {
        let state = State { lines: Vec::new(), chaos: Chaos::default(), cut: BTreeSet::new(), jitter };
        Self(Arc::new(Shared { cluster, options, state: Mutex::new(state) }))
    }

    /// Creates the client of these connections, on the current runtime; `set` may change its options. The client
    /// knows the addresses of all nodes, so it starts if any node answers.
    ///
    /// # Errors
    /// As [`Client::over_cluster`].
    pub async fn client(&self, set: impl FnOnce(&mut Options)) -> distlock::Result<Client> {
        let mut options = Options::default();
        options.command_timeout = self.0.options.timeout;
        set(&mut options);
        let seeds: Vec<&str> = self.0.cluster.nodes.iter().map(|node| node.address()).collect();
        Client::over_cluster(Arc::new(self.clone()), Arc::new(self.clone()), &seeds, options).await
    }

    fn each(&self, act: impl Fn(usize, &SimLink)) {
        let lines = self.0.state.lock().lines.clone();
        for (node, line) in lines {
            act(node, &line);
        }
    }

    /// Sets the random faults of commands and messages from now on.
    pub fn chaos(&self, chaos: Chaos) {
        self.0.state.lock().chaos = chaos;
        self.each(|_, line| line.chaos(chaos));
    }

    /// Cuts the client off from a node, or heals the partition.
    pub fn partition(&self, node: usize, cut: bool) {
        {
            let mut state = self.0.state.lock();
            if cut {
                state.cut.insert(node)
            } else {
                state.cut.remove(&node)
            };
        }
        self.each(|of, line| {
            if of == node {
                line.partition(cut);
            }
        });
    }

    /// Breaks the client's connections to a node. The client reconnects.
    pub fn hang_up(&self, node: usize) {
        self.each(|of, line| {
            if of == node {
                line.hang_up();
            }
        });
    }

    /// Returns the number of commands that wait for a reply.
    pub fn in_flight(&self) -> usize {
        self.0.state.lock().lines.iter().map(|(_, line)| line.in_flight()).sum()
    }

    /// Returns the number of open connections to each node.
    pub fn connections(&self) -> Vec<usize> {
        let mut count = vec![0; self.0.cluster.len()];
        for (node, line) in &self.0.state.lock().lines {
            count[*node] += usize::from(!line.is_closed());
        }
        count
    }
}

impl Connector for SimClusterLink {
    fn connect(&self, address: &str, purpose: Purpose) -> BoxFuture<'static, distlock::Result<Arc<dyn Transport>>> {
        let (this, address) = (self.clone(), address.to_owned());
        async move {
            let nodes = &this.0.cluster.nodes;
            let refused = |message: &str| {
                let message = format!("{address}: {message}");
                Err(Error::Connection { message, outcome_unknown: false, source: None, origin: Origin::default() })
            };
            let Some(node) = node_at(nodes, &address) else { return refused("there is no such server") };
            if purpose == Purpose::Seed && nodes[node].is_down() {
                return refused("connection refused");
            }
            let ordered = this.0.options.ordered || purpose == Purpose::Asking;
            let line = nodes[node].link(LinkOptions { ordered, ..this.0.options });
            let mut state = this.0.state.lock();
            line.chaos(state.chaos);
            if state.cut.contains(&node) {
                line.partition(true);
            }
            state.lines.retain(|(_, line)| !line.is_closed());
            state.lines.push((node, line.clone()));
            Ok(Arc::new(Connection(line)) as Arc<dyn Transport>)
        }
        .boxed()
    }
}

/// A connection owned by its client. Dropping it closes the link.
#[derive(Debug)]
struct Connection(SimLink);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Transport for Connection {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        self.0.run(call)
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.0.subscribe(channel)
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.0.unsubscribe(channel)
    }

    fn forget(&self, channel: &Bytes) {
        self.0.forget(channel);
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.0.listen(listener);
    }

    fn address(&self) -> &str {
        self.0.address()
    }

    fn world(&self) -> Arc<dyn World> {
        self.0.world()
    }

    fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        self.0.close(within)
    }
}

impl World for SimClusterLink {
    fn now(&self) -> Moment {
        self.0.cluster.nodes[0].moment()
    }

    fn random(&self) -> u64 {
        self.0.state.lock().jitter.next()
    }
}

impl fmt::Debug for SimClusterLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimClusterLink").finish_non_exhaustive()
    }
}

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::bus::{Bus, CutOff};
use super::options::ClusterOptions;
use super::view::View;
use crate::ports::{BUS_OFFSET, Port};
use crate::{Admin, Proxy, RedisServer};

#[derive(Clone, Debug)]
pub(super) enum State {
    Running,
    /// Killed or frozen.
    Away(Away),
}

/// When a node was killed or frozen, and the slots that it served then.
#[derive(Clone, Debug)]
pub(super) struct Away {
    pub(super) since: Instant,
    pub(super) slots: Vec<RangeInclusive<u16>>,
    frozen: bool,
}

/// A node: its server, and an administrator's connection to it.
#[derive(Debug)]
pub struct Node {
    id: String,
    // Dropped first, because the proxy closes the connections to the server.
    proxy: Option<Proxy>,
    bus: Option<Bus>,
    server: RedisServer,
    tls_port: Option<Port>,
    admin: Admin,
    state: Mutex<State>,
}

/// The server of a node that is not part of a cluster yet.
pub(super) struct Started {
    server: RedisServer,
    proxy: Option<Proxy>,
    bus: Option<Bus>,
    tls_port: Option<Port>,
}

impl Node {
    /// Starts the server of a node, behind proxies if the options ask for them. Blocks until the server answers.
    pub(super) fn launch(options: &ClusterOptions, cut_off: &Arc<CutOff>) -> Started {
        // The proxy has to exist first, because the server announces the proxy's port. Its target is set below.
        let proxy = options.proxies.then(|| Proxy::start(SocketAddr::from(([127, 0, 0, 1], 1))));
        let tls_port = options.is_tls().then(Port::reserve_for_node);
        let bus = options.cuttable.then(|| Bus::start(Arc::clone(cut_off)));
        let server = options
            .server(proxy.as_ref().map(Proxy::port), bus.as_ref().map(Bus::port), tls_port.as_ref().map(Port::number))
            .start();
        if let Some(proxy) = &proxy {
            proxy.set_upstream(server.addr());
        }
        Started { server, proxy, bus, tls_port }
    }

    pub(super) async fn new(Started { server, proxy, bus, tls_port }: Started) -> Self {
        let admin = Admin::connect(&server).await;
        let id = admin.cmd(&["CLUSTER", "MYID"]).await;
        let node = Self { id, proxy, bus, server, tls_port, admin, state: Mutex::new(State::Running) };
        if let Some(bus) = &node.bus {
            bus.lead_to(&node.id, SocketAddr::from(([127, 0, 0, 1], node.bus_base() + BUS_OFFSET)));
        }
        node
    }

    /// The node's id in the cluster, which survives a restart.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The address for clients: the proxy's address if there is a proxy, otherwise the TLS address if there is one.
    pub fn addr(&self) -> SocketAddr {
        match (&self.proxy, &self.tls_port) {
            (Some(proxy), _) => proxy.addr(),
            (None, Some(port)) => SocketAddr::from(([127, 0, 0, 1], port.number())),
            (None, None) => self.server.addr(),
        }
    }

    /// The address that nodes report to an administrator, who does not use TLS.
    pub(super) fn told(&self) -> SocketAddr {
        if self.is_tls() { self.server.addr() } else { self.addr() }
    }

    /// Whether clients use TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls_port.is_some()
    }

    /// The port by which other nodes meet this node.
    pub(super) fn bus_base(&self) -> u16 {
        self.tls_port.as_ref().map_or(self.server.port(), Port::number)
    }

    pub(super) fn is_cuttable(&self) -> bool {
        self.bus.is_some()
    }

    /// The port by which other nodes reach this node's bus.
    pub(super) fn bus_port(&self) -> u16 {
        self.bus.as_ref().map_or(self.bus_base() + BUS_OFFSET, Bus::port)
    }

    /// `redis://127.0.0.1:port` for clients, or `rediss://`.
    pub fn url(&self) -> String {
        format!("redis{}://{}", if self.is_tls() { "s" } else { "" }, self.addr())
    }

    /// The process id.
    ///
    /// # Panics
    /// When the node has been killed.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// An administrator's connection, which bypasses the proxy.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// The proxy in front of it with [`ClusterOptions::proxies`]. Its faults affect clients and replicas of this node,
    /// but not the bus.
    ///
    /// # Panics
    /// When the cluster was started without proxies.
    pub fn proxy(&self) -> &Proxy {
        match &self.proxy {
            Some(proxy) => proxy,
            None => panic!("node {} has no proxy: see ClusterOptions::proxies", self.addr()),
        }
    }

    /// The server, for its log and folder. To kill or freeze the node, use [`super::Cluster`], which tracks the node's
    /// state.
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Whether the node is neither killed nor frozen.
    pub fn is_running(&self) -> bool {
        matches!(*self.state.lock(), State::Running)
    }

    pub async fn view(&self) -> View {
        let text: String = self.admin.cmd(&["CLUSTER", "NODES"]).await;
        View::parse(&text)
    }

    /// Whether the node is a primary in its own view.
    pub async fn is_primary(&self) -> bool {
        self.view().await.myself().is("master")
    }

    pub(super) fn away(&self) -> Option<Away> {
        match &*self.state.lock() {
            State::Running => None,
            State::Away(away) => Some(away.clone()),
        }
    }

    /// `slots`: what the node served, or `None` for a frozen node, whose slots were recorded before.
    pub(super) fn kill9(&self, slots: Option<Vec<RangeInclusive<u16>>>) {
        let mut state = self.state.lock();
        *state = match (&*state, slots) {
            (State::Away(away), None) => State::Away(Away { frozen: false, ..away.clone() }),
            (_, slots) => State::Away(Away { since: Instant::now(), slots: slots.unwrap_or_default(), frozen: false }),
        };
        self.server.kill9();
    }

    pub(super) fn freeze(&self, slots: Vec<RangeInclusive<u16>>) {
        *self.state.lock() = State::Away(Away { since: Instant::now(), slots, frozen: true });
        self.server.stop();
    }

    pub(super) fn thaw(&self) {
        let mut state = self.state.lock();
        assert!(matches!(&*state, State::Away(away) if away.frozen), "node {} is not frozen", self.addr());
        self.server.cont();
        *state = State::Running;
    }

    pub(super) fn restart(&self) {
        self.server.restart();
        *self.state.lock() = State::Running;
    }
}

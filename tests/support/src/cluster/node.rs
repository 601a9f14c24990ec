use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Instant;

use parking_lot::Mutex;

use super::bus::Bus;
use super::view::View;
use crate::ports::BUS_OFFSET;
use crate::replicas::Member;
use crate::{Admin, Proxy, RedisServer};

/// A node: its server, and an administrator's connection to it.
#[derive(Debug)]
pub struct Node {
    id: String,
    bus: Option<Bus>,
    pub(super) member: Member,
    /// The slots that it served when it was killed or frozen.
    slots: Mutex<Vec<RangeInclusive<u16>>>,
}

impl Node {
    pub(super) async fn new(member: Member, bus: Option<Bus>) -> Self {
        let id = member.admin().cmd(&["CLUSTER", "MYID"]).await;
        let node = Self { id, bus, member, slots: Mutex::default() };
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
        self.member.addr()
    }

    /// The address that nodes report to an administrator, who does not use TLS.
    pub(super) fn told(&self) -> SocketAddr {
        if self.is_tls() { self.server().addr() } else { self.addr() }
    }

    /// Whether clients use TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.member.is_tls()
    }

    /// The port by which other nodes meet this node.
    pub(super) fn bus_base(&self) -> u16 {
        self.member.port()
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

    pub fn pid(&self) -> u32 {
        self.server().pid()
    }

    /// An administrator's connection, which bypasses the proxy.
    pub fn admin(&self) -> &Admin {
        self.member.admin()
    }

    /// The proxy in front of it with [`super::ClusterOptions::proxies`]. Its faults affect clients and replicas of this node,
    /// but not the bus.
    pub fn proxy(&self) -> &Proxy {
        self.member.proxy()
    }

    /// The server, for its log and folder. To kill or freeze the node, use [`super::Cluster`], which tracks the node's
    /// state.
    pub fn server(&self) -> &RedisServer {
        self.member.server()
    }

    /// Whether the node is neither killed nor frozen.
    pub fn is_running(&self) -> bool {
        self.member.is_running()
    }

    pub async fn view(&self) -> View {
        let text: String = self.admin().cmd(&["CLUSTER", "NODES"]).await;
        View::parse(&text)
    }

    /// Whether the node is a primary in its own view.
    pub async fn is_primary(&self) -> bool {
        self.view().await.myself().is("master")
    }

    /// When it was killed or frozen, and the slots that it served then. `None` while it runs.
    pub(super) fn away(&self) -> Option<(Instant, Vec<RangeInclusive<u16>>)> {
        Some((self.member.away_since()?, self.slots.lock().clone()))
    }

    /// Remembers the slots of a running node that is about to be killed or frozen.
    pub(super) async fn note_slots(&self) {
        if self.is_running() {
            let slots = self.view().await.myself().slots.clone();
            *self.slots.lock() = slots;
        }
    }
}

//! What is told of the servers to whoever asks.

use std::time::Duration;

/// The servers of a [`Client`](crate::Client) as it knows them, which may be behind the times for a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyInfo {
    /// How they belong together.
    pub kind: TopologyKind,
    /// All that are known: primaries first, then replicas, then sentinels.
    pub servers: Vec<ServerInfo>,
}

/// How servers belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TopologyKind {
    /// One server.
    Single,
    /// A cluster: each primary has some of the slots.
    Cluster,
    /// A primary, and its replicas, that sentinels look after.
    Sentinel,
    /// Servers of which one is the primary.
    Replicated,
}

/// A server as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// `host:port` as the servers say, or the path of a socket; of a single server with the database behind a slash.
    pub address: String,
    /// Its part.
    pub role: ServerRole,
    /// How often there had been another primary when it became one, by the count of the cluster or the sentinels.
    pub epoch: Option<u64>,
    /// For how long the client has known it to have names; None where it has none.
    pub since: Option<Duration>,
}

/// A server's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ServerRole {
    /// Names live there.
    Primary,
    /// It repeats the writes of a primary, or will when it is back.
    Replica,
    /// It looks after a primary.
    Sentinel,
}

impl TopologyInfo {
    pub(super) fn new(kind: TopologyKind, mut servers: Vec<ServerInfo>) -> Self {
        servers.sort_by(|one, other| (one.role, &one.address).cmp(&(other.role, &other.address)));
        Self { kind, servers }
    }
}

impl ServerInfo {
    /// One without names.
    pub(super) fn beside(address: &impl ToString, role: ServerRole) -> Self {
        Self { address: address.to_string(), role, epoch: None, since: None }
    }
}

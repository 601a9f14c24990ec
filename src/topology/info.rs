//! The servers of a client, for [`Client::topology`](crate::Client::topology).

use std::time::Duration;

/// The servers of a [`Client`](crate::Client), as the client knows them. May be out of date for a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyInfo {
    /// How the servers belong together.
    pub kind: TopologyKind,
    /// All known servers: primaries first, then replicas, then sentinels.
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
    /// A primary with replicas, watched by sentinels.
    Sentinel,
    /// Several servers without sentinels or slots. The client finds the primary by the servers' `ROLE`.
    Replicated,
}

/// A server, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// `host:port` as the servers report it, or the path of a socket. For a single server, a slash and the database
    /// follow.
    pub address: String,
    /// Role of the server.
    pub role: ServerRole,
    /// Config epoch at which this server became primary, as the cluster or the sentinels report it. `None` for single
    /// and replicated servers, replicas and sentinels.
    pub epoch: Option<u64>,
    /// For how long the client has used this server as a primary. `None` for other servers.
    pub since: Option<Duration>,
}

/// Role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ServerRole {
    /// Locks live on this server.
    Primary,
    /// Replicates a primary, or will do so once it is reachable again.
    Replica,
    /// Watches a primary.
    Sentinel,
}

impl TopologyInfo {
    pub(super) fn new(kind: TopologyKind, mut servers: Vec<ServerInfo>) -> Self {
        servers.sort_by(|one, other| (one.role, &one.address).cmp(&(other.role, &other.address)));
        Self { kind, servers }
    }
}

impl ServerInfo {
    /// Builds the entry of a replica or a sentinel.
    pub(super) fn beside(address: &impl ToString, role: ServerRole) -> Self {
        Self { address: address.to_string(), role, epoch: None, since: None }
    }
}

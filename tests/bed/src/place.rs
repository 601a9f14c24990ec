//! The servers that a test runs on: its own server, or shared servers. Shared are clusters of three primaries, and
//! primaries with replicas. Tests use them one after the other.

use std::ops::Deref;

use distlock_support::{
    Admin, Cluster, ClusterOptions, Member, Node, RedisServer, Replicas, ReplicasOptions, Sentinels, SentinelsOptions,
    ServerSet,
};
use parking_lot::Mutex;

use crate::is_cluster;

/// The servers of a test. Dereferences to the single server or the primary. A cluster of three has no such server.
#[derive(Debug)]
pub enum Place {
    /// One server: a one-node cluster if tests run over clusters.
    One(RedisServer),
    /// One server outside of any cluster, whatever tests run over.
    Alone(RedisServer),
    Three(Three),
    /// A primary with two replicas. Dereferences to the primary.
    Set(Set),
}

#[derive(Debug)]
pub struct Set {
    servers: ServerSet,
    as_made: Vec<String>,
    /// True if no other test reuses it, because its primary may have been killed.
    is_own: bool,
}

#[derive(Debug)]
pub struct Three {
    cluster: Cluster,
    as_made: Vec<String>,
}

/// Clusters that no test uses at the moment. Kept because a start takes seconds.
static IDLE: Mutex<Vec<Three>> = Mutex::new(Vec::new());

/// Primaries with replicas that no test uses at the moment.
static IDLE_SETS: Mutex<Vec<Set>> = Mutex::new(Vec::new());

impl Place {
    pub async fn three() -> Self {
        let idle = IDLE.lock().pop();
        if let Some(three) = idle {
            return Self::Three(three);
        }
        // So long that none of many servers on a busy machine is suspected.
        let options = ClusterOptions::default().primaries(3).replicas(0).node_timeout(30_000);
        let cluster = Cluster::start(options.require_full_coverage(false)).await;
        let as_made = settings(cluster.nodes().iter().map(Node::admin)).await;
        Self::Three(Three { cluster, as_made })
    }

    /// A primary with two replicas, with three sentinels or without, as if just started.
    pub async fn set(by_sentinels: bool) -> Self {
        let idle = IDLE_SETS.lock().pop();
        if let Some(set) = idle {
            return Self::Set(set);
        }
        Self::new_set(by_sentinels, false).await
    }

    /// Like [`Place::set`], for a test that may kill the primary.
    pub async fn own_set(by_sentinels: bool) -> Self {
        Self::new_set(by_sentinels, true).await
    }

    async fn new_set(by_sentinels: bool, is_own: bool) -> Self {
        let servers = if by_sentinels {
            // So long that none of many servers on a busy machine is suspected.
            ServerSet::Watched(Box::new(Sentinels::start(SentinelsOptions::default().down_after(60_000)).await))
        } else {
            ServerSet::Alone(Replicas::start(ReplicasOptions::default()).await)
        };
        let as_made = settings(servers.servers().nodes().iter().map(Member::admin)).await;
        Self::Set(Set { servers, as_made, is_own })
    }

    pub async fn admin(&self) -> Admin {
        match self {
            Self::Three(three) => Admin::of_cluster(&three.cluster).await,
            Self::Set(set) => Admin::connect(set.primary()).await,
            Self::One(server) if is_cluster() => Admin::of_node(server).await,
            Self::One(server) | Self::Alone(server) => Admin::connect(server).await,
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Three(three) => three.cluster.url(),
            Self::Set(set) => set.servers.url(),
            Self::One(server) if is_cluster() => server.url().replace("redis://", "redis-cluster://"),
            Self::One(server) | Self::Alone(server) => server.url(),
        }
    }

    /// The servers that receive commands of clients.
    pub(crate) fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Three(three) => three.cluster.nodes().iter().map(Node::server).collect(),
            Self::Set(set) => vec![set.primary()],
            Self::One(server) | Self::Alone(server) => vec![server],
        }
    }

    /// Number of servers with slots.
    pub(crate) fn primaries(&self) -> usize {
        match self {
            Self::Three(three) => three.cluster.nodes().len(),
            Self::One(_) | Self::Alone(_) | Self::Set(_) => 1,
        }
    }

    /// Keeps the servers for the next test, if they are shared and their settings are unchanged. The test must have
    /// left nothing.
    pub async fn leave(self, admin: &Admin) {
        if matches!(&self, Self::One(_) | Self::Alone(_) | Self::Set(Set { is_own: true, .. })) {
            return;
        }
        for command in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"], ["CONFIG", "RESETSTAT"]] {
            admin.cmd::<()>(&command).await;
        }
        match self {
            Self::Three(three) => {
                if settings(three.cluster.nodes().iter().map(Node::admin)).await == three.as_made {
                    IDLE.lock().push(three);
                }
            }
            Self::Set(set) => {
                let nodes = set.servers.servers().nodes();
                if settings(nodes.iter().map(Member::admin)).await == set.as_made {
                    IDLE_SETS.lock().push(set);
                }
            }
            Self::One(_) | Self::Alone(_) => {}
        }
    }
}

impl Set {
    /// The primary since the start. Tests that use this method cause no failover.
    fn primary(&self) -> &RedisServer {
        self.servers.servers().node(0).server()
    }
}

/// All settings that can change while servers run.
async fn settings(admins: impl Iterator<Item = &Admin>) -> Vec<String> {
    let mut settings = Vec::new();
    for admin in admins {
        settings.extend(admin.cmd::<Vec<String>>(&["CONFIG", "GET", "*"]).await);
        settings.extend(admin.cmd::<Vec<String>>(&["ACL", "LIST"]).await);
    }
    settings
}

impl Deref for Place {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        match self {
            Self::One(server) | Self::Alone(server) => server,
            Self::Set(set) => set.primary(),
            Self::Three(_) => panic!("a test that looks at its server is run by `bed::at_one`"),
        }
    }
}

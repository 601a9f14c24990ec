//! The servers that the files' variables point to.

use distlock_support::{
    Admin, Cluster, ClusterOptions, RedisServer, Replicas, ReplicasOptions, Sentinels, SentinelsOptions,
};

use crate::{Variables, variables};

const PASSWORD: &str = "a-Secret.1";

/// A server without a password and a server with one.
pub struct Single {
    open: RedisServer,
    closed: RedisServer,
}

impl Single {
    pub async fn start() -> Self {
        let closed = RedisServer::builder().password(PASSWORD).start();
        let admin = Admin::connect(&closed).await;
        let _: String = admin.cmd(&["ACL", "SETUSER", "locker", "on", ">user.Secret-2", "~*", "&*", "+@all"]).await;
        Self { open: RedisServer::start(), closed }
    }

    pub fn open(&self) -> Variables {
        variables([
            ("REDIS_PORT", self.open.port().to_string()),
            // Longer than a test takes on a slow machine.
            ("LOCK_WATCHDOG", "120000".to_owned()),
        ])
    }

    pub fn closed(&self) -> Variables {
        variables([
            ("REDIS_PORT", self.closed.port().to_string()),
            ("REDIS_HOST", "127.0.0.1".to_owned()),
            ("REDIS_PASSWORD", PASSWORD.to_owned()),
            ("REDIS_USER", "locker".to_owned()),
            ("REDIS_USER_PASSWORD", "user.Secret-2".to_owned()),
        ])
    }
}

/// `NODE1_PORT` and so on, and a YAML list of all nodes.
fn nodes(ports: &[u16]) -> Variables {
    let urls: Vec<_> = ports.iter().map(|port| format!("\"redis://127.0.0.1:{port}\"")).collect();
    let mut all = variables([("REDIS_NODES", format!("[{}]", urls.join(", ")))]);
    all.extend(ports.iter().enumerate().map(|(n, port)| (format!("NODE{}_PORT", n + 1), port.to_string())));
    all
}

pub async fn cluster() -> (Cluster, Variables) {
    let cluster = Cluster::start(ClusterOptions::default()).await;
    let ports: Vec<_> = cluster.nodes().iter().map(|node| node.addr().port()).collect();
    (cluster, nodes(&ports))
}

pub async fn replicas() -> (Replicas, Variables) {
    let bed = Replicas::start(ReplicasOptions::default().password(PASSWORD)).await;
    // The primary comes first.
    let mut ports: Vec<_> = bed.addrs().iter().map(|address| address.port()).collect();
    ports.swap(0, bed.primary());
    let mut all = nodes(&ports);
    all.push(("REDIS_PASSWORD".to_owned(), PASSWORD.to_owned()));
    (bed, all)
}

pub async fn sentinels() -> (Sentinels, Variables) {
    let servers = ReplicasOptions::default().password(PASSWORD);
    let bed = Sentinels::start(SentinelsOptions::default().servers(servers).password("sentinels.Secret-3")).await;
    let mut all = variables([
        ("REDIS_PASSWORD", PASSWORD.to_owned()),
        ("SENTINEL_PASSWORD", "sentinels.Secret-3".to_owned()),
        ("MASTER_NAME", bed.name().to_owned()),
    ]);
    let ports = bed.sentinels().into_iter().map(|sentinel| sentinel.addr().port());
    all.extend(ports.enumerate().map(|(n, port)| (format!("SENTINEL{}_PORT", n + 1), port.to_string())));
    (bed, all)
}

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::RedisServer;
use crate::replicas::Wanted;

#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterOptions {
    pub(super) primaries: usize,
    pub(super) replicas: usize,
    pub(super) proxies: bool,
    pub(super) cuttable: bool,
    node_timeout: Duration,
    require_full_coverage: bool,
    config: Vec<String>,
    certificates: Option<PathBuf>,
}

impl Default for ClusterOptions {
    /// Three primaries with one replica each, a node timeout of 1 s, and full coverage required.
    fn default() -> Self {
        Self {
            primaries: 3,
            replicas: 1,
            proxies: false,
            cuttable: false,
            node_timeout: Duration::from_secs(1),
            require_full_coverage: true,
            config: Vec::new(),
            certificates: None,
        }
    }
}

impl ClusterOptions {
    /// Number of primaries. A promotion needs the votes of more than half of them, so use at least 3 if one may fail.
    pub fn primaries(mut self, n: usize) -> Self {
        assert!(n > 0, "a cluster without a primary");
        self.primaries = n;
        self
    }

    /// Number of replicas of each primary; 0 is allowed.
    pub fn replicas(mut self, n: usize) -> Self {
        self.replicas = n;
        self
    }

    /// `cluster-node-timeout` in ms: after this time a silent node is suspected.
    pub fn node_timeout(mut self, ms: u64) -> Self {
        self.node_timeout = Duration::from_millis(ms);
        self
    }

    /// `cluster-require-full-coverage`: whether the cluster refuses all commands while a slot has no node.
    pub fn require_full_coverage(mut self, on: bool) -> Self {
        self.require_full_coverage = on;
        self
    }

    /// Whether clients (and replicas) reach each node through its own [`crate::Proxy`]. Nodes announce the proxy's
    /// port, so redirections also lead there. The bus bypasses the proxy: see [`ClusterOptions::cuttable`].
    pub fn proxies(mut self, on: bool) -> Self {
        self.proxies = on;
        self
    }

    /// Whether nodes can be cut off from each other's bus: see [`super::Cluster::cut_off`].
    pub fn cuttable(mut self, on: bool) -> Self {
        self.cuttable = on;
        self
    }

    /// One more line of configuration for every node, such as `min-replicas-to-write 1`, with blanks between its
    /// words. These lines come last, so they override this fixture's settings.
    pub fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// Clients, replicas and the bus use TLS, with `cert.pem`, `key.pem` and `ca.pem` of this folder. Administrators
    /// do not.
    pub fn tls(mut self, certificates: &Path) -> Self {
        self.certificates = Some(certificates.to_owned());
        self
    }

    /// One node, with the announced port for its bus, if that has a proxy.
    pub(super) fn node(&self, bus: Option<u16>) -> Wanted {
        let coverage = if self.require_full_coverage { "yes" } else { "no" };
        let mut server = RedisServer::builder()
            .bus(true)
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-config-file", "nodes.conf")
            .arg("--cluster-node-timeout", &self.node_timeout.as_millis().to_string())
            // A node learns its address only when it meets other nodes, so a single node would never learn it.
            .arg("--cluster-announce-ip", "127.0.0.1")
            .arg("--cluster-require-full-coverage", coverage)
            // Replicas stay where a test has put them, and a primary without slots remains a primary.
            .arg("--cluster-allow-replica-migration", "no")
            // A replica gets its data at once, without a wait for other replicas.
            .arg("--repl-diskless-sync-delay", "0");
        if let Some(port) = bus {
            server = server.arg("--cluster-announce-bus-port", &port.to_string());
        }
        if self.certificates.is_some() {
            server = server.arg("--tls-cluster", "yes");
        }
        Wanted {
            server,
            config: self.config.clone(),
            announced: self.proxies.then_some("--cluster-announce-port"),
            certificates: self.certificates.clone(),
            login: None,
        }
    }
}

//! How a cluster is to be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::RedisServer;
use crate::server::Builder;

/// What [`super::Cluster::start`] is to start.
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
    /// Three primaries with a replica each, a node timeout of 1 s, full coverage required as by default.
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
    /// How many primaries; a promotion needs the votes of more than half of them, so at least 3 where one may fail.
    pub fn primaries(mut self, n: usize) -> Self {
        assert!(n > 0, "a cluster without a primary");
        self.primaries = n;
        self
    }

    /// How many replicas each primary has; 0 is allowed.
    pub fn replicas(mut self, n: usize) -> Self {
        self.replicas = n;
        self
    }

    /// `cluster-node-timeout` in ms: after so long a silent node is suspected.
    pub fn node_timeout(mut self, ms: u64) -> Self {
        self.node_timeout = Duration::from_millis(ms);
        self
    }

    /// `cluster-require-full-coverage`: whether all slots are down while one is not served.
    pub fn require_full_coverage(mut self, on: bool) -> Self {
        self.require_full_coverage = on;
        self
    }

    /// Whether clients (and replicas) reach every node through a [`crate::Proxy`] of its own: nodes announce its port, so
    /// redirections lead there as well. The bus goes around it: see [`ClusterOptions::cuttable`].
    pub fn proxies(mut self, on: bool) -> Self {
        self.proxies = on;
        self
    }

    /// Whether nodes can be cut off from each other's bus: see [`super::Cluster::cut_off`].
    pub fn cuttable(mut self, on: bool) -> Self {
        self.cuttable = on;
        self
    }

    /// One more line of configuration for every node, such as `min-replicas-to-write 1`; its words stand between blanks.
    /// These come last, so they win over what this fixture sets.
    pub fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// Clients, replicas and the bus speak TLS, by `cert.pem`, `key.pem` and `ca.pem` of this folder. Administrators do not.
    pub fn tls(mut self, certificates: &Path) -> Self {
        self.certificates = Some(certificates.to_owned());
        self
    }

    pub(super) fn is_tls(&self) -> bool {
        self.certificates.is_some()
    }

    /// The server of one node, with the ports it announces for clients and for the bus, and that for TLS, where there are such.
    pub(super) fn server(&self, announced: Option<u16>, bus: Option<u16>, tls_port: Option<u16>) -> Builder {
        let coverage = if self.require_full_coverage { "yes" } else { "no" };
        let mut server = RedisServer::builder()
            .bus(true)
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-config-file", "nodes.conf")
            .arg("--cluster-node-timeout", &self.node_timeout.as_millis().to_string())
            // A node learns its address when it meets others; one that is alone never would.
            .arg("--cluster-announce-ip", "127.0.0.1")
            .arg("--cluster-require-full-coverage", coverage)
            // Replicas stay where a test has put them, and a primary without slots remains one.
            .arg("--cluster-allow-replica-migration", "no")
            // A replica gets its data at once, not only when others may have come as well.
            .arg("--repl-diskless-sync-delay", "0");
        if let Some(port) = announced {
            server = server.arg("--cluster-announce-port", &port.to_string());
        }
        if let Some(port) = bus {
            server = server.arg("--cluster-announce-bus-port", &port.to_string());
        }
        if let (Some(folder), Some(port)) = (&self.certificates, tls_port) {
            server = server.tls(folder, port).arg("--tls-cluster", "yes");
        }
        self.config.iter().fold(server, |server, line| server.line(line))
    }
}

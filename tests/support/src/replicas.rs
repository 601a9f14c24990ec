//! A real primary with replicas for each test. The servers have their own ports and end with the test process.
//!
//! ```no_run
//! # async fn example() {
//! use distlock_support::{Replicas, ReplicasOptions};
//!
//! let servers = Replicas::start(ReplicasOptions::default()).await;
//! servers.node(0).kill();
//! servers.promote(1).await;
//! println!("{} leads {}", servers.node(1).addr(), servers.url());
//! # }
//! ```

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures::future::join_all;

use crate::until::until;

mod login;
mod member;
mod options;

pub(crate) use login::Login;
pub use member::Member;
pub(crate) use member::Wanted;
pub use options::ReplicasOptions;

const REPLICATION: [&str; 2] = ["INFO", "replication"];

/// A primary and its replicas on the loopback interface. Dropping this kills all servers and removes their folders.
///
/// A restarted server keeps its role: a replica follows its last primary, and a primary is a primary again. A primary
/// loses its data unless the options have `appendonly yes`.
#[derive(Debug)]
pub struct Replicas {
    nodes: Vec<Member>,
    primary: AtomicUsize,
    options: ReplicasOptions,
}

impl Replicas {
    /// Starts the servers, all at once, and waits until the replicas follow the first one (see [`Replicas::synced`]).
    pub async fn start(options: ReplicasOptions) -> Self {
        let nodes = Member::launch((0..options.count).map(|_| options.server()).collect()).await;
        let servers = Self { nodes, primary: AtomicUsize::new(0), options };
        join_all((1..servers.nodes.len()).map(|n| servers.follow(n))).await;
        servers.synced().await;
        servers
    }

    /// All servers. The first was the primary at the start.
    pub fn nodes(&self) -> &[Member] {
        &self.nodes
    }

    pub fn node(&self, n: usize) -> &Member {
        &self.nodes[n]
    }

    /// The addresses for clients, in the order of [`Replicas::nodes`].
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Member::addr).collect()
    }

    /// `redis-replicated://host:port,host:port,...` with all servers, and with their user and password, if any;
    /// `rediss-replicated://` if they use TLS.
    pub fn url(&self) -> String {
        let secure = if self.options.is_tls() { "s" } else { "" };
        let hosts: Vec<String> = self.addrs().iter().map(SocketAddr::to_string).collect();
        format!("redis{secure}-replicated://{}{}", self.userinfo(), hosts.join(","))
    }

    /// `user:password@` of the servers, or nothing.
    pub(crate) fn userinfo(&self) -> String {
        self.options.login.as_ref().map(Login::userinfo).unwrap_or_default()
    }

    /// The primary since the start, or since the last [`Replicas::promote`]. Sentinels promote on their own: use
    /// [`crate::Sentinels::primary`] then.
    pub fn primary(&self) -> usize {
        self.primary.load(Ordering::SeqCst)
    }

    /// Promotes a replica (`REPLICAOF NO ONE`) and waits until all other running servers follow it, including the old
    /// primary. Returns the time of the promotion.
    pub async fn promote(&self, n: usize) -> Instant {
        let at = self.detach(n).await;
        self.primary.store(n, Ordering::SeqCst);
        let others = (0..self.nodes.len()).filter(|other| *other != n && self.nodes[*other].is_running());
        join_all(others.map(|other| self.follow(other))).await;
        self.synced().await;
        at
    }

    /// Makes a server a second primary (`REPLICAOF NO ONE`), next to the existing primary. Returns the time of the
    /// change.
    pub async fn detach(&self, n: usize) -> Instant {
        self.nodes[n].admin().cmd::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        let at = Instant::now();
        self.nodes[n].admin().cmd::<()>(&["CONFIG", "REWRITE"]).await;
        at
    }

    /// Makes a server follow [`Replicas::primary`], for example after it was down during a promotion. Does not wait for
    /// [`Replicas::synced`].
    pub async fn follow(&self, n: usize) {
        let leader = self.nodes[self.primary()].addr();
        let (host, port) = (leader.ip().to_string(), leader.port().to_string());
        self.nodes[n].admin().cmd::<()>(&["REPLICAOF", &host, &port]).await;
        // The setting survives a restart, as with Sentinel.
        self.nodes[n].admin().cmd::<()>(&["CONFIG", "REWRITE"]).await;
    }

    /// Waits until all running servers follow [`Replicas::primary`] and are up to date.
    pub async fn synced(&self) {
        until("replicas in step", async || self.in_step(self.primary()).await).await;
    }

    /// Checks that all running servers are up to date with this primary. The error says what is missing.
    pub(crate) async fn in_step(&self, primary: usize) -> Result<(), String> {
        let leader = &self.nodes[primary];
        if !leader.is_running() {
            return Err(format!("{} does not run", leader.addr()));
        }
        let mut followers = 0;
        for (n, node) in self.running() {
            let info: String = node.admin().cmd(&REPLICATION).await;
            let says = |line: &str| info.lines().any(|said| said == line);
            let sound = if n == primary {
                says("role:master")
            } else {
                followers += 1;
                says("master_link_status:up") && says(&format!("master_port:{}", leader.addr().port()))
            };
            if !sound {
                return Err(format!("{}: {info}", node.addr()));
            }
        }
        let info: String = leader.admin().cmd(&REPLICATION).await;
        let online = info.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count();
        if online < followers {
            return Err(format!("{} has {online} of {followers} replicas online", leader.addr()));
        }
        Ok(())
    }

    /// The running servers that report to be primaries.
    pub async fn primaries(&self) -> Vec<usize> {
        let mut primaries = Vec::new();
        for (n, node) in self.running() {
            if node.is_primary().await {
                primaries.push(n);
            }
        }
        primaries
    }

    /// The server with this address, which is either its announced address or its address for administrators.
    pub(crate) fn position(&self, addr: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.addr().to_string() == addr || node.server().addr().to_string() == addr)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_running())
    }
}

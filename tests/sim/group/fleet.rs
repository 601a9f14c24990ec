//! Several simulated servers, and clients with a connection to each.

use std::time::Duration;

use distlock::{Flavour, RedLock};
use distlock_sim::SimServer;
use tokio::time::{Instant, sleep, timeout};

use crate::rig::{Party, count, lasts, left_over, ms};

/// Some servers that know nothing of one another, and clients of all of them.
pub struct Fleet {
    pub servers: Vec<SimServer>,
    /// By client, then by server.
    pub clients: Vec<Vec<Party>>,
}

impl Fleet {
    pub fn new(seed: u64, servers: usize, clients: usize, party: impl Fn(&SimServer, usize) -> Party) -> Self {
        let server = |n| SimServer::new(seed ^ ((n as u64) << 32));
        let servers: Vec<_> = (0..servers).map(server).collect();
        let clients = (0..clients).map(|n| servers.iter().map(|server| party(server, n)).collect()).collect();
        Self { servers, clients }
    }

    /// The lock of this name over all servers.
    pub fn red(&self, client: usize, flavour: Flavour, name: &str, node_timeout: Duration) -> RedLock {
        let clients = self.clients[client].iter().map(|party| party.client.clone());
        RedLock::over(clients, flavour, name).node_timeout(node_timeout)
    }

    /// Everything that is left anywhere, in words; empty when nothing is.
    pub fn left_over(&self) -> String {
        let mut all = String::new();
        for (n, server) in self.servers.iter().enumerate() {
            let parties: Vec<_> = self.clients.iter().map(|parties| &parties[n]).collect();
            let left = left_over(server, &parties);
            if !left.is_empty() {
                all += &format!("server {n}: {left}");
            }
        }
        all
    }

    /// Waits until nothing is left.
    pub async fn settled(&self, within: Duration) -> Result<Duration, String> {
        let start = Instant::now();
        loop {
            let left = self.left_over();
            if left.is_empty() {
                return Ok(start.elapsed());
            }
            if start.elapsed() >= within {
                return Err(format!("left after {within:?}: {left}"));
            }
            sleep((start.elapsed() / 16).max(ms(1))).await;
        }
    }

    /// Shuts every client down. What went wrong, in words.
    pub async fn shutdown(&self) -> Result<(), String> {
        for party in self.clients.iter().flatten() {
            match timeout(ms(30_000), party.client.shutdown(ms(5_000))).await {
                Ok(Ok(())) => {}
                odd => return Err(format!("shutdown: {odd:?}")),
            }
        }
        Ok(())
    }

    /// For how long each of the servers has an owner's hold of a RedLock, in ms; the longest first, none left out.
    pub fn spans(&self, flavour: Flavour, name: &str, owner: &str) -> Vec<i64> {
        let span = |(n, server): (usize, &SimServer)| {
            let owner = moved(owner, n);
            if count(server, flavour, name, &owner) == 0 { -2 } else { lasts(server, flavour, name, &owner) }
        };
        let mut spans: Vec<_> = self.servers.iter().enumerate().map(span).collect();
        spans.sort_unstable_by(|a, b| b.cmp(a));
        spans
    }
}

/// An owner's text at the server of this number: the last byte of its uuid is another one on each.
pub fn moved(owner: &str, server: usize) -> String {
    let byte = u8::from_str_radix(&owner[34..36], 16).unwrap();
    format!("{}{:02x}{}", &owner[..34], byte ^ server as u8, &owner[36..])
}

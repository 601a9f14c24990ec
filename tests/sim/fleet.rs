use crate::prelude::*;

/// Independent servers, and clients with a connection to each of them.
pub struct Fleet {
    pub servers: Vec<SimServer>,
    /// Indexed by client, then by server.
    pub clients: Vec<Vec<Party>>,
}

impl Fleet {
    pub fn new(seed: u64, servers: usize, clients: usize, party: impl Fn(&SimServer, usize) -> Party) -> Self {
        let server = |n| SimServer::new(seed ^ ((n as u64) << 32));
        let servers: Vec<_> = (0..servers).map(server).collect();
        let clients = (0..clients).map(|n| servers.iter().map(|server| party(server, n)).collect()).collect();
        Self { servers, clients }
    }

    /// A RedLock of this client and name over all servers.
    pub fn red(&self, client: usize, flavour: Flavour, name: &str, node_timeout: Duration) -> RedLock {
        let clients = self.clients[client].iter().map(|party| party.client.clone());
        RedLock::over(clients, flavour, name).node_timeout(node_timeout)
    }

    pub fn left_over(&self) -> String {
        let left = |(n, server): (usize, &SimServer)| {
            let parties: Vec<_> = self.clients.iter().map(|parties| &parties[n]).collect();
            Some(left_over(server, &parties)).filter(|left| !left.is_empty()).map(|left| format!("server {n}: {left}"))
        };
        self.servers.iter().enumerate().filter_map(left).collect()
    }

    pub async fn settled(&self, within: Duration) -> Result<(), String> {
        gone(|| self.left_over(), within).await
    }

    pub async fn ends(&self, within: Duration) {
        self.settled(within).await.unwrap();
        for party in self.clients.iter().flatten() {
            shut(&party.client).await.unwrap();
        }
    }

    /// The remaining time of an owner's RedLock hold at each server, in ms, longest first. -2 for a server without the
    /// hold.
    pub fn spans(&self, flavour: Flavour, name: &str, owner: &str) -> Vec<i64> {
        let servers = self.servers.iter().enumerate();
        let mut spans: Vec<_> = servers.map(|(n, server)| span(server, flavour, name, &moved(owner, n))).collect();
        spans.sort_unstable_by(|a, b| b.cmp(a));
        spans
    }
}

/// The remaining time of an owner's hold at a server, in ms. It is -2 if the owner has no hold.
pub fn span(server: &SimServer, flavour: Flavour, name: &str, owner: &str) -> i64 {
    if count(server, flavour, name, owner) == 0 { -2 } else { lasts(server, flavour, name, owner) }
}

/// An owner's text at this server. A RedLock uses another last byte of the owner's UUID at each server.
pub fn moved(owner: &str, server: usize) -> String {
    let byte = u8::from_str_radix(&owner[34..36], 16).unwrap();
    format!("{}{:02x}{}", &owner[..34], byte ^ server as u8, &owner[36..])
}

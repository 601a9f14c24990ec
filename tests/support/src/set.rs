//! A primary and its replicas, with or without sentinels.

use crate::replicas::{Member, Replicas};
use crate::sentinels::Sentinels;

#[derive(Debug)]
pub enum ServerSet {
    /// Watched by sentinels.
    Watched(Box<Sentinels>),
    /// Without sentinels: clients query the role of each server.
    Alone(Replicas),
}

impl ServerSet {
    pub fn url(&self) -> String {
        match self {
            Self::Watched(sentinels) => sentinels.url(),
            Self::Alone(servers) => servers.url(),
        }
    }

    pub fn servers(&self) -> &Replicas {
        match self {
            Self::Watched(sentinels) => sentinels.servers(),
            Self::Alone(servers) => servers,
        }
    }

    pub async fn primary(&self) -> &Member {
        let n = match self {
            Self::Watched(sentinels) => sentinels.primary().await,
            Self::Alone(servers) => servers.primary(),
        };
        self.servers().node(n)
    }

    /// Requests the promotion of another server, and waits until all agree again.
    pub async fn fail_over(&self) {
        match self {
            Self::Watched(sentinels) => {
                sentinels.failover().await;
            }
            Self::Alone(servers) => {
                servers.promote((servers.primary() + 1) % servers.nodes().len()).await;
            }
        }
    }
}

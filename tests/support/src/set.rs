//! A primary and its replicas, whoever looks after them.

use crate::replicas::{Member, Replicas};
use crate::sentinels::Sentinels;

/// Who looks after a primary and its replicas.
#[derive(Debug)]
pub enum ServerSet {
    /// Sentinels.
    Watched(Box<Sentinels>),
    /// Nobody but the test: clients ask each server what it is.
    Alone(Replicas),
}

impl ServerSet {
    /// The URL for clients.
    pub fn url(&self) -> String {
        match self {
            Self::Watched(sentinels) => sentinels.url(),
            Self::Alone(servers) => servers.url(),
        }
    }

    /// All servers.
    pub fn servers(&self) -> &Replicas {
        match self {
            Self::Watched(sentinels) => sentinels.servers(),
            Self::Alone(servers) => servers,
        }
    }

    /// The one that is the primary.
    pub async fn primary(&self) -> &Member {
        let n = match self {
            Self::Watched(sentinels) => sentinels.primary().await,
            Self::Alone(servers) => servers.primary(),
        };
        self.servers().node(n)
    }

    /// Has another server take over by request, and waits until all are at one again.
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

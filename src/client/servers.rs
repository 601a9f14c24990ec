//! Queries about the servers of a client.

use std::time::Duration;

use futures::future::try_join_all;

use super::Client;
use crate::error::Result;
use crate::names::LockName;
use crate::topology::TopologyInfo;
use crate::transport::Call;

impl Client {
    /// Pings every server that stores names, all at once, and returns the time of the slowest reply. Suits readiness
    /// probes.
    ///
    /// # Cost
    ///
    /// One command per server.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// # Errors
    ///
    /// - [`Connection`](crate::Error::Connection), [`Timeout`](crate::Error::Timeout): a server does not answer
    ///   within the command timeout.
    /// - [`Server`](crate::Error::Server): a server refuses the command.
    /// - [`Closed`](crate::Error::Closed): the client was shut down.
    /// - [`RuntimeGone`](crate::Error::RuntimeGone): the client's runtime has ended.
    pub async fn ping(&self) -> Result<Duration> {
        let engine = self.engine().clone();
        engine.check_open()?;
        let began = engine.now();
        let asking = {
            let engine = engine.clone();
            async move {
                let name = |n: u32| LockName::new("", &format!("distlock:ping:{}:{n}", engine.id));
                let names = engine.topology.one_each(name);
                let each = names.iter().map(|name| engine.run(name, Call::ping()));
                try_join_all(each).await.map(drop)
            }
        };
        engine.home().run(asking).await?;
        Ok(engine.now().since(began))
    }

    /// Returns the servers as this client knows them: each primary, its epoch, and how long it has been primary.
    ///
    /// # Cost
    ///
    /// None: no server is asked.
    #[must_use]
    pub fn topology(&self) -> TopologyInfo {
        self.engine().topology.info()
    }
}

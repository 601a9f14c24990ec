//! What a client tells of its servers.

use std::time::Duration;

use futures::future::try_join_all;

use super::Client;
use crate::error::Result;
use crate::names::LockName;
use crate::topology::TopologyInfo;
use crate::transport::Call;

impl Client {
    /// Asks every server that names live on for a sign of life, all at once: how long the slowest took. For readiness probes.
    ///
    /// *Cost*: one command for each server. *Cancel safety*: nothing stays. *Errors*: [`Connection`](crate::Error::Connection) or
    /// [`Timeout`](crate::Error::Timeout) where one does not answer within the command timeout, [`Server`](crate::Error::Server) where one refuses,
    /// [`Closed`](crate::Error::Closed) after a shutdown, [`RuntimeGone`](crate::Error::RuntimeGone) where the client's runtime has ended.
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

    /// The servers as this client knows them: who is a primary, at which epoch, and since when.
    ///
    /// *Cost*: none, nothing is asked. *Cancel safety*: never waits. *Errors*: none.
    #[must_use]
    pub fn topology(&self) -> TopologyInfo {
        self.engine().topology.info()
    }
}

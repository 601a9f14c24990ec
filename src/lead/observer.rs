//! Observers of an election.

use std::sync::Arc;

use crate::client::Client;
use crate::engine::wait::Looking;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static LEADER: Script = Script::new("lead/leader", include_str!("../../lua/lead/leader.lua")).reading();

/// The leader as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The term's number: the fencing token. It grows from term to term.
    pub epoch: u64,
    /// The leader's payload. `None` if the leader has no payload or has not announced itself yet, or if it is no
    /// candidate but a holder of the fenced lock, such as a Java process.
    pub payload: Option<Vec<u8>>,
}

impl Leader {
    /// Returns the payload as text; `None` if there is no payload, or if it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.payload.as_deref()?).ok()
    }
}

/// Reads who leads, and waits for changes. See [How stale is an observer?](super#how-stale-is-an-observer)
#[derive(Clone, Debug)]
pub struct Observer {
    client: Client,
    name: Arc<LockName>,
    /// The last output of [`Self::changed`]. None before the first.
    seen: Option<Option<Leader>>,
}

impl Observer {
    pub(super) fn new(client: &Client, name: Arc<LockName>) -> Self {
        Self { client: client.clone(), name, seen: None }
    }

    /// Returns the name of the election, without the client's prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.as_written
    }

    /// Returns the current leader, read from the primary. `None` if nobody leads.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn current(&self) -> Result<Option<Leader>> {
        let reply = self.client.engine().ask(&self.name, query(&self.name)).await?;
        read(&reply, &self.name)
    }

    /// Waits until epoch or payload differ from the last output of this method, and returns the current leader. The
    /// first call returns at once. If there were several changes since the last call, only the latest is returned.
    ///
    /// # Cost
    ///
    /// One round trip, one command if there was a change. Otherwise a subscription, which all observers of this name in
    /// this process share, and one command for each message and at each poll.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again: no change is missed.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::acquire`](crate::DistLock::acquire). Temporary errors are retried for the time given at
    /// [`DistLock::lock`](crate::DistLock::lock). After an error, the method may be called again.
    pub async fn changed(&mut self) -> Result<Option<Leader>> {
        let engine = self.client.engine();
        let (owned, name, seen) = (Arc::clone(engine), Arc::clone(&self.name), self.seen.clone());
        let look = Box::new(move || {
            let (engine, name, seen) = (Arc::clone(&owned), Arc::clone(&name), seen.clone());
            let look = async move {
                let leader = read(&engine.run(&name, query(&name)).await?, &name)?;
                Ok((seen.as_ref() != Some(&leader)).then_some(leader))
            };
            Box::pin(look) as _
        });
        // Each observer queries for itself, because each may have seen another leader.
        let every = Some(engine.options.watchdog / 3);
        let looking: Looking<Option<Leader>> = Looking { look, for_all: None, every };
        let leader = engine.look(&self.name, None, looking).await?.ok_or(Error::Closed)?;
        self.seen = Some(leader.clone());
        Ok(leader)
    }
}

fn query(name: &LockName) -> Call {
    Call { script: &LEADER, keys: 2, words: vec![Arg::Text(name.key.clone()), Arg::Text(name.counter())] }
}

fn read(reply: &Reply, name: &LockName) -> Result<Option<Leader>> {
    let parts: &[Reply] = match reply {
        Reply::Nil => return Ok(None),
        Reply::List(parts) => parts,
        Reply::Int(_) | Reply::Text(_) => &[],
    };
    let leader = match parts {
        [epoch] => number(epoch).map(|epoch| Leader { epoch, payload: None }),
        [epoch, Reply::Text(payload)] => number(epoch)
            .map(|epoch| Leader { epoch, payload: Some(payload.to_vec()).filter(|payload| !payload.is_empty()) }),
        _ => None,
    };
    leader.map(Some).ok_or_else(|| Error::odd_reply(LEADER.name, reply).about(&name.as_written))
}

fn number(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        Reply::Nil | Reply::Int(_) | Reply::List(_) => None,
    }
}

//! Labels. A label is text for people, such as the name of a pod. It shows which process holds a lock.
//!
//! A labelled client has one key of its own, `distlock_label:{<digits>}`, with the first digits of its uuid. All its
//! owners and the ids of its permits begin with these digits.
//!
//! 1. A task writes the key at once, and again after each watchdog lease. No call of a lock waits for the task. A write
//!    that fails is logged, and repeated at its next turn.
//! 2. The key expires four leases after the last write, so it outlasts all locks that the watchdog renewed.
//! 3. At the end of the client, the task deletes the key. A write in doubt may still run after the deletion. Then the
//!    key expires.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::{Builder, Client};
use crate::config::{LONGEST_LABEL, millis};
use crate::engine::Engine;
use crate::error::Result;
use crate::names::LockName;
use crate::runtime::standstill::within;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static SET: Script = Script::bare("label/set", "SET");
static GET: Script = Script::bare("label/get", "GET").reading();
static DEL: Script = Script::bare("label/delete", "DEL");

/// Number of digits of the uuid in the key. The id of a permit contains only these digits of its client's uuid.
const DIGITS: usize = 16;

/// Number of watchdog leases after which the key expires.
const LEASES: u32 = 4;

impl Builder {
    /// Sets a text that tells people which process this client is, such as the name of its pod. The other clients read
    /// it by [`Client::label_of`]. At most 128 bytes; [`guide::who_holds_it`](crate::guide::who_holds_it) has the
    /// details. Defaults to none.
    ///
    /// # Cost
    ///
    /// One command at connect, one after each [`watchdog`](Self::watchdog) lease, and one at shutdown. No call of a
    /// lock waits for them. If the server does not answer, a shutdown takes up to half a
    /// [`command_timeout`](Self::command_timeout) longer.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pod = std::env::var("HOSTNAME")?; // in Kubernetes: the name of the pod
    /// let client = distlock::Client::builder("redis://localhost:6379").label(pod).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.options.label = label.into();
        self
    }
}

impl Client {
    /// Returns the [label](Builder::label) of the client that holds or waits: `holder` is an [`Owner`](crate::Owner) or
    /// its text, the id of a permit, or the [id](Self::id) of a client. `None` if the client has no label, or if it has
    /// ended and its label has expired. Clients of Java have no labels. A text of more than 128 bytes is no label.
    ///
    /// # Cost
    ///
    /// One round trip, one command; none if `holder` does not begin like the id of a client.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::state`](crate::DistLock::state).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// for (owner, _) in client.reentrant("orders:42").state().await?.holders {
    ///     let label = client.label_of(&owner).await?;
    ///     println!("held by {owner}, {}", label.as_deref().unwrap_or("without a label"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn label_of(&self, holder: impl fmt::Display) -> Result<Option<String>> {
        let Some(name) = name_of(&holder.to_string()) else { return Ok(None) };
        Ok(read(&self.engine().ask(&name, call(&GET, &name, [])).await?))
    }
}

/// The label in a reply. A longer text is not of this crate, and may be of any size.
fn read(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Text(label) if label.len() <= LONGEST_LABEL => Some(String::from_utf8_lossy(label).into_owned()),
        _ => None,
    }
}

/// Starts the task that writes the label of a new client, if it has one. Returns the client.
pub(super) fn keep(client: Client) -> Client {
    if !client.options().label.is_empty()
        && let Some(name) = name_of(client.id())
    {
        let engine = Arc::clone(client.engine());
        let reaper = engine.reaper.clone();
        reaper.finish_by_closing(Box::pin(write_until_end(engine, name)));
    }
    client
}

async fn write_until_end(engine: Arc<Engine>, name: Arc<LockName>) {
    let mut ended = engine.ended();
    loop {
        let turn = async {
            if let Err(error) = write(&engine, &name).await {
                tracing::debug!(%error, "the label was not written: retried after a watchdog lease");
            }
            tokio::time::sleep(engine.options.watchdog).await;
        };
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => break,
            () = turn => {}
        }
    }
    // A shutdown allows at least one command timeout for all clean-up. So it does not fail because of the label.
    let limit = engine.options.command_timeout / 2;
    let _ = within(limit, engine.run(&name, call(&DEL, &name, []))).await;
}

async fn write(engine: &Engine, name: &LockName) -> Result<()> {
    let label = Arg::Text(Bytes::copy_from_slice(engine.options.label.as_bytes()));
    let expiry = Arg::Int(millis(engine.options.watchdog * LEASES));
    engine.run(name, call(&SET, name, [label, Arg::Text(Bytes::from_static(b"PX")), expiry])).await.map(drop)
}

fn call<const N: usize>(command: &'static Script, name: &LockName, args: [Arg; N]) -> Call {
    let words = std::iter::once(Arg::Text(name.key.clone())).chain(args).collect();
    Call { script: command, keys: 1, words }
}

/// The key of a client's label. `holder` begins with the client's uuid; if it does not, returns `None`. The key has no
/// name prefix, because its readers may use another prefix.
fn name_of(holder: &str) -> Option<Arc<LockName>> {
    let digits: String = holder.chars().filter(|digit| *digit != '-').take(DIGITS).collect();
    let is_id = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| LockName::new("", &format!("distlock_label:{{{digits}}}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;

    const ID: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab";

    #[test]
    fn owners_permits_and_redlock_members_of_a_client_share_its_key() {
        let owner = Owner::fresh(ID, 7);
        let at_server = owner.at(3);
        let permit = "71b96ce827468c3a0000000000020000";
        for holder in [ID, owner.text(), at_server.text(), permit] {
            let name = name_of(holder).unwrap();
            assert_eq!(&name.key[..], b"distlock_label:{71b96ce827468c3a}", "{holder}");
            assert!(!name.spans_slots());
        }
    }

    #[test]
    fn text_without_an_id_has_no_key() {
        for holder in ["", "1", "71b96ce8-2746-8c3", "71b96ce8-2746-8c3x", "71b96ce8:2746:8c3a", "éééééééé"] {
            assert!(name_of(holder).is_none(), "{holder}");
        }
    }

    #[test]
    fn text_longer_than_a_label_is_no_label() {
        let label = |bytes: usize| read(&Reply::Text(Bytes::from("x".repeat(bytes))));
        assert_eq!(label(LONGEST_LABEL), Some("x".repeat(LONGEST_LABEL)));
        assert_eq!(label(LONGEST_LABEL + 1), None);
    }
}

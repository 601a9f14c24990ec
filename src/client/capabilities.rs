//! Queries the features of the servers, once per client.

use std::sync::Arc;

use bytes::Bytes;

use super::Client;
use crate::capabilities::Capabilities;
use crate::engine::Engine;
use crate::error::passing::Passing;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};

static INFO: Script = Script::bare("capabilities/info", "INFO");
static CLUSTER: Script = Script::bare("capabilities/cluster", "CLUSTER");
static PUBSUB: Script = Script::bare("capabilities/pubsub", "PUBSUB");
static EVAL: Script = Script::bare("capabilities/eval", "EVAL");
static EVALSHA: Script = Script::bare("capabilities/evalsha", "EVALSHA");
static PUBLISH: Script = Script::bare("capabilities/publish", "PUBLISH");
static SPUBLISH: Script = Script::bare("capabilities/spublish", "SPUBLISH");

/// A well-formed hash that belongs to no script.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

impl Client {
    /// Returns the features that the servers support, and permit for this login. Only features that locks use are
    /// queried. If any is [`missing`](Capabilities::missing), that is logged once.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let capabilities = client.capabilities().await?;
    /// if capabilities.messages == Some(false) {
    ///     eprintln!("waiters poll: {:?}", client.options().poll_cap);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cost
    ///
    /// Nothing at connect. The first call sends six commands to each server concurrently. It also subscribes to one
    /// channel at each server, and unsubscribes again. Later calls, also of clones, send nothing. Servers that join a
    /// cluster later are not queried. A server logs commands that it refuses (`ACL LOG`).
    ///
    /// # Cancel safety
    ///
    /// Once begun, the query is completed in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`](crate::Error::Connection) and [`Error::Timeout`](crate::Error::Timeout) if one of the
    /// servers does not answer, [`Error::Server`](crate::Error::Server) if one refuses commands for a time, such as
    /// while it loads its data. The next call queries the servers again.
    pub async fn capabilities(&self) -> Result<Capabilities> {
        let engine = Arc::clone(self.engine());
        engine.check_open()?;
        let asking = async move {
            let found = engine.capabilities.get_or_try_init(async || {
                let found = find(&engine).await?;
                let missing = found.missing();
                if !missing.is_empty() {
                    tracing::warn!(?missing, "the server lacks features that locks use, or denies them to this login");
                }
                Ok(found)
            });
            let undeclared_keys = engine.topology.undeclared_keys();
            found.await.map(|found| Capabilities { undeclared_keys, ..found.clone() })
        };
        self.engine().home().spawn(asking).await
    }
}

async fn find(engine: &Engine) -> Result<Capabilities> {
    let name = |n: u32| LockName::new(&engine.options.name_prefix, &format!("distlock:asks:{}:{n}", engine.id));
    let names = engine.topology.one_each(name);
    let each = futures::future::try_join_all(names.iter().map(|name| find_at(engine, name))).await?;
    Ok(each.into_iter().reduce(Capabilities::and).unwrap_or_default())
}

/// Queries the server of a name.
async fn find_at(engine: &Engine, name: &LockName) -> Result<Capabilities> {
    let ask = async |script: &'static Script, words: &[&[u8]]| {
        let words = words.iter().map(|word| Arg::Text(Bytes::copy_from_slice(word))).collect();
        answered(name, engine.topology.run(name, Call { script, keys: 0, words }).await)
    };
    let is_sharded = engine.topology.publish() == b"SPUBLISH"[..];
    let publish = if is_sharded { &SPUBLISH } else { &PUBLISH };
    let heard = async || {
        let subscribed = engine.topology.subscribe(name).await;
        engine.topology.unsubscribe(name).await;
        subscribed
    };
    let ((info, nodes, sharded, eval, evalsha), (published, heard)) = futures::future::join(
        futures::future::join5(
            ask(&INFO, &[b"server"]),
            ask(&CLUSTER, &[b"NODES"]),
            ask(&PUBSUB, &[b"SHARDNUMSUB"]),
            ask(&EVAL, &[b"return 1", b"0"]),
            ask(&EVALSHA, &[NO_SCRIPT.as_bytes(), b"0"]),
        ),
        futures::future::join(ask(publish, &[&name.channel, b"0"]), heard()),
    )
    .await;
    let mut found = Capabilities { servers: 1, cluster: engine.topology.is_cluster(), ..Capabilities::default() };
    if let Ok(Reply::Text(text)) = info? {
        found.read_info(&String::from_utf8_lossy(&text));
    }
    found.cluster_nodes = Some(nodes?.map_or_else(|why| why.contains("support disabled"), |_| true));
    found.sharded_channels = Some(sharded?.is_ok());
    found.scripts = Some(eval?.is_ok());
    found.script_cache = Some(evalsha?.map_or_else(|why| why.starts_with("NOSCRIPT"), |_| true));
    // Only a refusal proves that messages do not work. Any other failure leaves this unknown, because a subscription is
    // retried while its connection is down.
    let heard = match heard {
        Ok(()) => Some(true),
        Err(fault) => (fault.kind == FaultKind::Refused).then_some(false),
    };
    found.messages = if published?.is_ok() { heard } else { Some(false) };
    Ok(found)
}

/// A server's reply, or the text of its refusal. An error if there is no reply, or if the refusal is temporary and says
/// nothing about the server's features.
fn answered<T>(name: &LockName, outcome: Result<T, Fault>) -> Result<Result<T, String>> {
    match outcome {
        Ok(answer) => Ok(Ok(answer)),
        Err(fault) if fault.kind == FaultKind::Refused && Passing::of(&fault.message).is_none() => {
            Ok(Err(fault.message))
        }
        Err(fault) => Err(Error::of_fault(&fault, &name.as_written)),
    }
}

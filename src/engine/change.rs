//! Commands that change the state of a name but concern no hold, for example a change of the number of permits.

use std::sync::Arc;

use bytes::Bytes;

use super::Engine;
use super::release::in_time;
use super::replies::too_late;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::runtime::reaper::Finished;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

/// The script, keys and arguments of one change.
pub(crate) struct Change {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<Bytes>,
    pub(crate) args: Vec<Arg>,
    /// True if the script publishes messages. It then also gets the publish command and the channel.
    pub(crate) publishes: bool,
}

impl Engine {
    /// Sends the command. Never repeats it after doubt, so it takes effect at most once. Once begun, the command is
    /// completed even if the caller is dropped.
    ///
    /// The arguments are `args`, the last moment, and with `publishes` the publish command and the channel.
    pub(crate) async fn change(self: &Arc<Self>, name: &Arc<LockName>, change: Change) -> Result<Reply> {
        self.check(name)?;
        let (engine, name) = (Arc::clone(self), Arc::clone(name));
        Finished::new(&self.reaper, async move {
            let Change { script, keys, args, publishes } = change;
            let call = |last_ms: i64| {
                let keys_and_args = keys.iter().cloned().map(Arg::Text).chain(args.iter().cloned());
                let mut words: Vec<Arg> = keys_and_args.chain([Arg::Int(last_ms)]).collect();
                if publishes {
                    words.extend([engine.topology.publish(), name.channel.clone()].map(Arg::Text));
                }
                Call { script, keys: keys.len(), words }
            };
            in_time(&engine, &name, call, Ok, too_late).await.map_err(|error| error.about(&name.as_written))
        })
        .await
    }

    /// [`Self::change`] for a script that replies 1 (done) or 0 (nothing was changed).
    pub(crate) async fn change_if(self: &Arc<Self>, name: &Arc<LockName>, change: Change) -> Result<bool> {
        let script = change.script;
        match self.change(name, change).await? {
            Reply::Int(done @ 0..=1) => Ok(done == 1),
            odd => Err(Error::odd_reply(script.name, &odd).about(&name.as_written)),
        }
    }
}

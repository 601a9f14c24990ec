//! Commands that must take effect exactly once, although no hold makes them idempotent: acquires and releases of a
//! semaphore, counts down, and arrivals at a barrier.
//!
//! A *token* is a Redis key (`lua/common/once.lua`). A client uses it for one command at a time. Each use has a higher
//! *sequence number*.
//!
//! 1. **Send.** [`Once::send`] sends the command with the token and its sequence number. The script stores the number
//!    and the reply under the token for [`Once::span`]. A repeat gets the stored reply.
//! 2. **Doubt.** If a copy gets no answer, it may have run, or may still run ([`Once::doubted`]).
//! 3. **Finish or undo.** If the caller gets an error in doubt, [`Once::finish`] repeats the command in the background.
//!    For an acquire or an arrival it sends the undo instead, with the same token and sequence number.
//! 4. **Settle.** When the outcome is known, [`Once::settle`] frees the token for the next command.
//!
//! A token may be used again although a late copy of the earlier command may still arrive: the copy has a lower
//! sequence number, so it does nothing. If the outcome stays unknown, the client does not use the token again.
//!
//! For each name, Redis stores at most one token for each such command that the client had in flight at once. Java
//! clients do not see tokens.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Engine;
use super::clock::{Refusals, harmless_from};
use super::replies::too_late;
use super::sync::Mutex;
use crate::config::millis;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::topology::ServerClock;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};
use crate::world::Moment;

/// The tokens of a client, as numbers: the free tokens, and the number of all tokens.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<(Vec<u64>, u64)>);

impl Lanes {
    fn take(&self) -> u64 {
        let mut lanes = self.0.lock();
        if let Some(lane) = lanes.0.pop() {
            return lane;
        }
        lanes.1 += 1;
        lanes.1
    }
}

/// A command that must take effect exactly once.
pub(crate) struct Command {
    pub(crate) script: &'static Script,
    /// The keys that follow the name's key and the token.
    pub(crate) keys: Vec<Bytes>,
    pub(crate) args: Vec<Arg>,
}

impl Command {
    pub(crate) fn new(script: &'static Script, args: impl IntoIterator<Item = Arg>) -> Self {
        Self { script, keys: Vec::new(), args: args.into_iter().collect() }
    }
}

/// One use of a token: for one command, and for its undo. See the [module](self).
pub(crate) struct Once {
    engine: Arc<Engine>,
    name: Arc<LockName>,
    token: Bytes,
    lane: u64,
    /// Sequence number of this use.
    number: u64,
    /// Repeats sent before this moment are recognised.
    until: Moment,
    /// True if an unanswered copy may have run, or may still run.
    pub(crate) doubted: bool,
}

impl Once {
    pub(crate) fn new(engine: &Arc<Engine>, name: &Arc<LockName>) -> Self {
        let lane = engine.lanes.take();
        let token = name.token(&engine.id, lane);
        let number = engine.hold_number();
        let once = Self {
            engine: Arc::clone(engine),
            name: Arc::clone(name),
            token,
            lane,
            number,
            until: engine.now(),
            doubted: false,
        };
        // `copies`: the time after a send in which the copy may run. The token must exist until the copy that was sent
        // at `until` can no longer run. The second `copies` is a reserve: a copy that was refused as too late is sent
        // again without a check of `until`.
        let timeout = engine.options.command_timeout;
        let copies = harmless_from(engine.now(), timeout).since(engine.now());
        let until = engine.now() + once.span().saturating_sub(copies * 2);
        Self { until, ..once }
    }

    /// Time to live of the token in Redis.
    fn span(&self) -> Duration {
        let options = &self.engine.options;
        self.engine.patience() + options.command_timeout.saturating_mul(3) + Duration::from_secs(1)
    }

    /// Sends a command with this token, and repeats it until it is answered, for at most `patience`.
    ///
    /// Keys: the name's key, the token, and the command's keys. Arguments: the sequence number, the time to live of the
    /// token, the last moment, the command's arguments, the publish command, and the channel.
    pub(crate) async fn send(&mut self, command: &Command, patience: Duration) -> Result<Reply> {
        let Self { engine, name, .. } = self;
        let (engine, name) = (Arc::clone(engine), Arc::clone(name));
        let until = self.until.min(engine.now() + patience);
        let (mut failures, mut refusals) = (0, Refusals::default());
        let begin = [Arg::Int(i64::try_from(self.number).unwrap_or(i64::MAX)), Arg::Int(millis(self.span()))];
        loop {
            let sent = engine.now();
            let call = |clock: &ServerClock| {
                let mut words = vec![Arg::Text(name.key.clone()), Arg::Text(self.token.clone())];
                words.extend(command.keys.iter().cloned().map(Arg::Text));
                let keys = words.len();
                words.extend(begin.iter().cloned());
                words.push(Arg::Int(clock.last(sent, engine.options.command_timeout)));
                words.extend(command.args.iter().cloned());
                words.extend([engine.topology.publish(), name.channel.clone()].map(Arg::Text));
                Call { script: command.script, keys, words }
            };
            let fault = match engine.topology.run_timed(&name, call).await {
                Ok(answered) => match too_late(&answered.reply) {
                    Some(at) => {
                        refusals.add(&answered.clock, at, engine.now()).map_err(|error| self.known(error))?;
                        continue;
                    }
                    None => return Ok(answered.reply),
                },
                Err(fault) => fault,
            };
            self.doubted |= fault.in_doubt();
            let error = Error::of_fault(&fault, &name.as_written);
            let pause = engine.pause(failures);
            if !error.is_retryable() || engine.now() + pause >= until {
                return Err(self.known(error));
            }
            failures += 1;
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns the error to report, from the error of the last copy. If an earlier copy may have run, the outcome is
    /// unknown, whatever the last copy's error says.
    fn known(&self, error: Error) -> Error {
        if !self.doubted || error.outcome_unknown() {
            return error;
        }
        Error::connection(format!("an earlier copy of the command may have run; last error: {error}"), true, None)
    }

    /// Sends a command while no caller waits. Repeats it until it is answered. Gives up at `until`, because later
    /// repeats would not be recognised, and logs a warning.
    pub(crate) async fn finish(mut self, command: Command) {
        while self.engine.now() < self.until {
            match self.send(&command, Duration::MAX).await {
                Ok(_) => return self.settle(),
                Err(error) => {
                    tracing::debug!(%error, script = command.script.name, "a command without a caller failed");
                }
            }
            let pause = self.engine.pause(1);
            tokio::time::sleep(pause).await;
        }
        let (name, script) = (&self.name.as_written, command.script.name);
        tracing::warn!(lock.name = %name, script, "gave up a command that was in doubt: it may have counted, or not");
    }

    /// Frees the token for other commands. Called when the outcome is known.
    pub(crate) fn settle(self) {
        self.engine.lanes.0.lock().0.push(self.lane);
    }
}

/// Runs a command exactly once, and returns its reply. If the outcome is unknown after `patience`, returns the error and
/// finishes `undo` in the background; without an undo, the command itself.
pub(crate) async fn exactly_once(
    engine: &Arc<Engine>,
    name: &Arc<LockName>,
    command: Command,
    undo: Option<Command>,
    patience: Duration,
) -> Result<i64> {
    let mut once = Once::new(engine, name);
    let replied = match once.send(&command, patience).await {
        Ok(reply) => first_reply(&reply).ok_or_else(|| Error::odd_reply(command.script.name, &reply)),
        Err(error) => Err(error),
    };
    if replied.is_err() && once.doubted {
        engine.reaper.finish(Box::pin(once.finish(undo.unwrap_or(command))));
    } else {
        once.settle();
    }
    replied.map_err(|error| error.about(&name.as_written))
}

/// Reads the reply, or the stored reply if an earlier copy ran.
fn first_reply(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(number) => Some(*number),
        Reply::List(parts) => match parts.as_slice() {
            [Reply::Text(again), Reply::Text(number)] if again == "again" => {
                std::str::from_utf8(number).ok()?.parse().ok()
            }
            _ => None,
        },
        _ => None,
    }
}

//! A batch: one command for several calls, and the outcome of each.

use std::sync::atomic::Ordering;

use super::Outcome;
use super::queue::{Core, Queued};
use crate::error::passing::{Cause, Passing};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};

/// Bytes of text arguments that add 1 to [`work`]: a script takes longer for a longer list of holds.
const BYTES: usize = 512;

impl Core {
    /// Sends a batch as one command, and passes the outcomes on.
    pub(super) async fn run(&self, batch: Vec<Queued>) {
        if batch.len() == 1 || self.refused.load(Ordering::Relaxed) {
            self.run_singly(batch).await;
            return;
        }
        let Some(many) = batch.first().map(|first| first.many) else { return };
        let outcome = self.inner.run(together(many, &batch, self.undeclared.is_none())).await;
        match outcome {
            Ok(Reply::List(replies)) if replies.len() == batch.len() => self.answer(batch, replies).await,
            // No step ran. After CROSSSLOT, this server gets no more batches. NOPERM may concern one key or command.
            Err(fault)
                if fault.kind == FaultKind::Refused
                    && ["CROSSSLOT", "NOPERM"].iter().any(|code| fault.message.starts_with(code)) =>
            {
                if fault.message.starts_with("CROSSSLOT") {
                    self.refused.store(true, Ordering::Relaxed);
                }
                self.run_singly(batch).await;
            }
            Err(fault)
                if let Some(undeclared) = &self.undeclared
                    && matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere) =>
            {
                // Refused before any step ran, perhaps because the command declares no keys.
                if self.run_singly(batch).await > 0 && !passes(&fault) {
                    undeclared.note_needless_refusal();
                }
            }
            outcome => {
                let fault = outcome
                    .err()
                    .unwrap_or_else(|| Fault::new(FaultKind::Lost, format!("ERR unexpected reply of {}", many.name)));
                for queued in batch {
                    let _ = queued.answer.send(Err(fault.clone()));
                }
            }
        }
    }

    /// Passes the replies of a batch's steps on to their callers. Without declared keys, the server refuses a
    /// step whose key has moved or is not accessible. The refused step is sent again alone, with declared keys. The
    /// server then runs it, or names the server that has the key.
    async fn answer(&self, batch: Vec<Queued>, replies: Vec<Reply>) {
        let mut elsewhere = Vec::new();
        for (queued, reply) in batch.into_iter().zip(replies) {
            match (outcome_of_step(reply), &self.undeclared) {
                (Err(fault), Some(undeclared)) if undeclared.is_elsewhere(&fault.message) => elsewhere.push(queued),
                (outcome, undeclared) => {
                    if let (Ok(_), Some(undeclared)) = (&outcome, undeclared) {
                        undeclared.worked();
                    }
                    // This fails if the caller is gone.
                    let _ = queued.answer.send(outcome);
                }
            }
        }
        if elsewhere.is_empty() {
            return;
        }
        let were_here = self.run_singly(elsewhere).await;
        if let Some(undeclared) = self.undeclared.as_ref().filter(|_| were_here > 0) {
            undeclared.note_needless_refusal();
        }
    }

    /// Sends each call alone. Returns how many calls the server carried out. Calls whose callers are gone are not sent:
    /// their callers have reported them, and expect no copy later than a command timeout after that.
    async fn run_singly(&self, batch: Vec<Queued>) -> usize {
        let all = batch.into_iter().filter(|queued| !queued.answer.is_closed()).map(|queued| async move {
            let outcome = self.inner.run(queued.call).await;
            let is_done = outcome.is_ok();
            let _ = queued.answer.send(outcome);
            is_done
        });
        futures::future::join_all(all).await.into_iter().filter(|is_done| *is_done).count()
    }
}

/// True for a temporary refusal that does not concern the keys: the server has no room, or accepts no writes or no
/// commands.
fn passes(fault: &Fault) -> bool {
    Passing::of(&fault.message).is_some_and(|row| row.cause != Cause::Slot)
}

/// Work of one call for the server. A short call of the reentrant lock counts as 1.
pub(super) fn work(call: &Call) -> usize {
    let bytes = call.words.iter().map(|word| if let Arg::Text(text) = word { text.len() } else { 0 });
    call.script.work + bytes.sum::<usize>() / BYTES
}

/// Builds one call that runs all of `batch`. If `declared`, the call declares its keys.
fn together(many: &'static Script, batch: &[Queued], declared: bool) -> Call {
    let keys = if declared { batch.iter().map(|queued| queued.call.keys).sum() } else { 0 };
    let all: usize = batch.iter().map(|queued| queued.call.words.len() + 1).sum();
    let mut words = Vec::with_capacity(all);
    for Queued { call, .. } in batch.iter().filter(|_| declared) {
        words.extend(call.words[..call.keys].iter().cloned());
    }
    for Queued { call, .. } in batch {
        words.push(Arg::Int(shape(call)));
        words.extend(call.words[if declared { call.keys } else { 0 }..].iter().cloned());
    }
    Call { script: many, keys, words }
}

/// True if [`shape`] can describe the call.
pub(super) const fn has_shape(call: &Call) -> bool {
    call.keys < 100 && call.words.len() - call.keys < 100
}

/// Describes a step to `lua/common/many`: its script, and its numbers of keys and arguments.
fn shape(call: &Call) -> i64 {
    let number = call.script.many.map_or(0, |(_, number)| number);
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let (keys, args) = (count(call.keys), count(call.words.len() - call.keys));
    debug_assert!(has_shape(call), "{}", call.script.name);
    number * 10_000 + keys * 100 + args
}

/// Converts a step's entry in the batch's reply. A pair of `!` and a text is an error.
fn outcome_of_step(reply: Reply) -> Outcome {
    match reply {
        Reply::List(parts) => match parts.as_slice() {
            [Reply::Text(mark), Reply::Text(text)] if mark == "!" => {
                Err(Fault::new(FaultKind::Refused, String::from_utf8_lossy(text)))
            }
            _ => Ok(Reply::List(parts)),
        },
        reply => Ok(reply),
    }
}

//! Acquires several locks at one server with one command: all or none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::undo::Undo;
use crate::config::millis;
use crate::engine::Engine;
use crate::engine::hold::{Grant, Hold, Target, valid_until};
use crate::engine::metrics;
use crate::engine::protocol::Protocol;
use crate::engine::replies::is_held;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::owner::Owner;
use crate::runtime::reaper::Finished;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};
use crate::world::Moment;

static ALL: Script = Script::new("multi/acquire", include_str!("../../../lua/multi/acquire.lua")).gaining(is_held);

pub(crate) enum Batch {
    Held(Vec<Grant>),
    /// No lock was acquired. Contains the index of the first lock that has a holder.
    Busy(usize),
}

/// Tries once to acquire all locks of `protocols`, which must have distinct names. The owner must hold none of them,
/// and no other task may know the owner. The attempt is completed even if the caller is dropped.
///
/// # Errors
///
/// [`Error::moved`] if the names live at different servers, or moved before the server answered.
pub(crate) fn batch(
    engine: &Arc<Engine>,
    protocols: Vec<Arc<dyn Protocol>>,
    owner: Owner,
    lease: Option<Duration>,
) -> Finished<Result<Batch>> {
    let engine = Arc::clone(engine);
    let reaper = engine.reaper.clone();
    Finished::new(&reaper, async move {
        engine.check_open()?;
        let span = lease.unwrap_or(engine.options.watchdog);
        let mut words = Vec::with_capacity(protocols.len() + 2);
        words.extend(protocols.iter().map(|protocol| Arg::Text(protocol.name().key.clone())));
        words.extend([Arg::Text(owner.bytes()), Arg::Int(millis(span))]);
        let Some(first) = protocols.first() else { return Ok(Batch::Held(Vec::new())) };
        let name = Arc::clone(first.name());
        let names: Vec<Arc<LockName>> = protocols.iter().map(|protocol| Arc::clone(protocol.name())).collect();
        let placements = || names.iter().map(|name| engine.topology.placement(name)).collect::<Vec<_>>();
        let before = placements();
        if before.iter().any(|placement| *placement != before[0]) {
            return Err(Error::moved());
        }
        let call = Call { script: &ALL, keys: protocols.len(), words };
        let targets: Vec<Arc<Target>> =
            protocols.into_iter().map(|protocol| Target::fresh(&engine, Hold::new(protocol, owner.clone()))).collect();
        let undo = || targets.iter().for_each(|target| drop(Undo::new(target, true).leased(lease)));
        let sent = engine.now();
        let (reply, asked_at) = engine.topology.run_placed(&name, call).await.map_err(|fault| {
            if fault.in_doubt() {
                undo();
            }
            Error::of_fault(&fault, &name.as_written)
        })?;
        if placements().iter().any(|placement| *placement != asked_at) {
            // A name may have moved away from the server before the answer, so the answer does not count.
            undo();
            return Err(Error::moved());
        }
        match refusal(&reply, &targets) {
            Some(Refusal::Busy(at)) => Ok(Batch::Busy(at)),
            Some(Refusal::Failed(error)) => Err(error),
            Some(Refusal::Odd) => {
                // None of our scripts gives such a reply, so the command may have run.
                undo();
                Err(Error::odd_reply(ALL.name, &reply))
            }
            None => granted(&engine, &targets, lease, sent).map(Batch::Held),
        }
    })
}

enum Refusal {
    Busy(usize),
    Failed(Error),
    Odd,
}

/// Reads the reply. Returns `None` if all locks were acquired.
fn refusal(reply: &Reply, targets: &[Arc<Target>]) -> Option<Refusal> {
    let parts = match reply {
        Reply::Nil => return None,
        Reply::List(parts) => parts.as_slice(),
        _ => return Some(Refusal::Odd),
    };
    let at = |n: &i64| usize::try_from(*n - 1).ok().filter(|at| *at < targets.len());
    let refused = |at: usize, text: &Bytes| {
        let fault = Fault::new(FaultKind::Refused, String::from_utf8_lossy(text));
        Refusal::Failed(Error::of_fault(&fault, &targets[at].hold.name().as_written))
    };
    let read = match parts {
        [Reply::Int(n), Reply::Int(_)] => at(n).map(Refusal::Busy),
        [Reply::Int(n), Reply::Text(text)] => at(n).map(|at| refused(at, text)),
        _ => None,
    };
    Some(read.unwrap_or(Refusal::Odd))
}

/// Enters the holds of an acquired batch into their books (`engine/ledger.rs`). The command was sent at `sent`.
fn granted(engine: &Arc<Engine>, targets: &[Arc<Target>], lease: Option<Duration>, sent: Moment) -> Result<Vec<Grant>> {
    let until = valid_until(sent, lease.unwrap_or(engine.options.watchdog));
    let grants: Vec<Grant> = targets.iter().map(|target| target.granted(lease, sent, until, false)).collect();
    // A shutdown ends only the holds that it finds in the table. Later holds are released here, by the drop of
    // `grants`.
    engine.check_open()?;
    if engine.now() >= until {
        // The grants arrived after the end of their lease. This drop releases the holds.
        drop(grants);
        return Err(Error::too_late());
    }
    for grant in &grants {
        metrics::acquired(grant.hold.protocol.flavour(), || engine.now().since(sent));
    }
    Ok(grants)
}

//! Forced release of a lock, whoever holds it.

use std::sync::Arc;

use super::aftermath::{notify_waiters, warn_unannounced};
use super::send::in_time;
use crate::engine::Engine;
use crate::engine::ledger::Entry as _;
use crate::engine::protocol::{Forced, MUST_CONFIRM, Protocol};
use crate::error::Result;
use crate::runtime::reaper::Finished;

/// Releases the lock, and notifies this client's guards.
pub(crate) async fn force(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>) -> Result<bool> {
    engine.check(protocol.name())?;
    let (engine, protocol) = (Arc::clone(engine), Arc::clone(protocol));
    let reaper = engine.reaper.clone();
    Finished::new(&reaper, async move {
        // Collected before the command, because a waiter may acquire the lock before the reply arrives. The list
        // includes a hold that is being handed over between two guards.
        let mut holds = engine.holds.collect(|book| book.count() > 0);
        holds.retain(|hold| hold.name().key == protocol.name().key);
        let tenures: Vec<u32> = holds.iter().map(|hold| hold.book().tenure()).collect();
        let too_late = |forced: &Forced| match forced {
            Forced::TooLate(at) => Some(*at),
            _ => None,
        };
        let call = |last_ms| protocol.force(last_ms, engine.topology.publish());
        let forced = in_time(&engine, protocol.name(), call, |reply| protocol.forced(&reply), too_late).await?;
        if forced == Forced::Other {
            return Ok(false);
        }
        for (hold, tenure) in holds.iter().zip(tenures) {
            engine.refuted(hold, tenure);
        }
        notify_waiters(&engine, &protocol, 0);
        let passed = match forced {
            Forced::Freed(passed) | Forced::Free(passed) => passed,
            _ => MUST_CONFIRM,
        };
        if passed > 0 {
            engine.queues.check_passed(&protocol, passed, engine.now());
        }
        if let Forced::Unannounced(reason) = &forced {
            warn_unannounced(&engine, protocol.name(), reason);
        }
        Ok(matches!(forced, Forced::Freed(_) | Forced::Unannounced(_)))
    })
    .await
}

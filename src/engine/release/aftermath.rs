//! Updates the table of holds, guards and waiters when a hold has ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::doubt::look_again;
use crate::engine::Engine;
use crate::engine::hold::Hold;
use crate::engine::ledger::{End, Entry as _};
use crate::engine::protocol::{Protocol, Sharing};
use crate::engine::registry::Courtesy;
use crate::names::LockName;

/// Longest time that a lock is left free for clients that poll.
const LEFT_FREE: Duration = Duration::from_millis(1);

impl dyn Protocol {
    /// How this process yields to other processes after a release.
    pub(in crate::engine) fn courtesy(&self) -> Courtesy {
        if self.nature().sharing != Sharing::Alone || self.queue().is_some() {
            return Courtesy::None;
        }
        if self.other().is_some() {
            return Courtesy::ByWindow;
        }
        match self.backoff() {
            Some(backoff) => Courtesy::ByPolling(backoff.pause(0, 0.0).min(LEFT_FREE)),
            None => Courtesy::ByMessage,
        }
    }
}

/// Records that the lock is free, and wakes this process's waiters. `receivers`: number of clients that received the
/// release's message; 0 if unknown.
pub(super) fn lock_is_free(engine: &Arc<Engine>, hold: &Arc<Hold>, receivers: u32) {
    owner_has_nothing(engine, hold);
    notify_waiters(engine, &hold.protocol, receivers);
}

/// Records that this owner's holds are gone from the server: the entry leaves the table, and acquires in doubt are
/// checked again.
pub(super) fn owner_has_nothing(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if !hold.book().is_idle() {
        // The hold is gone from the server, but guards still rely on it and must be notified.
        engine.lose(hold, End::Gone);
    }
    engine.holds.released(&hold.key(), hold);
    let doubts = hold.book().doubts();
    for number in doubts {
        look_again(engine, hold, number, &Bytes::new());
    }
}

/// Wakes this process's waiters for a lock that may be free, unless a message will wake them. `receivers`: see
/// [`lock_is_free`].
pub(super) fn notify_waiters(engine: &Engine, protocol: &Arc<dyn Protocol>, receivers: u32) {
    engine.registry.released(protocol.name(), receivers, protocol.courtesy());
    if let Some(other) = protocol.other() {
        engine.registry.released(other, receivers, Courtesy::None);
    }
}

pub(super) fn warn_unannounced(engine: &Engine, name: &LockName, reason: &str) {
    let Some(left_out) = engine.warnings.due("unannounced", reason) else { return };
    let channel = String::from_utf8_lossy(&name.channel);
    tracing::warn!(lock.name = %name.as_written, reason, %channel, left_out, "released, but waiters could not be notified: they poll; \
                    where the reason is NOPERM, grant this login the channel");
}

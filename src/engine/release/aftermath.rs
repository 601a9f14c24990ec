//! Effects of a hold's end on the table, on guards and on waiters.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::doubt::look_again;
use crate::engine::Engine;
use crate::engine::hold::Hold;
use crate::engine::ledger::{End, Entry as _};
use crate::engine::protocol::Protocol;
use crate::engine::registry::Courtesy;
use crate::names::LockName;

/// Most time that a lock is left free for clients that poll.
const LEFT_FREE: Duration = Duration::from_millis(1);

impl dyn Protocol {
    /// How other processes are let first after a release.
    pub(in crate::engine) fn courtesy(&self) -> Courtesy {
        if self.nature().shared || self.queue().is_some() {
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

/// Books that the lock is free. `receivers`: number of clients that received the message; 0 if unknown.
pub(super) fn lock_is_free(engine: &Arc<Engine>, hold: &Arc<Hold>, receivers: u32) {
    nothing_is_left(engine, hold);
    notify_waiters(engine, &hold.protocol, receivers);
}

/// Books that the server has nothing left of this hold.
pub(super) fn nothing_is_left(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if !hold.book().is_idle() {
        // The hold was removed elsewhere as a whole. Guards that still rely on it must be notified.
        engine.lose(hold, End::Gone);
    }
    engine.holds.released(&hold.key(), hold);
    let doubts = hold.book().doubts();
    for number in doubts {
        look_again(engine, hold, number, &Bytes::new());
    }
}

/// Wakes this process's waiters for a lock that may be free, unless a message will wake them. `receivers`: number of
/// clients that received the message; 0 if unknown.
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

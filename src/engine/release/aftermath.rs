//! What the end of a hold means for the table, for the guards and for those who wait.

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

/// For how long a lock is left free at the most for those who poll for it.
const LEFT_FREE: Duration = Duration::from_millis(1);

/// The lock is free. `receivers`: how many clients received the message; 0 where that is not known.
pub(super) fn lock_is_free(engine: &Arc<Engine>, hold: &Arc<Hold>, receivers: u32) {
    nothing_is_left(engine, hold);
    notify_waiters(engine, &hold.protocol, receivers);
}

/// The server has nothing for this hold any more.
pub(super) fn nothing_is_left(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if !hold.book().is_idle() {
        // Another one freed it with all that is left of it; whoever still relies on it must know.
        engine.lose(hold, End::Gone);
    }
    engine.holds.released(&hold.key(), hold);
    let doubts = hold.book().doubts();
    for number in doubts {
        look_again(engine, hold, number, &Bytes::new());
    }
}

/// Has the waiters of this process ask for a lock that may be free, unless a message will have them do so. `receivers`: how many
/// clients received it; 0 where that is not known.
pub(super) fn notify_waiters(engine: &Engine, protocol: &Arc<dyn Protocol>, receivers: u32) {
    let courtesy = match protocol.backoff() {
        _ if protocol.nature().shared || protocol.queue().is_some() => Courtesy::None,
        Some(backoff) => Courtesy::ByPolling(backoff.pause(0, 0.0).min(LEFT_FREE)),
        None => Courtesy::ByMessage,
    };
    engine.registry.released(protocol.name(), receivers, courtesy);
    if let Some(other) = protocol.other() {
        engine.registry.released(other, receivers, Courtesy::None);
    }
}

/// Warns that the server refused to publish a release.
pub(super) fn warn_unannounced(engine: &Engine, name: &LockName, reason: &str) {
    let Some(left_out) = engine.warnings.due("unannounced", reason) else { return };
    let channel = String::from_utf8_lossy(&name.channel);
    tracing::warn!(lock.name = %name.as_written, reason, %channel, left_out, "released, but waiters could not be told: they poll; \
                    where the reason is NOPERM, grant this login the channel");
}

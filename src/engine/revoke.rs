//! A request to the holder of a lock to finish. Guards of this client hear the request at once. A guard of another
//! client hears it at its next renewal (`renewal/settle.rs`).

use std::sync::Arc;

use super::Engine;
use super::change::Change;
use super::hold::Hold;
use super::ledger::Entry as _;
use super::protocol::Protocol;
use crate::error::{Error, Result};
use crate::transport::script::Script;

static REVOKE: Script = Script::new(
    "common/revoke",
    concat!(include_str!("../../lua/common/holds.lua"), include_str!("../../lua/common/revoke.lua")),
);

/// Asks the lock's holder to finish. False if nobody can be asked.
pub(crate) async fn revoke(engine: &Arc<Engine>, protocol: &Arc<dyn Protocol>) -> Result<bool> {
    let name = protocol.name();
    if !protocol.nature().is_revocable() {
        return Err(unsupported(&name.as_written, protocol.flavour()));
    }
    // Collected before the command, because another hold may begin before the reply arrives.
    let mut holds = engine.holds.collect(|book| !book.is_idle());
    holds.retain(|hold| hold.name() == name);
    let tenures: Vec<u32> = holds.iter().map(|hold| hold.book().tenure()).collect();
    let change = Change { script: &REVOKE, keys: vec![name.key.clone()], args: Vec::new(), publishes: false };
    let is_asked = engine.change_if(name, change).await?;
    if is_asked {
        holds.iter().zip(tenures).for_each(|(hold, tenure)| hold.revoke(tenure));
    }
    Ok(is_asked)
}

/// The error for a lock whose holder cannot be asked. `kind`: the lock's flavour, or `a group`.
pub(crate) fn unsupported(name: &str, kind: &str) -> Error {
    let what = format!(
        "the holder of the lock {name:?} ({kind}) cannot be asked to finish: revoke works for reentrant, fair, fenced, \
         spin and write locks"
    );
    Error::Unsupported { what }
}

impl Hold {
    /// Notes that the holder of this tenure was asked to finish, and wakes its guards' watchers.
    pub(crate) fn revoke(&self, tenure: u32) {
        {
            let mut book = self.book();
            if book.tenure() != tenure || book.is_idle() || book.is_revoked() {
                return;
            }
            book.revoke();
        }
        let name = &self.name().as_written;
        tracing::debug!(lock.name = %name, owner = self.owner.text(), "the holder was asked to finish");
        self.changed.notify_waiters();
    }
}

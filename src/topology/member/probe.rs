//! Asking a server whether it answers.

use std::convert::Infallible;
use std::time::Duration;

use super::Member;
use crate::transport::Call;
use crate::transport::script::Script;
use crate::world::World;

/// How often a server is asked whether it answers while calls wait for their turn to be sent, and after how long at the most another caller
/// does so when the first has its answer.
const PROBED: Duration = Duration::from_millis(100);
const LOOKED_AFTER: Duration = Duration::from_secs(3);

static PING: Script = Script::bare("topology/ping", "PING");

impl Member {
    /// Asks the server from time to time whether it answers, for callers who wait behind what replicas have yet to acknowledge. One of
    /// them does.
    pub(super) async fn probe(&self, world: &dyn World) -> Infallible {
        let mut pause = PROBED;
        let _probing = loop {
            tokio::time::sleep(pause).await;
            match self.probing.try_lock() {
                Ok(probing) => break probing,
                Err(_) => pause = LOOKED_AFTER.min(2 * pause),
            }
        };
        loop {
            // What it comes to is noted.
            let _ =
                self.noted(world, false, self.transport.run(Call { script: &PING, keys: 0, words: Vec::new() })).await;
            tokio::time::sleep(PROBED).await;
        }
    }
}

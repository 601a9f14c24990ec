//! Asking a server whether it answers.

use std::convert::Infallible;
use std::time::Duration;

use super::Member;
use crate::transport::Call;
use crate::world::World;

/// How often a server is asked while calls wait for their turn to be sent.
const PROBED: Duration = Duration::from_millis(100);

/// After so long at the most one of the other callers goes on asking, once the one who did has its turn.
const TAKEN_OVER: Duration = Duration::from_secs(3);

impl Member {
    /// Asks the server from time to time whether it answers, for callers who wait behind what replicas have yet to acknowledge. One of
    /// them does.
    pub(super) async fn probe(&self, world: &dyn World) -> Infallible {
        let mut pause = PROBED;
        let _probing = loop {
            tokio::time::sleep(pause).await;
            match self.probing.try_lock() {
                Ok(probing) => break probing,
                // Thousands may wait: they wake up seldom.
                Err(_) => pause = TAKEN_OVER.min(2 * pause),
            }
        };
        loop {
            // What it comes to is noted.
            let _ = self.run_alone(world, Call::ping()).await;
            tokio::time::sleep(PROBED).await;
        }
    }
}

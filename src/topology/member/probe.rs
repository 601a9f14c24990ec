//! Probing of a server while calls wait to be sent.

use std::convert::Infallible;
use std::time::Duration;

use super::Member;
use crate::transport::Call;
use crate::world::World;

/// Interval of probes while calls wait to be sent.
const PROBED: Duration = Duration::from_millis(100);

/// Once the call of the probing task has been sent, another task takes over within this time.
const TAKEN_OVER: Duration = Duration::from_secs(3);

impl Member {
    /// Probes the server regularly while calls are queued behind calls that replicas have not acknowledged yet. Only
    /// one task probes at a time.
    pub(super) async fn probe(&self, world: &dyn World) -> Infallible {
        let mut pause = PROBED;
        let _probing = loop {
            tokio::time::sleep(pause).await;
            match self.probing.try_lock() {
                Ok(probing) => break probing,
                // Thousands of tasks may wait, so each wakes up seldom.
                Err(_) => pause = TAKEN_OVER.min(2 * pause),
            }
        };
        loop {
            // `run_alone` notes whether the reply arrives.
            let _ = self.run_alone(world, Call::ping()).await;
            tokio::time::sleep(PROBED).await;
        }
    }
}

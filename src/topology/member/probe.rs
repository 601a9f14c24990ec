//! Probing of a server while calls wait to be sent.

use std::convert::Infallible;
use std::time::Duration;

use super::Member;
use crate::transport::Call;
use crate::world::World;

/// Interval of probes while calls wait to be sent.
const PROBED: Duration = Duration::from_millis(100);

/// Longest time after which another caller takes over probing, once the probing caller's call has been sent.
const TAKEN_OVER: Duration = Duration::from_secs(3);

impl Member {
    /// Probes the server regularly, for callers that wait behind calls which replicas have not acknowledged yet. Only
    /// one of these callers probes at a time.
    pub(super) async fn probe(&self, world: &dyn World) -> Infallible {
        let mut pause = PROBED;
        let _probing = loop {
            tokio::time::sleep(pause).await;
            match self.probing.try_lock() {
                Ok(probing) => break probing,
                // Thousands of callers may wait, so each wakes up seldom.
                Err(_) => pause = TAKEN_OVER.min(2 * pause),
            }
        };
        loop {
            // `run_alone` notes whether the reply comes.
            let _ = self.run_alone(world, Call::ping()).await;
            tokio::time::sleep(PROBED).await;
        }
    }
}

//! Waits for what servers do on their own.

use std::time::{Duration, Instant};

/// Longer than anything that servers do on their own takes on a busy machine. A sentinel that was frozen for two
/// seconds does nothing for another 30 s. An aborted failover is retried after twice the failover timeout.
pub(crate) const WITHIN: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(10);

/// Polls `probe` until it returns `Ok`.
///
/// # Panics
/// After [`WITHIN`], with the last error.
pub(crate) async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + WITHIN;
    loop {
        match probe().await {
            Ok(found) => return found,
            Err(missing) if Instant::now() > deadline => panic!("waited {WITHIN:?} for {what}: {missing}"),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

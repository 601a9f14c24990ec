//! Waiting for what servers do by themselves.

use std::time::{Duration, Instant};

/// Longer than anything that servers do by themselves takes on a busy machine. A sentinel that stood still for two seconds acts on
/// nothing for 30 s more, and an aborted failover is retried after twice its timeout.
pub(crate) const WITHIN: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(10);

/// Polls `probe` until it returns `Ok`. Panics with its last error after [`WITHIN`].
///
/// # Panics
/// After [`WITHIN`].
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

//! Waiting for what servers do by themselves.

use std::time::{Duration, Instant};

/// Longer than anything that servers do by themselves takes on a busy machine.
pub(crate) const WITHIN: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(10);

/// Polls until that is so; what is missing yet is told when it never is.
///
/// # Panics
/// After [`WITHIN`].
pub(crate) async fn until<T>(what: &str, probe: impl AsyncFnMut() -> Result<T, String>) -> T {
    until_within(WITHIN, what, probe).await
}

/// As [`until`], for what takes longer.
pub(crate) async fn until_within<T>(
    within: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + within;
    loop {
        match probe().await {
            Ok(found) => return found,
            Err(missing) if Instant::now() > deadline => panic!("waited {within:?} for {what}: {missing}"),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

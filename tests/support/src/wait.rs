//! Waits for events in tests.

use std::time::Duration;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a future.
///
/// # Panics
/// After 120 s.
pub async fn ends<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

/// Waits until a check is true.
///
/// # Panics
/// After 120 s.
pub async fn until(what: &str, check: impl AsyncFn() -> bool) {
    let happens = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    ends(what, happens).await;
}

//! Helpers of the semaphores' tests.

use distlock::{Client, Flavour, Semaphore};

use bed::Bed;

/// The start of the tokens' keys.
pub const TOKENS: &str = "distlock_once:";

/// Runs a test body. At the end only numbers are left, and tokens, which have an end.
pub async fn semaphores(body: impl AsyncFn(&Bed)) {
    let make = |client: &Client, name: &str| client.lock(Flavour::Reentrant, name);
    bed::run(make, async |bed: &Bed| {
        body(bed).await;
        for key in bed.admin.keys().await {
            assert!(!key.starts_with(TOKENS) || bed.admin.pttl(&key).await > 0, "{key} has no end");
            bed.admin.cmd::<()>(&["DEL", &key]).await;
        }
    })
    .await;
}

/// A semaphore of this name, with this number of permits.
pub async fn with(client: &Client, name: &str, n: u32) -> Semaphore {
    let semaphore = client.semaphore(name);
    assert!(semaphore.try_set_permits(n).await.unwrap());
    semaphore
}

pub async fn available(semaphore: &Semaphore) -> i64 {
    semaphore.available().await.unwrap()
}

//! Helpers of the permits' tests.

use distlock::{Client, Flavour, PermitCounts, PermitGuard, Permits};

use bed::{Bed, eventually};

/// Runs a test body. At the end no permit may be held, and only the numbers of permits are left, which have no end.
pub async fn permits(body: impl AsyncFn(&Bed)) {
    let make = |client: &Client, name: &str| client.lock(Flavour::Reentrant, name);
    bed::run(make, async |bed: &Bed| {
        body(bed).await;
        let held = async || bed.admin.keys().await.iter().any(|key| key.ends_with(":timeout"));
        eventually("no permit is held", async || !held().await).await;
        for key in bed.admin.keys().await {
            bed.admin.cmd::<()>(&["DEL", &key]).await;
        }
    })
    .await;
}

/// Permits of this name, with this number of permits.
pub async fn with(client: &Client, name: &str, n: u32) -> Permits {
    let permits = client.permits(name);
    assert!(permits.try_set_permits(n).await.unwrap());
    permits
}

/// The numbers of free and of held permits.
pub async fn counts(permits: &Permits) -> (i64, u64) {
    let PermitCounts { available, acquired, .. } = permits.counts().await.unwrap();
    (available, acquired)
}

pub async fn take(permits: &Permits, n: u32) -> PermitGuard {
    permits.try_acquire(n).await.unwrap().expect("free permits")
}

pub async fn is_busy(permits: &Permits, n: u32) -> bool {
    permits.try_acquire(n).await.unwrap().is_none()
}

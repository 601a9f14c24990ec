//! What the tests of the spin lock add to the bed: what was sent.

use std::collections::BTreeMap;

use distlock::{Client, Flavour};

use bed::Bed;

/// Runs a test body over the spin lock.
pub async fn spin(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Spin, name), body).await;
}

/// A client that has connected, when the server knows the scripts and has forgotten the counts.
pub async fn warm(bed: &Bed) -> Client {
    let client = bed.client().await;
    let lock = client.spin("warm");
    let guard = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    bed::idle(&client).await;
    bed.admin.reset_stats().await;
    client
}

/// The scripts that were run since then.
pub async fn scripts(bed: &Bed) -> u64 {
    let stats: BTreeMap<String, u64> = bed.admin.commandstats().await;
    ["eval", "evalsha"].iter().filter_map(|name| stats.get(*name)).sum()
}

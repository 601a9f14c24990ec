//! Helpers of the permits' tests.

use std::time::Duration;

use distlock::{Client, Flavour, PermitCounts, PermitGuard, Permits};
use tokio::task::JoinHandle;

use bed::{Bed, eventually};

/// Not a script of the crate. Adds held permits, whose leases end after these times.
const ADD: &str = "
local now = redis.call('time')
now = now[1] * 1000 + math.floor(now[2] / 1000)
for n, left in ipairs(ARGV) do redis.call('zadd', KEYS[1], now + left, string.format('%016d', n)) end
return #ARGV";

/// Not a script of the crate. Sets the leases of all held permits to this time.
const SET: &str = "
local now = redis.call('time')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local ids = redis.call('zrange', KEYS[1], 0, -1)
for _, id in ipairs(ids) do redis.call('zadd', KEYS[1], now + ARGV[1], id) end
return #ids";

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

/// Waits for permits. The task returns their guard.
pub fn waits(permits: &Permits, n: u32) -> JoinHandle<PermitGuard> {
    let permits = permits.clone();
    tokio::spawn(async move { permits.acquire(n).await.unwrap_or_else(|error| panic!("acquire: {error:?}")) })
}

/// Adds one held permit for each of these leases, as a process leaves them that dies. Nobody renews or releases them.
pub async fn abandon(bed: &Bed, name: &str, leases: &[Duration]) {
    run(bed, ADD, name, leases).await;
}

/// Sets the lease of every held permit of this name, from now.
pub async fn set_leases(bed: &Bed, name: &str, lease: Duration) {
    run(bed, SET, name, &[lease]).await;
}

async fn run(bed: &Bed, script: &str, name: &str, leases: &[Duration]) {
    let mut words = ["EVAL", script, "1"].map(str::to_owned).to_vec();
    words.push(format!("{{{name}}}:timeout"));
    words.extend(leases.iter().map(|lease| lease.as_millis().to_string()));
    let done: usize = bed.admin.cmd_bytes(&words).await;
    assert!(done > 0, "no permit of {name:?} is held");
}

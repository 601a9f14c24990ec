//! Clients that keep retrying, and waits that several tests share.

use std::time::Duration;

use distlock::{Builder, Client};
use distlock_support::Admin;

use bed::fault::brisk;
use bed::{Bed, PATIENCE, builder, eventually, ms, secs};

pub const HOUR: Duration = secs(3600);

/// A client whose commands time out soon and are retried for as long as a test waits. No lease ends during a test, and
/// only a message or a reconnect wakes a waiter.
pub fn stubborn(url: &str) -> Builder {
    brisk(url).watchdog(HOUR).retry_attempts(1_000).configure(|options| options.poll_cap = HOUR)
}

/// Like [`stubborn`], with a command timeout that is long enough on any machine.
pub fn patient(url: &str) -> Builder {
    builder(url).watchdog(HOUR).retry_attempts(1_000).configure(|options| {
        options.retry_delay = (ms(20), ms(100));
        options.poll_cap = HOUR;
    })
}

pub async fn heals(client: &Client) {
    eventually("the client can lock again", async || match client.reentrant("heals").try_lock().await {
        // The acquire returns `None` while the release of an earlier call is in flight.
        Ok(guard) => guard.is_some(),
        Err(error) => {
            assert!(error.is_retryable(), "{error:?}");
            false
        }
    })
    .await;
}

/// The number of connections that the server has accepted so far.
pub async fn accepted(admin: &Admin) -> u64 {
    let info: String = admin.cmd(&["INFO", "stats"]).await;
    let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    count.and_then(|count| count.trim().parse().ok()).expect("INFO has the count of connections")
}

/// Runs every script of the reentrant lock once, so that the server knows it.
pub async fn warm(bed: &Bed) {
    let client = bed.still_client().await;
    bed::fault::warm(&client).await;
    client.shutdown(PATIENCE).await.expect("shutdown of an idle client");
}

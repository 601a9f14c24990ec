//! Acquires of reentrant locks are dropped at random points.

use bed::dropped::{DROPS, drops, waiters_dropped_in_the_queue};
use bed::reentrant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_dropped_acquires_leave_no_keys() {
    reentrant(async |bed| {
        drops(bed, DROPS).await;
        waiters_dropped_in_the_queue(bed).await;
    })
    .await;
}

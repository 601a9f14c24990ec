//! Acquires of fair locks are dropped at random points.

use bed::dropped::{DROPS, drops, waiters_dropped_in_the_queue};
use bed::fair;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_dropped_acquires_leave_no_keys() {
    fair(async |bed| drops(bed, DROPS).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_dropped_in_queue_do_not_block_others() {
    fair(waiters_dropped_in_the_queue).await;
}

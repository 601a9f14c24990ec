//! Acquires of reentrant locks that are dropped at random points.

use bed::dropped::{DROPS, drops, waiters_dropped_in_the_queue};
use bed::reentrant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_acquires_dropped_at_random_points_leave_nothing() {
    reentrant(async |bed| drops(bed, DROPS).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_dropped_in_the_queue_hold_nobody_up() {
    reentrant(waiters_dropped_in_the_queue).await;
}

//! Acquires of fair locks that are dropped at random points.

use bed::dropped::{DROPS, drops, waiters_dropped_in_the_queue};
use bed::fair;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_acquires_of_fair_locks_dropped_at_random_points_leave_nothing() {
    fair(async |bed| drops(bed, DROPS).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_dropped_in_the_queue_of_a_fair_lock_hold_nobody_up() {
    fair(waiters_dropped_in_the_queue).await;
}

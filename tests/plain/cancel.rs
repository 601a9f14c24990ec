//! Acquires of plain locks are dropped at random points.

use bed::dropped::{DROPS, drops, waiters_dropped_in_the_queue};

use crate::rig::plain;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_at_random_points_leave_no_keys() {
    plain(async |bed| {
        drops(bed, DROPS / 2).await;
        waiters_dropped_in_the_queue(bed).await;
    })
    .await;
}

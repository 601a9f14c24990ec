//! Acquires of fenced locks are dropped at random points.

use bed::dropped::{DROPS, drops, waiters_dropped_in_the_queue};

use crate::rig::fenced;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_at_random_points_leave_only_the_counter() {
    fenced(async |bed| {
        drops(bed, DROPS / 4).await;
        // Every grant took one number, even if its acquire was dropped. Refused acquires took none.
        let lock = bed.client().await.fenced("c1");
        let last = lock.last_token().await.unwrap();
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.fencing_token().ok(), Some(last + 1));
        guard.unlock().await.unwrap();
        waiters_dropped_in_the_queue(bed).await;
    })
    .await;
}

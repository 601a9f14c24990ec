//! Every command of a session is lost, repeated, delayed and cut off.

use bed::reentrant;
use bed::session::{SPIN, in_every_way};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_change_no_hold_count() {
    reentrant(async |bed| in_every_way(bed, SPIN).await).await;
}

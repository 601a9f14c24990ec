//! Every command of a session is lost, repeated, delayed and cut off. `unusable.rs` tests the errors at a frozen or
//! dead server.

use bed::reentrant;
use bed::session::{STRIPED, in_every_way};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_change_no_hold_count() {
    reentrant(async |bed| in_every_way(bed, STRIPED).await).await;
}

//! Every command of a session, lost, repeated, delayed and cut. What a frozen or a dead server is told as: `unusable.rs`.

use bed::reentrant;
use bed::session::{STRIPED, in_every_way};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_lost_in_every_way_changes_no_count() {
    reentrant(async |bed| in_every_way(bed, STRIPED).await).await;
}

//! A client that has nothing to ask a server for, and holds a lock there.

use distlock::Flavour;
use distlock_support::{Cluster, ClusterOptions};
use tokio::time::Instant;

use crate::{end, lock, ms, secs};

/// A lock is granted that no replica hears of, and its primary is killed: who holds it, and does nothing meanwhile, is told soon after
/// the promotion, and not with the next renewal or the next look at the map.
#[tokio::test]
async fn who_holds_what_the_new_primary_does_not_know_is_told_though_he_asks_for_nothing() {
    let cluster = Cluster::start(ClusterOptions::default().require_full_coverage(false)).await;
    let one = bed::builder(&cluster.url()).command_timeout(secs(1)).connect().await.unwrap();
    lock(&one, Flavour::Reentrant, "known").lock().await.unwrap().unlock().await.unwrap();
    let primary = cluster.primary_of("quiet").await;
    let replica = cluster.replicas_of(primary).await[0];
    cluster.stop(replica).await;
    primary.admin().cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
    let guard = lock(&one, Flavour::Reentrant, "quiet").lock().await.unwrap();
    cluster.kill(primary).await;
    let killed = Instant::now();
    cluster.cont(replica);
    let promoted = killed + cluster.promotion(primary).await.took;
    guard.lost().await;
    let took = promoted.elapsed();
    println!("told {took:?} after the promotion");
    assert!(took < ms(800), "told {took:?} after the promotion");
    assert!(guard.unlock().await.is_err());
    end(one).await;
}

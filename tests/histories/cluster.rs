//! A cluster of three primaries with a replica each.

use std::time::Duration;

use distlock::Acks;
use distlock_support::{Cluster, ClusterOptions, Node};

use crate::check::{Failover, PROMOTED_AFTER};
use crate::resource::now;
use crate::run::{Outcome, Rules, Scene, rounds, run};
use crate::worker::{self, Way};
use crate::{How, TURN, ms, secs};

/// A primary that was asked to be none any more waits for 5 s, and then goes on: what it grants from then on may be lost.
const GIVEN_UP: Duration = secs(4);

struct Slots {
    cluster: Cluster,
    how: How,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_by_request_let_nobody_in_beside_another() {
    let Outcome { overlaps, lost, repeated, failed, slowest } = failovers(How::Asked, Acks::Redisson).await;
    if slowest >= GIVEN_UP {
        println!("SKIPPED: one took so long that its primary had gone on");
    } else {
        assert_eq!((overlaps.len(), lost, repeated), (0, 0, 0));
        assert!(!failed.keys().any(|line| line.contains(worker::EARLY)), "{failed:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_a_primary_is_killed_is_told_of_what_its_replica_did_not_know() {
    failovers(How::Killed, Acks::Redisson).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_a_primary_stops_and_goes_on_is_told_of_what_its_replica_did_not_know() {
    failovers(How::Stopped, Acks::Redisson).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_nobody_is_inside_with_another_when_primaries_are_replaced_by_request() {
    failovers(How::Asked, Acks::All).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_nobody_is_inside_with_another_when_primaries_are_killed() {
    failovers(How::Killed, Acks::AtLeast(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_nobody_is_inside_with_another_when_primaries_stop_and_go_on() {
    failovers(How::Stopped, Acks::All).await;
}

async fn failovers(how: How, acks: Acks) -> Outcome {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start(ClusterOptions::default().require_full_coverage(false)).await;
    run(
        &Slots { cluster, how },
        Rules::of(acks),
        rounds(if acks == Acks::Redisson { 3 } else { 2 }),
        &format!("cluster, {how:?}"),
    )
    .await
}

impl Scene for Slots {
    fn way(&self, _process: usize) -> Way {
        Way { url: self.cluster.url(), map: [].into(), names: "" }
    }

    /// Of the three primaries in turn. Before every other crash its replica is cut off for 0.4 s, so that there is something that it does
    /// not know.
    async fn failover(&self, round: usize) -> (Failover, Duration) {
        let primary = self.cluster.owner([0, 6_000, 12_000][round % 3]).await;
        let failed = self.fail_over(primary, round.is_multiple_of(2)).await;
        self.cluster.whole().await;
        failed
    }
}

impl Slots {
    async fn fail_over(&self, primary: &Node, behind: bool) -> (Failover, Duration) {
        let Self { cluster, how } = self;
        let slots = primary.view().await.myself().slots.clone();
        let replica = cluster.replicas_of(primary).await[0];
        let failover = |at, resumed| Failover { at, promoted: at + PROMOTED_AFTER, switched: None, resumed, slots };
        if *how == How::Asked {
            let at = now();
            let took = cluster.failover(replica).await.took;
            return (failover(at, None), took);
        }
        if behind {
            cluster.stop(replica).await;
            primary.admin().cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
            tokio::time::sleep(ms(400)).await;
        }
        match how {
            How::Killed => cluster.kill(primary).await,
            _ => cluster.stop(primary).await,
        }
        let at = now();
        if behind {
            cluster.cont(replica);
        }
        let took = cluster.promotion(primary).await.took;
        tokio::time::sleep(secs(1)).await;
        let resumed = (*how == How::Stopped).then(now);
        match how {
            How::Killed => cluster.restart(primary),
            _ => cluster.cont(primary),
        }
        (failover(at, resumed), took)
    }
}

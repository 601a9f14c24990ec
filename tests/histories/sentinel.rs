//! A primary with two replicas that three sentinels look after.

use std::time::Duration;

use distlock::Acks;
use distlock_support::{Sentinels, SentinelsOptions};

use crate::check::{Failover, PROMOTED_AFTER};
use crate::resource::{at, now};
use crate::run::{Rules, Scene, rounds, run};
use crate::worker::Way;
use crate::{How, TURN, ms, secs};

struct Set {
    bed: Sentinels,
    how: How,
    /// How many replicas are cut off for 0.4 s before every other crash, so that there is something that they do not know.
    behind: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_sentinels_are_asked_for_another_primary_is_told_of_what_that_did_not_know() {
    failovers(How::Asked, Acks::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_the_primary_is_killed_is_told_of_what_its_replicas_did_not_know() {
    failovers(How::Killed, Acks::Off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_inside_when_the_primary_stops_and_goes_on_is_told_of_what_its_replicas_did_not_know() {
    failovers(How::Stopped, Acks::Redisson).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_by_all_nobody_is_inside_with_another_when_sentinels_are_asked_for_another_primary() {
    failovers(How::Asked, Acks::All).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_by_one_nobody_is_inside_with_another_when_the_primary_is_killed() {
    failovers(How::Killed, Acks::AtLeast(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_by_all_nobody_is_inside_with_another_when_the_primary_is_killed() {
    failovers(How::Killed, Acks::All).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_acknowledgements_by_one_nobody_is_inside_with_another_when_the_primary_stops_and_goes_on() {
    failovers(How::Stopped, Acks::AtLeast(1)).await;
}

async fn failovers(how: How, acks: Acks) {
    let _turn = TURN.lock().await;
    let rules = Rules::of(acks);
    // With an acknowledgement by one of two replicas, the other one may be behind.
    let behind = if matches!(rules.acks, Acks::AtLeast(_)) { 1 } else { 2 };
    let bed = Sentinels::start(SentinelsOptions::default().swift()).await;
    run(&Set { bed, how, behind }, rules, rounds(1), &format!("sentinels, {how:?}")).await;
}

impl Scene for Set {
    fn way(&self, _process: usize) -> Way {
        Way { url: self.bed.url(), map: [].into(), names: "" }
    }

    async fn failover(&self, round: usize) -> (Failover, Duration) {
        let Self { bed, how, behind } = self;
        let old = bed.primary().await;
        let slots = vec![0..=16_383];
        if *how == How::Asked {
            let asked = now();
            let promotion = bed.failover().await;
            let switched = Some(at(bed.switched(promotion.cause).await.at));
            return (Failover { at: asked, promoted: asked, switched, resumed: None, slots }, promotion.took);
        }
        let replicas: Vec<usize> = (0..bed.servers().nodes().len()).filter(|n| *n != old).collect();
        // Either replica in turn.
        let cut_off: Vec<usize> = replicas.iter().copied().cycle().skip(round / 2).take(*behind).collect();
        let cut_off = if round.is_multiple_of(2) { cut_off } else { Vec::new() };
        if !cut_off.is_empty() {
            for n in &cut_off {
                bed.server(*n).stop();
            }
            bed.server(old).admin().cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
            tokio::time::sleep(ms(400)).await;
        }
        match how {
            How::Killed => bed.server(old).kill(),
            _ => bed.server(old).stop(),
        }
        let gone = now();
        for n in cut_off {
            bed.server(n).cont();
        }
        let promotion = bed.promotion(old).await;
        let switched = Some(at(bed.switched(promotion.cause).await.at));
        tokio::time::sleep(secs(1)).await;
        let resumed = (*how == How::Stopped).then(now);
        match how {
            How::Killed => bed.server(old).restart(),
            _ => bed.server(old).cont(),
        }
        bed.whole().await;
        (Failover { at: gone, promoted: gone + PROMOTED_AFTER, switched, resumed, slots }, promotion.took)
    }
}

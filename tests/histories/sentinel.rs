//! A primary with two replicas under three sentinels.

use std::time::Duration;

use distlock::Acks;
use distlock_support::{Sentinels, SentinelsOptions};

use crate::check::Failover;
use crate::resource::now;
use crate::run::{Rules, Scene, rounds, run};
use crate::worker::Way;
use crate::{How, TURN, ms, secs};

struct Set {
    bed: Sentinels,
    how: How,
    /// Number of replicas that are cut off before every other crash, so that they miss some writes.
    behind: usize,
}

async fn replication_explains_every_overlap((how, acks): (How, Acks)) {
    failovers(how, acks).await;
}

bed::cases!(on two threads, replication_explains_every_overlap:
    of_killed_primaries = (How::Killed, Acks::Off),
    of_frozen_primaries = (How::Stopped, Acks::Redisson),
);

async fn acknowledgement_leaves_no_overlap((how, acks): (How, Acks)) {
    failovers(how, acks).await;
}

bed::cases!(on two threads, acknowledgement_leaves_no_overlap:
    by_all_of_requested_failovers = (How::Asked, Acks::All),
    by_one_of_killed_primaries = (How::Killed, Acks::AtLeast(1)),
);

async fn failovers(how: How, acks: Acks) {
    let _turn = TURN.lock().await;
    let rules = Rules::of(acks);
    // With acknowledgement by one of two replicas, only the other replica may be behind.
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
            return (Failover { at: asked, slots }, promotion.took);
        }
        let replicas: Vec<usize> = (0..bed.servers().nodes().len()).filter(|n| *n != old).collect();
        // The replicas take turns.
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
        tokio::time::sleep(secs(1)).await;
        match how {
            How::Killed => bed.server(old).restart(),
            _ => bed.server(old).cont(),
        }
        bed.whole().await;
        (Failover { at: gone, slots }, promotion.took)
    }
}

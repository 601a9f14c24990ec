//! If half of the servers or more are unreachable, acquires return `NoQuorum` and leave nothing.
//! `redlock_result_follows_majority_of_server_states` in `tests/sim/group/special.rs` covers every server in every
//! state.

use std::time::Duration;

use crate::rig::{Away, Path, five, long, no_quorum, patient};
use bed::{ends, eventually, ms};

use Away::{Cut, Killed, Stopped};

/// With these three servers unreachable, an acquire fails. A waiting acquire succeeds as soon as one server returns.
/// Nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_of_five_away_are_too_many() {
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        let lock = user.red("x").node_timeout(ms(250));
        for mix in [
            [(0, Killed), (2, Killed), (4, Killed)],
            [(0, Stopped), (1, Stopped), (2, Stopped)],
            [(2, Cut), (3, Cut), (4, Cut)],
            [(1, Stopped), (0, Cut), (3, Killed)],
        ] {
            let live: Vec<_> = (0..5).filter(|at| !mix.iter().any(|(gone, _)| gone == at)).collect();
            for (at, way) in mix {
                five.take(at, way);
            }
            for wait in [Duration::ZERO, ms(600)] {
                let outcome = ends("an acquire at two of five servers", lock.acquire(long().wait(wait))).await;
                let (granted, needed) = no_quorum(outcome);
                assert!(granted <= 2 && needed == 3, "{mix:?}: {granted} of {needed}");
            }
            five.clean_at(&live).await;
            let witness = five.admin(live[0]).await;
            let before = witness.calls("evalsha").await;
            let waiting = lock.clone();
            let waiting = tokio::spawn(async move { waiting.acquire(long()).await });
            eventually("it asks", async || witness.calls("evalsha").await > before).await;
            assert!(!waiting.is_finished(), "{mix:?}");
            let [first, others @ ..] = mix;
            five.back(first.0, first.1);
            let guard = ends(&format!("a waiter at three of five servers, {mix:?}"), waiting).await.unwrap();
            let guard = guard.unwrap().expect("three servers are there");
            for (at, way) in others {
                five.back(at, way);
            }
            guard.unlock().await.unwrap();
            user.reaches_all().await;
            user.quiet().await;
            five.clean().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_succeeds_when_two_of_five_servers_never_connected() {
    five(async |five| {
        five.take(4, Killed);
        five.take(3, Cut);
        let user = five.user(Path::Proxied, crate::rig::endless).await;
        let guard = ends("an acquire at three of five servers", user.red("x").acquire(long())).await.unwrap();
        let released = ends("a release at three of five servers", guard.expect("nobody has it").unlock()).await;
        released.unwrap();
        five.back(4, Killed);
        five.back(3, Cut);
        user.reaches_all().await;
    })
    .await;
}

//! Half of the servers away or more: `NoQuorum` within the wait, and nothing left behind (issue 5).

use std::time::{Duration, Instant};

use distlock::{Acquire, DistLock as _, Error};

use crate::rig::{Away, Five, NEVER, PROMPT, Path, SOON, five, long, no_quorum, patient, quick};
use bed::{ms, secs};

/// Which three are away, and how: each way by itself, and all of them mixed.
const MIXES: [[(usize, Away); 3]; 4] = [
    [(0, Away::Killed), (2, Away::Killed), (4, Away::Killed)],
    [(0, Away::Stopped), (1, Away::Stopped), (2, Away::Stopped)],
    [(2, Away::Cut), (3, Away::Cut), (4, Away::Cut)],
    [(0, Away::Cut), (1, Away::Stopped), (3, Away::Killed)],
];

fn away(five: &Five, mix: &[(usize, Away)]) {
    mix.iter().for_each(|(at, way)| five.take(*at, *way));
}

fn back(five: &Five, mix: &[(usize, Away)]) {
    mix.iter().for_each(|(at, way)| five.back(*at, *way));
}

fn live(mix: &[(usize, Away)]) -> Vec<usize> {
    (0..5).filter(|at| !mix.iter().any(|(gone, _)| gone == at)).collect()
}

/// Three of five away: `NoQuorum` within the wait, for `try_lock` within the node timeout; at once nothing is left on those
/// that live, and once the others are back nothing on them, although the lease would have lasted. Then it can be had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_are_away_are_too_many() {
    const NODE: Duration = ms(250);
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        for mix in MIXES {
            let lock = user.red("x").node_timeout(NODE);
            away(five, &mix);
            let began = Instant::now();
            let (granted, needed) = no_quorum(lock.acquire(long().wait(Duration::ZERO)).await);
            let tried = began.elapsed();
            assert!(granted <= 2 && needed == 3, "{mix:?}: {granted} of {needed}");
            assert!(tried < NODE + secs(1), "{mix:?}: {tried:?}");
            // Those that hang are asked for as long as they may take, so the others have all answered.
            if mix.iter().all(|(_, way)| *way != Away::Killed) {
                assert_eq!(granted, 2, "{mix:?}");
            }
            let wait = ms(600);
            let began = Instant::now();
            let (granted, needed) = no_quorum(lock.acquire(long().wait(wait)).await);
            let waited = began.elapsed();
            assert!(granted <= 2 && needed == 3, "{mix:?}: {granted} of {needed}");
            assert!(waited < wait + secs(1), "{mix:?}: {waited:?}");
            let clean = five.clean_at(&live(&mix), SOON).await;
            back(five, &mix);
            let recovered = five.clean(SOON).await;
            user.reaches(&[0, 1, 2, 3, 4]).await;
            println!("{mix:?}: {tried:?}, {waited:?}; clean {clean:?}, and {recovered:?} after the return");
            let guard = lock.acquire(long()).await.unwrap().expect("all are there");
            guard.unlock().await.unwrap();
            user.idle_at(&[0, 1, 2, 3, 4]).await;
        }
    })
    .await;
}

/// Without a limit an acquire goes on for the client's patience; it gets the lock as soon as most are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_it_when_most_are_back() {
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        for mix in [&MIXES[1], &MIXES[3]] {
            away(five, mix);
            let lock = user.red("x").node_timeout(ms(200));
            let waiting = tokio::spawn(async move { lock.acquire(Acquire::new().wait(secs(20))).await });
            tokio::time::sleep(ms(500)).await;
            assert!(!waiting.is_finished());
            // One is enough.
            five.back(mix[1].0, mix[1].1);
            let began = Instant::now();
            let guard = waiting.await.unwrap().unwrap().expect("three are there");
            assert!(began.elapsed() < secs(8), "{:?}", began.elapsed());
            println!("{mix:?}: had {:?} after one came back", began.elapsed());
            five.back(mix[0].0, mix[0].1);
            five.back(mix[2].0, mix[2].1);
            guard.unlock().await.unwrap();
            user.reaches(&[0, 1, 2, 3, 4]).await;
        }
    })
    .await;
}

/// Three go while somebody waits behind another holder: it ends within its wait, by whatever path it learns of it, and
/// leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_go_while_it_waits_behind_a_holder() {
    five(async |five| {
        let user = five.warm(Path::Proxied, quick).await;
        let holder = five.warm(Path::Direct, patient).await;
        // Where it waits is among those that go, and is not.
        for mix in
            [[(0, Away::Cut), (1, Away::Cut), (2, Away::Cut)], [(2, Away::Stopped), (3, Away::Cut), (4, Away::Stopped)]]
        {
            let held = holder.red("x").acquire(long()).await.unwrap().expect("nobody has it");
            let lock = user.red("x").node_timeout(ms(200));
            let wait = secs(3);
            let began = Instant::now();
            let waiting = tokio::spawn(async move { lock.acquire(long().wait(wait)).await });
            tokio::time::sleep(ms(300)).await;
            away(five, &mix);
            let outcome = waiting.await.unwrap();
            let took = began.elapsed();
            println!("{mix:?}: {took:?}, {outcome:?}");
            assert!(took < wait + secs(1), "{mix:?}: {took:?}");
            assert!(matches!(outcome, Err(Error::NoQuorum { needed: 3, .. })), "{mix:?}: {outcome:?}");
            back(five, &mix);
            held.unlock().await.unwrap();
            five.clean(SOON).await;
            user.reaches(&[0, 1, 2, 3, 4]).await;
        }
    })
    .await;
}

/// Lesson §1.4, `testConnectionFailed`: one of three servers has never been there. It is no obstacle, neither to one who
/// connects lazily nor to the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_never_there_is_no_obstacle() {
    five(async |five| {
        five.take(4, Away::Killed);
        five.take(3, Away::Cut);
        let user = five.user(Path::Proxied, patient).await;
        let lock = user.red("x").node_timeout(NEVER);
        let began = Instant::now();
        let guard = lock.acquire(long()).await.unwrap().expect("three are there");
        guard.unlock().await.unwrap();
        assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
        five.back(4, Away::Killed);
        five.back(3, Away::Cut);
    })
    .await;
}

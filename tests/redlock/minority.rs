//! Fewer than half of the servers away: nobody notices (M1-R).

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{DistLock as _, Error, Released};
use distlock_support::{Numbers, RedisServer};

use crate::rig::{Away, Five, NEVER, PROMPT, Path, Rival, SOON, WAYS, five, long, patient, quick, run};
use bed::{Counter, QUICK, eventually, ms, secs};

/// Issue 5: with two of five away before it begins, an acquire waits for none of them, nor does a release; and once they
/// are back nothing is left on them, although the lease would have lasted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_are_away_cost_nobody_anything() {
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        for (way, away) in WAYS.into_iter().zip([[0, 1], [1, 4], [2, 3]]) {
            let lock = user.red("x").node_timeout(NEVER);
            away.iter().for_each(|at| five.take(*at, way));
            let mut longest = Duration::ZERO;
            for round in 0..5 {
                let began = Instant::now();
                let guard = lock.acquire(long()).await.unwrap().expect("most are there");
                longest = longest.max(began.elapsed());
                assert!(guard.is_held() && guard.members().len() == 3, "{way:?}, round {round}: {guard:?}");
                let began = Instant::now();
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                longest = longest.max(began.elapsed());
            }
            assert!(longest < PROMPT, "{way:?}: {longest:?}");
            away.iter().for_each(|at| five.back(*at, way));
            let clean = five.clean(SOON).await;
            let reached = user.reaches(&away).await;
            println!("{way:?}: an acquire or a release took {longest:?} at most; clean {clean:?} after the return, reached {reached:?} later");
        }
    })
    .await;
}

/// Issue 5: two of five go while it is held. It stays held over several watchdogs, nobody else gets in, by whatever path,
/// and the release waits for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_hold() {
    in_the_hold(Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_in_the_hold() {
    in_the_hold(Away::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_in_the_hold() {
    in_the_hold(Away::Cut).await;
}

async fn in_the_hold(way: Away) {
    five(async |five| {
        let user = five.warm(Path::Proxied, quick).await;
        // Beside the proxies: one who is cut off from other servers than the holder.
        let other = five.warm(Path::Direct, quick).await;
        let guard = user.red("x").node_timeout(NEVER).lock_for(secs(20)).await.unwrap().expect("nobody has it");
        // A bare majority could not do without one of its own: what was not granted at the start is not asked for again.
        eventually("all have granted it", async || guard.members().len() == 5).await;
        let rival = Rival::against(other.red("x").node_timeout(ms(50)));
        let guard = rival.watch(guard);
        five.take(1, way);
        five.take(3, way);
        let tries = rival.tries();
        let began = Instant::now();
        while began.elapsed() < QUICK * 2 {
            assert!(guard.is_held(), "{way:?}: {guard:?}");
            tokio::time::sleep(ms(10)).await;
        }
        assert!(rival.tries() > tries, "the rival stood still");
        let began = Instant::now();
        let released = rival.give_back(guard).unlock().await;
        let took = began.elapsed();
        // Of the five, three answer: none of them can say that it was lost.
        assert_eq!(released.unwrap(), Released::Free);
        assert!(took < ms(500), "{way:?}: {took:?}");
        rival.end().await;
        five.back(1, way);
        five.back(3, way);
        println!("{way:?}: the release took {took:?}");
    })
    .await;
}

/// Issue 5, M1-R: two of five at a time go and come back, in the middle of whatever three users do: acquires, holds,
/// releases. Never two inside, and nobody fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sections_are_exclusive_while_servers_come_and_go() {
    churn(Five::start(5, RedisServer::builder), &[Away::Stopped, Away::Cut], 12).await;
}

/// As before, by SIGKILL: with `appendfsync always` a server that comes back knows what it has granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sections_are_exclusive_while_servers_with_files_are_killed() {
    let always = || RedisServer::builder().aof(true).arg("--appendfsync", "always");
    churn(Five::start(5, always), &[Away::Killed], 6).await;
}

async fn churn(five: Five, ways: &[Away], rounds: u64) {
    run(five, async |five| {
        let counter = Arc::new(Counter::default());
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut users = Vec::new();
        for path in [Path::Proxied, Path::Proxied, Path::Direct] {
            let lock = five.warm(path, quick).await.red("x").node_timeout(ms(300));
            let (counter, stop) = (Arc::clone(&counter), Arc::clone(&stop));
            users.push(tokio::spawn(async move {
                let (mut done, mut longest) = (0, Duration::ZERO);
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    let began = Instant::now();
                    let guard = match lock.lock_for(secs(30)).await {
                        Ok(guard) => guard.expect("nobody stays for long"),
                        // Two have just gone, and the two before them are not reached again yet.
                        Err(error @ Error::NoQuorum { .. }) if error.is_retryable() => continue,
                        Err(error) => panic!("{error:?}"),
                    };
                    longest = longest.max(began.elapsed());
                    counter.bump(ms(2)).await;
                    assert!(guard.is_held());
                    // With a bare majority, and one of it gone since, nobody can confirm it; it is given back all the same.
                    let released = guard.unlock().await;
                    assert!(released.as_ref().err().is_none_or(Error::is_retryable), "{released:?}");
                    done += 1;
                }
                (done, longest)
            }));
        }
        let mut numbers = Numbers::new(42);
        for round in 0..rounds {
            let (one, step) = (numbers.below(5) as usize, 1 + numbers.below(4) as usize);
            let (a, b) = (one, (one + step) % 5);
            let way = ways[round as usize % ways.len()];
            five.take(a, way);
            tokio::time::sleep(ms(numbers.below(20))).await;
            five.take(b, way);
            let before = counter.get();
            tokio::time::sleep(ms(60 + numbers.below(100))).await;
            eventually("somebody gets in", async || counter.get() > before).await;
            five.back(a, way);
            tokio::time::sleep(ms(numbers.below(20))).await;
            five.back(b, way);
            tokio::time::sleep(ms(20)).await;
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        let (mut sum, mut each) = (0, Vec::new());
        for user in users {
            let (done, longest) = user.await.unwrap();
            sum += done;
            each.push((done, longest));
        }
        assert_eq!(counter.get(), sum);
        println!("{sum} sections over {rounds} rounds; of each user, and the longest wait: {each:?}");
    })
    .await;
}

//! Servers that forget (M1-R): what it takes for two holders, and what keeps them apart.

use std::time::Instant;

use distlock::{DistLock as _, Error, Guard, Lost};
use distlock_support::RedisServer;

use crate::rig::{Away, Five, PROMPT, Path, User, five, long, no_quorum, quick, run};
use bed::{QUICK, eventually, ms, secs};

/// A holder of servers 0 to 2, the others having been away at the start, and being back and empty now. They are not taken
/// in any more.
async fn of_three(five: &Five, user: &User) -> Guard {
    five.take(3, Away::Killed);
    five.take(4, Away::Killed);
    let guard = user.red("x").lock().await.unwrap();
    assert_eq!(guard.members().len(), 3, "{guard:?}");
    user.quiet_at(&[3, 4]).await;
    five.back(3, Away::Killed);
    five.back(4, Away::Killed);
    user.reaches(&[3, 4]).await;
    assert_eq!(five.having("x").await, [0, 1, 2]);
    assert!(guard.is_held() && guard.members().len() == 3, "{guard:?}");
    guard
}

/// M1-R, documented: the one server that both majorities share restarts without its data in the middle of a lease. The
/// other one gets in while the first one is held still, and the first is told within a third of the watchdog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_server_that_comes_back_empty_lets_a_second_one_in_and_the_first_is_told() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Proxied, quick).await, five.warm(Path::Direct, quick).await);
        let guard = of_three(five, &user).await;
        other.reaches(&[3, 4]).await;
        assert!(other.red("x").try_lock().await.unwrap().is_none(), "it has two of five");
        other.idle_at(&[0, 1, 2, 3, 4]).await;
        five.servers[2].restart();
        let restarted = Instant::now();
        let second = loop {
            // Its connection has to come back first.
            if let Ok(Some(second)) = other.red("x").try_lock().await {
                break second;
            }
            assert!(restarted.elapsed() < secs(5), "two of five are free, and the third");
        };
        let got = restarted.elapsed();
        assert!(second.is_held());
        let lost = tokio::time::timeout(QUICK, guard.lost()).await.expect("not told");
        let told = restarted.elapsed();
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(told < QUICK / 3 + ms(700), "{told:?}");
        assert!(!guard.is_held() && second.is_held());
        println!("the second got in {got:?} after the restart, the first was told after {told:?}");
        drop(guard);
        second.unlock().await.unwrap();
    })
    .await;
}

/// M1-R: the same server, kept away for the longest lease before it comes back empty: the first one is over before the
/// second gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_kept_away_for_a_lease_keeps_exclusion() {
    five(async |five| {
        let (user, other) = (five.warm(Path::Proxied, quick).await, five.warm(Path::Direct, quick).await);
        let guard = of_three(five, &user).await;
        other.reaches(&[3, 4]).await;
        five.take(2, Away::Killed);
        let away = Instant::now();
        let lock = other.red("x").node_timeout(ms(100));
        while away.elapsed() < QUICK {
            // Two of three others are no majority; nor is it all right for a moment.
            assert!(!matches!(lock.try_lock().await, Ok(Some(second)) if second.is_held() && guard.is_held()));
        }
        assert!(!guard.is_held(), "its majority has been gone for a lease");
        five.back(2, Away::Killed);
        let second = lock.lock_for(secs(10)).await.unwrap().expect("all are there");
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        second.unlock().await.unwrap();
    })
    .await;
}

/// M1-R: with `appendonly yes` and `appendfsync always` the server comes back with what it granted: nobody else gets in,
/// and the first one stays held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_file_keeps_exclusion() {
    let always = || RedisServer::builder().aof(true).arg("--appendfsync", "always");
    run(Five::start(5, always), async |five| {
        let (user, other) = (five.warm(Path::Proxied, quick).await, five.warm(Path::Direct, quick).await);
        let guard = of_three(five, &user).await;
        let lock = other.red("x").node_timeout(ms(200));
        for at in [2, 0, 1] {
            five.servers[at].restart();
            let restarted = Instant::now();
            while restarted.elapsed() < QUICK * 2 / 3 {
                assert!(!matches!(lock.try_lock().await, Ok(Some(_))), "two holders");
                assert!(guard.is_held(), "{guard:?}");
                tokio::time::sleep(ms(5)).await;
            }
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A server that was away at the start and is back in the middle of the hold is not asked again: the hold rests on those
/// that granted it, and ends when most of five are gone, be it that four are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_away_at_the_start_is_not_taken_in_later() {
    five(async |five| {
        let user = five.warm(Path::Proxied, quick).await;
        let guard = of_three(five, &user).await;
        let held = Instant::now();
        while held.elapsed() < QUICK {
            assert!(guard.is_held());
            tokio::time::sleep(ms(20)).await;
        }
        assert_eq!(five.having("x").await, [0, 1, 2]);
        assert_eq!(guard.members().len(), 3);
        five.take(0, Away::Stopped);
        tokio::time::timeout(QUICK + secs(1), guard.lost()).await.expect("two of five are no majority");
        five.back(0, Away::Stopped);
        drop(guard);
    })
    .await;
}

/// A late answer: the server stood still for less than its command timeout. It is taken into the guard, if there still is
/// one, and given back if there is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_answers_late_is_taken_in_or_given_back() {
    five(async |five| {
        let user = five.warm(Path::Proxied, crate::rig::patient).await;
        let lock = user.red("x");
        for way in [Away::Stopped, Away::Cut] {
            five.take(4, way);
            five.take(1, way);
            let began = Instant::now();
            let guard = lock.acquire(long()).await.unwrap().expect("three are there");
            assert_eq!(guard.members().len(), 3);
            five.back(4, way);
            eventually("it is taken in", async || guard.members().len() == 4).await;
            // So the hold outlives one of the first three.
            assert!(five.admin(0).await.cmd::<u64>(&["DEL", "x"]).await == 1);
            assert!(guard.is_held() && five.admin(4).await.exists("x").await);
            guard.unlock().await.unwrap();
            assert!(began.elapsed() < secs(8), "slower than the command timeout, which this is not about");
            five.back(1, way);
            user.idle_at(&[0, 1, 2, 3, 4]).await;
            assert_eq!(five.having("x").await, [0; 0]);
        }
        // And over it is when too few are left for a majority, late ones or not.
        for at in [0, 1, 2] {
            five.take(at, Away::Cut);
        }
        let began = Instant::now();
        assert_eq!(no_quorum(lock.node_timeout(ms(100)).try_lock().await).1, 3);
        assert!(began.elapsed() < PROMPT);
        for at in [0, 1, 2] {
            five.back(at, Away::Cut);
        }
    })
    .await;
}

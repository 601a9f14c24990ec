//! The hold of a majority: renewed on every server by itself, and over as soon as no majority can be proven.

use std::time::{Duration, Instant};

use distlock::{Acquire, Error, Lost};

use crate::rig::{Away, PROMPT, Path, by_all, five, quick};
use bed::{QUICK, ms, secs};

/// Three of five go in the hold: told by the local clock before the last of their leases ends in the server. The cut-off
/// servers can still be asked how long that is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_are_cut_off_end_it_before_their_leases_do() {
    five(async |five| {
        let user = five.warm(Path::Proxied, quick).await;
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        // Over some renewals.
        tokio::time::sleep(QUICK / 2).await;
        let expiring = guard.expiring();
        for at in [0, 2, 3] {
            five.take(at, Away::Cut);
        }
        let cut = Instant::now();
        let mut ends = Vec::new();
        for at in [0, 2, 3] {
            let admin = five.admin(at).await;
            let now = Instant::now();
            ends.push(now + ms(admin.pttl("x").await.try_into().unwrap()));
        }
        let last = ends.into_iter().max().unwrap();
        let outcome = guard.run(std::future::pending::<()>()).await;
        let told = Instant::now();
        assert!(matches!(outcome, Err(Error::Lost { why: Lost::Expired, .. })), "{outcome:?}");
        assert!(told < last, "told {:?} after the third lease had ended", told - last);
        assert!(told - cut > QUICK / 3, "{:?}: too soon, two thirds of a lease were left", told - cut);
        assert!(!guard.is_held());
        expiring.await;
        println!("told {:?} after the cut, {:?} before the servers' end", told - cut, last - told);
        let began = Instant::now();
        let released = guard.unlock().await;
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?} after {:?}", began.elapsed());
        assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
        for at in [0, 2, 3] {
            five.back(at, Away::Cut);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_are_killed_end_it() {
    three_that_go(Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_that_are_stopped_end_it() {
    three_that_go(Away::Stopped).await;
}

async fn three_that_go(way: Away) {
    five(async |five| {
        let user = five.warm(Path::Proxied, quick).await;
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        // First two, which is no matter; over more than a watchdog.
        five.take(1, way);
        five.take(4, way);
        let two = Instant::now();
        while two.elapsed() < QUICK + QUICK / 3 {
            assert!(guard.is_held(), "{guard:?}");
            tokio::time::sleep(ms(10)).await;
        }
        let lost = guard.lost();
        let began = Instant::now();
        five.take(2, way);
        let lost = tokio::time::timeout(QUICK + secs(1), lost).await.expect("not told");
        let took = began.elapsed();
        assert!(matches!(lost, Error::Lost { .. }) && !guard.is_held(), "{lost:?}");
        assert!(took > ms(500), "{took:?}: its last renewal was a third of the watchdog old at the most");
        println!("{way:?}: told {took:?} after the third one");
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        for at in [1, 2, 4] {
            five.back(at, way);
        }
    })
    .await;
}

/// Deleted on two servers nobody is told; on a third one, the loss is told at the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_deleted_on_a_majority_are_told_within_a_third() {
    five(async |five| {
        let user = five.warm(Path::Proxied, quick).await;
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        for at in [0, 4] {
            assert_eq!(five.admin(at).await.cmd::<u64>(&["DEL", "x"]).await, 1);
        }
        let lost = guard.lost();
        assert!(tokio::time::timeout(QUICK, lost).await.is_err(), "two are no majority");
        assert!(guard.is_held());
        assert_eq!(guard.members().iter().filter(|member| member.is_held).count(), 3, "{:?}", guard.members());
        // Renewal never makes a key.
        assert_eq!(five.having("x").await, [1, 2, 3]);
        five.admin(2).await.cmd::<String>(&["FLUSHALL"]).await;
        let began = Instant::now();
        let lost = tokio::time::timeout(QUICK, guard.lost()).await.expect("not told");
        let took = began.elapsed();
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(took < QUICK / 3 + ms(500), "{took:?}");
        println!("told {took:?} after the third one was gone");
        let began = Instant::now();
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        assert!(began.elapsed() < secs(1));
        // What was left of it is given back.
        let clean = five.clean(QUICK / 2).await;
        assert!(clean < Duration::from_secs(1));
    })
    .await;
}

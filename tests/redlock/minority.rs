//! Fewer than half of the servers are unreachable, and no user notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{Acquire, DistLock as _, Error, Released};
use distlock_support::{Numbers, RedisServer};

use crate::rig::{Away, Five, Path, by_all, endless, five, long, patient, run};
use bed::{Counter, ends, eventually, ms, secs};

/// Two servers are unreachable from the start, or from a moment during the hold. No acquire, renewal or release waits
/// for them. No other user acquires. Nothing is left on the two servers after their return.
async fn two_of_five_unreachable_servers_fail_no_acquire(way: Away) {
    five(async |five| {
        let user = five.warm(Path::Proxied, endless).await;
        let other = five.warm(Path::Direct, patient).await;
        let lock = user.red("x").node_timeout(secs(3600));
        let change = |at: [usize; 2], away: bool| {
            at.iter().for_each(|at| if away { five.take(*at, way) } else { five.back(*at, way) });
        };
        change([0, 4], true);
        for round in 0..3 {
            let guard = ends("an acquire at three of five servers", lock.acquire(long())).await.unwrap();
            let guard = guard.expect("most servers are there");
            assert!(guard.is_held() && guard.members().len() == 3, "round {round}: {guard:?}");
            let released = ends("a release at three of five servers", guard.unlock()).await;
            assert_eq!(released.unwrap(), Released::Free);
        }
        change([0, 4], false);
        five.clean().await;
        user.reaches_all().await;
        // The hold is on all servers, because a hold on only three could not lose one. It has another name, because
        // late votes may still arrive for `x`.
        let guard = by_all(&user.red("y"), Acquire::new()).await;
        change([1, 3], true);
        for at in [0, 2, 4] {
            assert_eq!(ends("a renewal", user.clients[at].renew_now()).await.renewed, 1);
        }
        assert!(guard.is_held(), "{guard:?}");
        // If only the first user is cut off from these servers, the second user reaches all of them.
        let second = ends("an attempt of another", other.red("y").try_lock()).await;
        assert!(second.as_ref().is_ok_and(Option::is_none), "{second:?} beside {guard:?}");
        let released = ends("a release at three of five servers", guard.unlock()).await;
        // No server reports a loss.
        assert_eq!(released.unwrap(), Released::Free);
        change([1, 3], false);
        five.clean().await;
        other.reaches_all().await;
    })
    .await;
}

bed::cases!(on two threads, two_of_five_unreachable_servers_fail_no_acquire:
    killed = Away::Killed,
    stopped = Away::Stopped,
    cut_off = Away::Cut,
);

/// Two of five servers at a time fail and return, while three users work. A killed server has an AOF (`appendfsync
/// always`), so it keeps its grants.
async fn sections_are_exclusive_while_servers_come_and_go((ways, rounds): (&'static [Away], u64)) {
    let has_file = ways.contains(&Away::Killed);
    let make = || {
        if has_file { RedisServer::builder().aof(true).arg("--appendfsync", "always") } else { RedisServer::builder() }
    };
    run(Five::start(5, make), async |five| {
        let counter = Arc::new(Counter::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut users = Vec::new();
        for path in [Path::Proxied, Path::Proxied, Path::Direct] {
            let lock = five.warm(path, patient).await.red("x").node_timeout(ms(300));
            let (counter, stop) = (Arc::clone(&counter), Arc::clone(&stop));
            users.push(tokio::spawn(async move {
                let mut done = 0;
                while !stop.load(Ordering::SeqCst) {
                    let guard = match lock.lock().await {
                        Ok(guard) => guard,
                        // Two servers have just failed, and the clients have not reconnected to the previous two.
                        Err(error @ Error::NoQuorum { .. }) if error.is_retryable() => continue,
                        Err(error) => panic!("an acquire failed: {error:?}"),
                    };
                    counter.bump(ms(2)).await;
                    // A hold on only three servers that has lost one cannot be confirmed. The client releases it
                    // nevertheless.
                    let released = guard.unlock().await;
                    assert!(matches!(released, Ok(_) | Err(Error::ReleasePending { .. })), "{released:?}");
                    done += 1;
                }
                done
            }));
        }
        let mut numbers = Numbers::new(42);
        for round in 0..rounds {
            let (a, step) = (numbers.below(5) as usize, 1 + numbers.below(4) as usize);
            let (b, way) = ((a + step) % 5, ways[round as usize % ways.len()]);
            five.take(a, way);
            tokio::time::sleep(ms(numbers.below(20))).await;
            five.take(b, way);
            let before = counter.get();
            eventually("somebody gets in", async || counter.get() > before + 1).await;
            five.back(a, way);
            tokio::time::sleep(ms(numbers.below(20))).await;
            five.back(b, way);
        }
        stop.store(true, Ordering::SeqCst);
        let mut sum = 0;
        for user in users {
            sum += ends("a user's last section", user).await.unwrap();
        }
        assert_eq!(counter.get(), sum);
    })
    .await;
}

bed::cases!(on two threads, sections_are_exclusive_while_servers_come_and_go:
    frozen_or_cut_off = (&[Away::Stopped, Away::Cut], 10),
    killed = (&[Away::Killed], 6),
);

/// Of five servers one is taken, two are frozen and two are free. No holder of a majority was seen, so the result is
/// not `Ok(None)`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_with_one_held_and_two_frozen_servers_returns_no_quorum() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let other = five.warm(Path::Direct, patient).await;
        let held = other.clients[0].reentrant("x").lock_leased(secs(3600)).await.unwrap();
        [3, 4].iter().for_each(|at| five.take(*at, Away::Stopped));
        let lock = user.red("x").node_timeout(secs(1));
        for wait in [Duration::ZERO, secs(3)] {
            let outcome = ends("the acquire", lock.acquire(Acquire::new().wait(wait))).await;
            assert!(matches!(outcome, Err(Error::NoQuorum { .. })), "wait of {wait:?}: {outcome:?}");
            // The next acquire must not meet votes of this acquire. At the frozen servers, the undo is still in flight.
            for client in &user.clients[..3] {
                bed::idle(client).await;
            }
        }
        [3, 4].iter().for_each(|at| five.back(*at, Away::Stopped));
        held.unlock().await.unwrap();
        five.clean().await;
    })
    .await;
}

//! RedLocks: round trips, waiters, split votes, and lost majorities.

use super::{Kind, WATCHDOG, fleet, fleet_of};
use crate::prelude::*;

/// Two of five servers have four times the latency. The majority decides.
#[test]
fn redlock_costs_one_round_trip_of_its_majority() {
    virtually(async || {
        let fleet = fleet_of(&[120, 30, 30, 120, 30].map(ms), 1).await;
        let lock = Kind::Red.lock(&fleet, 0);
        for _ in 0..5 {
            let began = Instant::now();
            let guard = lock.lock().await.unwrap();
            assert_eq!(began.elapsed(), ms(60), "acquire");
            let began = Instant::now();
            guard.unlock().await.unwrap();
            assert_eq!(began.elapsed(), ms(60), "release");
            sleep(ms(1_000)).await;
        }
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// A waiter subscribes at one server, and polls the other servers about once a second.
#[test]
fn redlock_waiter_costs_each_server_about_one_command_a_second() {
    const WAITERS: u64 = 4;
    virtually(async || {
        let fleet = fleet(5, 2).await;
        let guard = Kind::Red.lock(&fleet, 1).lock().await.unwrap();
        let ours = Kind::Red.lock(&fleet, 0);
        let waiting: Vec<_> = (0..WAITERS).map(|_| waiter(Arc::clone(&ours))).collect();
        sleep(ms(1_000)).await;
        let before: Vec<_> = fleet.servers.iter().map(|server| server.scripts_run()).collect();
        sleep(ms(60_000)).await;
        for (n, server) in fleet.servers.iter().enumerate() {
            let sent = server.scripts_run() - before[n];
            // The count includes the holder's renewals.
            assert!(sent <= WAITERS * 60 * 5 / 4 + 10, "server {n}: {sent} scripts of {WAITERS} waiters in a minute");
        }
        let released = Instant::now();
        guard.unlock().await.unwrap();
        all(waiting).await;
        assert!(released.elapsed() <= ms(500), "served after {:?}", released.elapsed());
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// Redisson's `testLockLeasetime…` and `testTryLockLeasetime`. Ten tasks of two clients hold the lock for half of the
/// shorter lease each. They wait without limit, or for 4 s at a time.
#[test]
fn sections_under_explicit_leases_exclude_each_other() {
    each(pairs([2_000, 60_000].map(ms), [None, Some(ms(4_000))]), async |(lease, wait)| {
        let fleet = fleet(3, 2).await;
        let (count, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for n in 0..10 {
            let (lock, count) = (Kind::Red.lock(&fleet, n % 2), Arc::clone(&count));
            let how = wait.map_or_else(Acquire::new, |wait| Acquire::new().wait(wait)).lease(lease);
            tasks.spawn(async move {
                for _ in 0..5 {
                    let guard = loop {
                        if let Some(guard) = lock.acquire(how.clone()).await.unwrap() {
                            break guard;
                        }
                    };
                    let seen = count.load(Ordering::SeqCst);
                    sleep(ms(1_000)).await;
                    count.store(seen + 1, Ordering::SeqCst);
                    guard.unlock().await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(count.load(Ordering::SeqCst), 50);
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// The remaining servers split their votes. Clients do not wait for the vote of the frozen server.
#[test]
fn split_votes_do_not_wait_for_a_frozen_server() {
    virtually(async || {
        let fleet = fleet(3, 4).await;
        fleet.servers[2].freeze(true);
        let began = Instant::now();
        all((0..4).map(|n| turns(Kind::Red.lock(&fleet, n), 10, ms(1)))).await;
        assert!(began.elapsed() <= ms(6_000), "40 sections in {:?}", began.elapsed());
        fleet.servers[2].freeze(false);
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// With and without the waiter's subscribed server among the lost servers.
#[test]
fn redlock_waiter_without_majority_fails_within_its_wait() {
    each([[0, 1, 2], [2, 3, 4]], async move |gone| {
        let fleet = fleet(5, 2).await;
        let guard = Kind::Red.lock(&fleet, 1).lock().await.unwrap();
        let lock = Kind::Red.lock(&fleet, 0);
        let began = Instant::now();
        let (outcome, ()) = tokio::join!(lock.lock_for(ms(6_000)), async {
            sleep(ms(300)).await;
            gone.into_iter().for_each(|n| fleet.clients[0][n].link.partition(true));
        });
        assert!(matches!(outcome, Err(Error::NoQuorum { needed: 3, .. })), "{outcome:?}");
        assert!(began.elapsed() <= ms(6_050), "{:?}", began.elapsed());
        gone.into_iter().for_each(|n| fleet.clients[0][n].link.partition(false));
        guard.unlock().await.unwrap();
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// The one server that two majorities share loses its data, and stays down for the longest lease.
#[test]
fn emptied_server_that_stays_away_for_lease_keeps_exclusion() {
    virtually(async || {
        let fleet = fleet(5, 2).await;
        [3, 4].into_iter().for_each(|n| fleet.servers[n].stop());
        let guard = Kind::Red.lock(&fleet, 0).lock().await.unwrap();
        assert_eq!(guard.members().len(), 3);
        [3, 4].into_iter().for_each(|n| fleet.servers[n].start(false));
        sleep(ms(1_000)).await;
        fleet.servers[2].stop();
        let (away, other) = (Instant::now(), Kind::Red.lock(&fleet, 1));
        while guard.is_held() {
            let second = other.lock_for(ms(500)).await;
            assert!(!guard.is_held() || !matches!(second, Ok(Some(_))), "two holders: {guard:?} and {second:?}");
        }
        assert!(away.elapsed() <= WATCHDOG, "held without a majority for {:?}", away.elapsed());
        fleet.servers[2].start(false);
        other.lock().await.unwrap().unlock().await.unwrap();
        assert!(guard.unlock().await.is_err());
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// One or three holders have three of five servers. The other servers are free, frozen or down.
#[test]
fn wait_for_busy_redlock_majority_never_ends_early() {
    let cases =
        pairs([[0, 1, 2], [0, 2, 4], [2, 3, 4]], [(true, "free"), (true, "frozen"), (false, "free"), (false, "down")]);
    each(cases, async move |(taken, (by_one, rest))| {
        let fleet = fleet(5, 2).await;
        let others: Vec<_> = (0..5).filter(|n| !taken.contains(n)).collect();
        let mut held = Vec::new();
        if by_one {
            others.iter().for_each(|n| fleet.servers[*n].stop());
            held.push(Kind::Red.lock(&fleet, 1).lock().await.unwrap());
            others.iter().for_each(|n| fleet.servers[*n].start(true));
            sleep(ms(5_000)).await;
        } else {
            for n in taken {
                held.push(fleet.clients[1][n].client.reentrant("r").lock().await.unwrap());
            }
        }
        others.iter().for_each(|n| match rest {
            "frozen" => fleet.servers[*n].freeze(true),
            "down" => fleet.servers[*n].stop(),
            _ => {}
        });
        for wait in [100, 2_000].map(ms) {
            ends_busy(&*Kind::Red.lock(&fleet, 0), wait, &format!("{taken:?} by one: {by_one}, {rest}")).await;
        }
        others.iter().for_each(|n| match rest {
            "frozen" => fleet.servers[*n].freeze(false),
            "down" => fleet.servers[*n].start(true),
            _ => {}
        });
        drop(held);
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

/// Two of five servers are taken, and one has a high latency. So the first vote is split, without the slow server's
/// reply. Then the same holder or other holders take the remaining servers. The waiter learns of that only by polling.
#[test]
fn redlock_wait_ends_busy_if_majority_becomes_busy_after_first_vote() {
    each([true, false], async move |by_one| {
        let fleet = fleet_of(&[1, 1, 1, 1, 20].map(ms), 2).await;
        let me = fleet.clients[1][0].client.owner();
        let take = |n: usize| {
            let lock = fleet.clients[1][n].client.reentrant("r");
            let owner = crate::fleet::moved(me.as_str(), n).parse::<Owner>().unwrap();
            async move {
                let how = if by_one { Acquire::new().owner(&owner) } else { Acquire::new() };
                lock.acquire(how).await.unwrap().unwrap()
            }
        };
        let mut held = vec![take(0).await, take(1).await];
        let (began, lock) = (Instant::now(), Kind::Red.lock(&fleet, 0));
        let who = format!("by one: {by_one}");
        tokio::join!(ends_busy(&*lock, ms(3_000), &who), async {
            sleep(ms(5)).await;
            held.extend(futures::future::join_all((2..5).map(take)).await);
            assert!(began.elapsed() < ms(1_000), "the split vote is given back");
        });
        drop(held);
        fleet.settled(ms(60_000)).await.unwrap();
    });
}

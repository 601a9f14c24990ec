//! Acquires of RedLocks, dropped wherever they stand: no vote is left on any server, or cluster of servers.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock as _, Error, Flavour, RedLock};
use distlock_support::Numbers;

use crate::rig::{Five, Path, SOON, User, everywhere, patient};
use bed::dropped::at_each_await;
use bed::harm::cut;
use bed::{apart, eventually, ms, secs};

/// So many acquires, and what is done with those that were granted before they were dropped.
async fn drops(lock: RedLock, client: Client, seed: u64, count: u64) -> u64 {
    let mut numbers = Numbers::new(seed);
    let mut dropped = 0;
    while dropped < count {
        let how = match numbers.below(4) {
            0 => Acquire::new().wait(ms(numbers.below(3))),
            1 => Acquire::new().owner(&client.owner()).lease(secs(60)),
            // What is left behind does not go by itself while the test runs.
            _ => Acquire::new().lease(secs(60)),
        };
        let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(6_000)) };
        match cut(lock.acquire(how), numbers.below(10), pause).await {
            None => dropped += 1,
            Some(Ok(Some(guard))) => match numbers.below(3) {
                0 => drop(cut(guard.unlock(), numbers.below(4), Duration::ZERO).await),
                1 => drop(guard),
                _ => drop(guard.unlock().await.unwrap()),
            },
            // A wait of a few milliseconds may end before most have answered.
            Some(Ok(None) | Err(Error::NoQuorum { .. })) => {}
            Some(Err(error)) => panic!("{error}"),
        }
    }
    dropped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_of_redlocks_dropped_at_random_points_leave_nothing() {
    everywhere(async |five| {
        let users = [five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await];
        for flavour in [Flavour::Reentrant, Flavour::Fair] {
            let names = apart(flavour.as_str());
            let tasks = (0..6_u64).map(|n| {
                let user = &users[n as usize % 2];
                let lock = user.over(flavour, &names[n as usize % names.len()]);
                tokio::spawn(drops(lock, user.clients[0].clone(), n + 1, 50))
            });
            let mut dropped = 0;
            for task in tasks.collect::<Vec<_>>() {
                dropped += task.await.unwrap();
            }
            for user in &users {
                user.idle_at(&five.all()).await;
            }
            let took = five.clean(SOON).await;
            println!("{flavour}: {dropped} dropped before their end; clean after {took:?}");
            for name in &names {
                let lock = users[1].over(flavour, name);
                lock.lock_for(secs(10)).await.unwrap().expect("free").unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// As [`patient`], with subscriptions that end at once when nobody waits any more.
fn forgetful(url: &str) -> distlock::Builder {
    patient(url).subscription_linger(ms(20))
}

/// Nothing is held, waited for or under way, and these keys are all there are, with nobody subscribed.
async fn only(five: &Five, user: &User, keys: &[Vec<String>], when: &str) {
    user.idle_at(&five.all()).await;
    for (at, keys) in keys.iter().enumerate() {
        let admin = five.admin(at).await;
        eventually(&format!("{when}: no other key than {keys:?} on server {at}"), async || {
            admin.keys().await == *keys && admin.channels().await.is_empty()
        })
        .await;
        let forgotten = async || user.clients[at].stats().names == 0;
        eventually(&format!("{when}: no name leaves a trace at server {at}"), forgotten).await;
    }
}

async fn all_keys(five: &Five) -> Vec<Vec<String>> {
    let mut keys = Vec::new();
    for at in five.all() {
        keys.push(five.admin(at).await.keys().await);
    }
    keys
}

/// Dropped at its first await, at its second, and so on; the same with the release. The lock is free, or somebody else has it on a
/// server, or on most.
#[tokio::test]
async fn dropped_at_each_await_it_leaves_nothing_on_any_server() {
    everywhere(async |five| {
        let (user, other) = (five.warm(Path::Direct, forgetful).await, five.warm(Path::Direct, forgetful).await);
        let flavours = [Flavour::Reentrant, Flavour::Fair, Flavour::Write];
        // In clusters on another primary each.
        for (flavour, name) in flavours.into_iter().zip(apart("each")) {
            let lock = user.over(flavour, &name);
            for taken in [0, 1, lock.quorum()] {
                let mut theirs = Vec::new();
                for client in &other.clients[..taken] {
                    theirs.push(client.lock(flavour, &name).lock_leased(secs(60)).await.unwrap());
                }
                let keys = all_keys(five).await;
                let is_free = taken < lock.quorum();
                // Longer than it rests before it looks whether it is held still; and what is left would outlast the test.
                let wait = if is_free { secs(10) } else { ms(100) };
                let acquire = async || match lock.acquire(Acquire::new().lease(secs(60)).wait(wait)).await {
                    Err(Error::NoQuorum { .. }) if !is_free => Ok(None),
                    outcome => outcome,
                };
                let waits = at_each_await(acquire, async |when| only(five, &user, &keys, &when).await).await;
                println!("{flavour}, {taken} of {} taken: {waits:?} awaits", keys.len());
                for guard in theirs {
                    guard.unlock().await.unwrap();
                }
            }
            other.over(flavour, &name).lock_for(secs(10)).await.unwrap().expect("free").unlock().await.unwrap();
            other.idle_at(&five.all()).await;
            five.clean(SOON).await;
        }
    })
    .await;
}

/// Waiters behind a holder, dropped in the queue where they all stand, at one server: those behind them come in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_waiters_hold_nobody_up() {
    everywhere(async |five| {
        let users = [five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await];
        let guard = users[0].red("x").lock().await.unwrap();
        let tasks: Vec<_> = (0..12_usize)
            .map(|n| {
                let lock = users[n % 2].red("x");
                tokio::spawn(async move {
                    let mut numbers = Numbers::new(n as u64 + 100);
                    for _ in 0..10 {
                        let pause = Duration::from_micros(1 + numbers.below(20_000));
                        drop(cut(lock.acquire(Acquire::new().lease(secs(60))), 0, pause).await);
                    }
                    let guard = tokio::time::timeout(secs(60), lock.lock()).await.expect("stuck").unwrap();
                    assert!(guard.is_held());
                    guard.unlock().await.unwrap();
                })
            })
            .collect();
        eventually("somebody waits", async || users[1].clients.iter().any(|one| one.stats().waiting > 0))
            .await;
        guard.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        five.clean(SOON).await;
    })
    .await;
}

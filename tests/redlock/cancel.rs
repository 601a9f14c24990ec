//! Acquires of RedLocks that are dropped at random points leave no vote on any server or cluster.

use std::time::Duration;

use distlock::{Acquire, Client, DistLock as _, Error, Flavour, RedLock};
use distlock_support::Numbers;

use crate::rig::{Five, Path, User, everywhere, long, patient};
use bed::dropped::at_each_await;
use bed::harm::cut;
use bed::{apart, becomes, ends, ms};

/// Drops `count` acquires. If an acquire succeeds before its drop, its guard is released or dropped. The last acquire
/// is not dropped.
async fn drops(lock: RedLock, client: Client, seed: u64, count: u64) {
    let mut numbers = Numbers::new(seed);
    let mut dropped = 0;
    while dropped < count {
        let how = match numbers.below(4) {
            0 => Acquire::new().wait(ms(numbers.below(3))),
            1 => long().owner(&client.owner()),
            _ => long(),
        };
        let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(6_000)) };
        match cut(lock.acquire(how), numbers.below(10), pause).await {
            None => dropped += 1,
            Some(Ok(Some(guard))) => match numbers.below(3) {
                0 => drop(cut(guard.unlock(), numbers.below(4), Duration::ZERO).await),
                1 => drop(guard),
                _ => drop(guard.unlock().await.unwrap()),
            },
            // A wait of a few milliseconds may end before a majority has answered.
            Some(Ok(None) | Err(Error::NoQuorum { .. })) => {}
            Some(Err(error)) => panic!("an acquire failed: {error}"),
        }
    }
    let guard = ends("an acquire that is not dropped", lock.lock()).await.unwrap();
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_at_random_points_leave_no_votes() {
    everywhere(async |five| {
        let users = [five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await];
        for flavour in [Flavour::Reentrant, Flavour::Fair] {
            let names = apart(flavour.as_str());
            let tasks = (0..6_u64).map(|n| {
                let user = &users[n as usize % 2];
                let lock = user.over(flavour, &names[n as usize % names.len()]);
                tokio::spawn(drops(lock, user.clients[0].clone(), n + 1, 50))
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
            for user in &users {
                user.idle().await;
            }
            five.clean().await;
        }
    })
    .await;
}

/// Like [`patient`], but subscriptions end soon after their last waiter.
fn forgetful(url: &str) -> distlock::Builder {
    patient(url).subscription_linger(ms(20))
}

/// Waits until nothing is held, waited for or in flight, and exactly these keys are left without subscribers.
async fn only(five: &Five, user: &User, keys: &[Vec<String>], when: &str) {
    user.idle().await;
    for (at, keys) in keys.iter().enumerate() {
        let admin = five.admin(at).await;
        let left = async || (admin.keys().await, admin.channels().await);
        becomes(&format!("{when}: keys and channels on server {at}"), (keys.clone(), Vec::new()), left).await;
        let names = async || user.clients[at].stats().names;
        becomes(&format!("{when}: names in the registry at server {at}"), 0, names).await;
    }
}

async fn all_keys(five: &Five) -> Vec<Vec<String>> {
    let mut keys = Vec::new();
    for at in five.all() {
        keys.push(five.admin(at).await.keys().await);
    }
    keys
}

/// Drops an acquire at its first await, then one at its second, and so on. Does the same with releases. The lock is
/// free, or another user holds it on one server or on most servers.
#[tokio::test]
async fn acquire_or_release_dropped_at_each_await_leaves_no_votes() {
    everywhere(async |five| {
        let (user, other) = (five.warm(Path::Direct, forgetful).await, five.warm(Path::Direct, forgetful).await);
        let flavours = [Flavour::Reentrant, Flavour::Fair, Flavour::Write];
        // In a cluster, each name is on another primary.
        for (flavour, name) in flavours.into_iter().zip(apart("each")) {
            let lock = user.over(flavour, &name);
            for taken in [0, 1, lock.quorum()] {
                let mut theirs = Vec::new();
                for client in &other.clients[..taken] {
                    theirs.push(client.lock(flavour, &name).acquire(long()).await.unwrap().unwrap());
                }
                let keys = all_keys(five).await;
                let is_free = taken < lock.quorum();
                // Longer than a waiter's pause between two queries of the lock.
                let how = || if is_free { long() } else { long().wait(ms(100)) };
                let acquire = async || match lock.acquire(how()).await {
                    Err(Error::NoQuorum { .. }) if !is_free => Ok(None),
                    outcome => outcome,
                };
                at_each_await(acquire, async |when| only(five, &user, &keys, &when).await).await;
                for guard in theirs {
                    guard.unlock().await.unwrap();
                }
            }
            ends("the lock is free", other.over(flavour, &name).lock()).await.unwrap().unlock().await.unwrap();
            other.idle().await;
            five.clean().await;
        }
    })
    .await;
}

//! Acquires and releases of RedLocks that are dropped leave no vote on any server or cluster.
//! `tests/sim/enumeration.rs` drops them beside rivals.

use distlock::{Error, Flavour};

use crate::rig::{Five, Path, User, everywhere, long, patient};
use bed::dropped::at_each_await;
use bed::{apart, becomes, ends, ms};

/// Like [`patient`], but subscriptions end soon after their last waiter.
fn forgetful(url: &str) -> distlock::Builder {
    patient(url).configure(|options| options.subscription_linger = ms(20))
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

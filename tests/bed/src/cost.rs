//! Counts the commands that each call sends, as the server sees them. `cost.rs` of each flavour asserts the cost
//! contract.

use std::collections::BTreeMap;
use std::sync::Arc;

use distlock::{Acquire, Backoff, Client, DistLock, Flavour, Guard};

use crate::{Bed, becomes, ends, idle, on_each, secs};

/// Commands for connections, subscriptions and topology. No operation causes them, and their times depend on the clock.
/// `tests/client/housekeeping.rs` asserts their number.
pub const HOUSEKEEPING: [&str; 10] =
    ["ping", "unsubscribe", "sunsubscribe", "punsubscribe", "cluster|", "role", "hello", "auth", "sentinel|", "select"];

/// Counts, by name, the commands that client operations sent since the last call or the last `bed.admin.reset_stats()`.
/// Does not count housekeeping ([`HOUSEKEEPING`]), commands inside scripts, or commands of administrators.
///
/// # Panics
/// If no client was connected after [`Bed::still_builder`], because the timers of other clients may add commands.
pub async fn sent(bed: &Bed) -> BTreeMap<String, u64> {
    let tape = bed.tape.get().expect("commands are counted from the first client of still_builder() or still_client()");
    let mut sent = tape.sent().await;
    bed.admin.reset_stats().await;
    // A new connection sets its name, and queries the server's version and its support for sharded channels. A
    // connection that is no longer needed sends `QUIT`.
    let is_own = |name: &str| {
        HOUSEKEEPING.iter().chain(&["client", "info", "pubsub", "quit"]).any(|own| name == own.trim_end_matches('|'))
    };
    sent.retain(|name, _| !is_own(name));
    sent
}

/// The expected counts, without commands whose count is 0.
pub fn only(commands: &[(&str, u64)]) -> BTreeMap<String, u64> {
    commands.iter().filter(|(_, count)| *count > 0).map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Checks ten acquires with `unlock`, and ten with a dropped guard. Each acquire with its release sends two commands.
pub async fn turns(bed: &Bed, client: &Client, lock: &(impl DistLock + ?Sized)) {
    for by_hand in [true, false] {
        for _ in 0..10 {
            let guard = lock.lock().await.unwrap();
            if by_hand {
                guard.unlock().await.unwrap();
            } else {
                drop(guard);
                idle(client).await;
            }
        }
        assert_eq!(sent(bed).await, only(&[("evalsha", 20)]), "{:?}, by hand: {by_hand}", lock.name());
    }
}

/// Runs every script of a flavour once, so that each server knows it, then resets the counts.
pub async fn warm(bed: &Bed, client: &Client, flavour: Flavour) {
    for name in on_each("warm") {
        let lock = client.lock(flavour, &name);
        let guard = lock.lock().await.unwrap();
        guard.extend(secs(20)).await.unwrap();
        client.renew_now().await;
        lock.state().await.unwrap();
        lock.force_unlock().await.unwrap();
        drop(guard);
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    idle(client).await;
    bed.admin.reset_stats().await;
}

/// Checks that each step of a reentrant flavour costs one command, even while the lock is busy.
pub async fn steps(bed: &Bed, client: &Client, flavour: Flavour) {
    let other = bed.still_client().await;
    let me = client.owner();
    let (lock, there) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
    bed.admin.reset_stats().await;
    turns(bed, client, &*lock).await;
    let how = || Acquire::new().owner(&me);
    let outer = lock.acquire(how()).await.unwrap().unwrap();
    let inner = lock.acquire(how()).await.unwrap().unwrap();
    assert!(lock.try_lock().await.unwrap().is_none() && there.try_lock().await.unwrap().is_none());
    assert_eq!(sent(bed).await, only(&[("evalsha", 4)]), "{flavour}");
    inner.unlock().await.unwrap();
    outer.extend(secs(3600)).await.unwrap();
    lock.state().await.unwrap();
    assert_eq!(sent(bed).await, only(&[("evalsha", 3)]), "{flavour}");
    assert_eq!(outer.fencing_token().is_ok(), flavour == Flavour::Fenced);
    assert_eq!(sent(bed).await, only(&[]), "{flavour}");
    lock.force_unlock().await.unwrap();
    assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "{flavour}");
    drop(outer);
    idle(client).await;
    sent(bed).await;
}

/// Checks that one round of renewals keeps all `guards` and sends `commands` commands.
pub async fn renewal(bed: &Bed, client: &Client, guards: &[Guard], commands: u64) {
    becomes("commands in flight", 0, async || client.stats().under_way).await;
    sent(bed).await;
    let round = client.renew_now().await;
    assert_eq!((round.renewed, round.failed, round.lost), (guards.len(), 0, 0));
    assert_eq!(sent(bed).await, only(&[("evalsha", commands)]), "a round for {} holds", guards.len());
}

/// Returns the commands of fifty hand-overs inside a process.
pub async fn passed_on(bed: &Bed, flavour: Flavour) -> BTreeMap<String, u64> {
    let client = bed
        .connect(bed.still_builder().configure(|options| {
            options.local_handoff_time = secs(600);
            options.local_handoff_limit = 1000;
        }))
        .await;
    let lock: Arc<dyn DistLock> = match flavour {
        // Spin waiters poll after a back-off. An hour prevents polls on a slow machine.
        Flavour::Spin => Arc::new(client.spin("x").backoff(Backoff::constant(secs(3600)).unwrap())),
        _ => client.lock(flavour, "x"),
    };
    let mut guard = lock.lock().await.unwrap();
    becomes("commands in flight", 0, async || client.stats().under_way).await;
    sent(bed).await;
    for _ in 0..50 {
        let next = lock.clone();
        let next = tokio::spawn(async move { next.lock().await.unwrap() });
        becomes("waiting tasks", 1, async || client.stats().waiting).await;
        guard.unlock().await.unwrap();
        guard = ends("the next holder", next).await.unwrap();
    }
    let count = sent(bed).await;
    guard.unlock().await.unwrap();
    assert_eq!(sent(bed).await.get("evalsha"), Some(&1), "{flavour}");
    count
}

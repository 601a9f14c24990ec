//! What each call sends, by the server's own counts: the cost contract is asserted in `cost.rs` of each flavour.

use std::collections::BTreeMap;
use std::sync::Arc;

use distlock::{Acquire, Backoff, Client, DistLock, Flavour, Guard};

use crate::{Bed, becomes, idle, on_each, secs};

/// Commands that scripts run on the server. `INFO commandstats` counts them like commands that a client sent.
const INSIDE_SCRIPTS: [&str; 31] = [
    "exists",
    "hexists",
    "hincrby",
    "hset",
    "hget",
    "hkeys",
    "hgetall",
    "pexpire",
    "pttl",
    "del",
    "type",
    "time",
    "lindex",
    "lrange",
    "lpop",
    "lrem",
    "rpush",
    "zadd",
    "zincrby",
    "zrange",
    "zrem",
    "zscore",
    "hmget",
    "hdel",
    "hlen",
    "hrandfield",
    "set",
    "zcount",
    "incr",
    "get",
    "persist",
];

/// Commands of the client's connections, subscriptions and topology, not of an operation. When they are sent depends on the clock.
/// `tests/client/housekeeping.rs` asserts how many there are.
pub const HOUSEKEEPING: [&str; 10] =
    ["ping", "unsubscribe", "sunsubscribe", "punsubscribe", "cluster|", "role", "hello", "auth", "sentinel|", "select"];

/// True for a command that [`Admin`](distlock_support::Admin) sends to inspect the server, and for PUBLISH.
fn observes(name: &str) -> bool {
    ["config", "info", "client", "latency", "publish", "spublish", "monitor"].iter().any(|own| name.starts_with(own))
}

/// Commands that operations of clients sent since the last call, by name. Does not count housekeeping ([`HOUSEKEEPING`]), commands that
/// only observe, and commands that scripts run.
pub async fn sent(bed: &Bed) -> BTreeMap<String, u64> {
    let mut stats = bed.admin.commandstats().await;
    bed.admin.reset_stats().await;
    stats.retain(|name, _| {
        let name = name.as_str();
        let keeps_house = HOUSEKEEPING.iter().any(|own| name.starts_with(own));
        !observes(name) && !keeps_house && !INSIDE_SCRIPTS.contains(&name)
    });
    stats
}

/// So many of these, and nothing else.
pub fn only(commands: &[(&str, u64)]) -> BTreeMap<String, u64> {
    commands.iter().filter(|(_, count)| *count > 0).map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Ten turns given back by hand, and ten by dropping: two commands each.
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

/// Has every script of a flavour run once, so that each server knows it, and forgets the counts.
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

/// Each step of a lock of a reentrant flavour costs one command, also while the lock is busy.
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
    assert_eq!(outer.token().is_some(), flavour == Flavour::Fenced);
    assert_eq!(sent(bed).await, only(&[]), "{flavour}");
    lock.force_unlock().await.unwrap();
    assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "{flavour}");
    drop(outer);
    idle(client).await;
    sent(bed).await;
}

/// One round of renewals keeps all of `guards`, by so many commands.
///
/// A new connection or slot triggers extra confirmations. Then the next round is counted, three at most.
pub async fn renewal(bed: &Bed, client: &Client, guards: &[Guard], commands: u64) {
    let expected = only(&[("evalsha", commands)]);
    let mut counts = Vec::new();
    while counts.len() < 3 {
        sent(bed).await;
        let round = client.renew_now().await;
        assert_eq!((round.renewed, round.failed, round.lost), (guards.len(), 0, 0));
        counts.push(sent(bed).await);
        if counts.last() == Some(&expected) {
            return;
        }
        becomes("commands in flight", 0, async || client.stats().under_way).await;
    }
    panic!("a round for {} holds: expected {expected:?}, counted {counts:?}", guards.len());
}

/// What it costs to hand a lock over fifty times inside a process. Returns the lowest count of up to three rounds.
///
/// A new connection or slot triggers extra confirmations. Then the next round is counted.
pub async fn passed_on(bed: &Bed, flavour: Flavour) -> BTreeMap<String, u64> {
    let client = bed.connect(bed.still_builder().handoff_time(secs(600)).handoff_limit(1000)).await;
    let lock: Arc<dyn DistLock> = match flavour {
        // Spin waiters poll after a backoff. An hour prevents polls on a slow machine.
        Flavour::Spin => Arc::new(client.spin("x").backoff(Backoff::constant(secs(3600)).unwrap())),
        _ => client.lock(flavour, "x"),
    };
    let mut guard = lock.lock().await.unwrap();
    let mut counts = Vec::new();
    while counts.len() < 3 {
        becomes("commands in flight", 0, async || client.stats().under_way).await;
        sent(bed).await;
        for _ in 0..50 {
            let next = lock.clone();
            let next = tokio::spawn(async move { next.lock().await.unwrap() });
            becomes("waiting tasks", 1, async || client.stats().waiting).await;
            guard.unlock().await.unwrap();
            guard = next.await.unwrap();
        }
        counts.push(sent(bed).await);
        if counts.last().is_some_and(|count| !count.contains_key("evalsha")) {
            break;
        }
    }
    guard.unlock().await.unwrap();
    assert_eq!(sent(bed).await.get("evalsha"), Some(&1), "{flavour}");
    let scripts = |count: &BTreeMap<String, u64>| count.get("evalsha").copied().unwrap_or_default();
    counts.into_iter().min_by_key(scripts).unwrap_or_default()
}

//! Helpers of the multi lock's tests: members, a second server, and the members' state in Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use distlock::{Builder, Client, DistLock, Flavour, MultiLock, Owner};
use distlock_support::{Admin, RedisServer};

use bed::{Bed, PATIENCE, becomes, eventually, idle, kin, text};

pub fn member(lock: impl DistLock + 'static) -> Arc<dyn DistLock> {
    Arc::new(lock)
}

pub fn multi(client: &Client, members: &[(Flavour, &str)]) -> MultiLock {
    MultiLock::of(members.iter().map(|(flavour, name)| client.lock(*flavour, name)).collect())
}

/// Joins fair locks. No script acquires several fair locks, so each one is acquired alone, and stays held during the
/// wait for the next.
pub fn fair(client: &Client, names: &[&str]) -> MultiLock {
    multi(client, &names.iter().map(|name| (Flavour::Fair, *name)).collect::<Vec<_>>())
}

/// Asserts how often the owner holds each of these locks, and that no other owner holds them.
pub async fn counts(admin: &Admin, owner: &Owner, expected: &[(&str, u32)]) {
    for (name, times) in expected {
        let holds = if *times == 0 { BTreeMap::new() } else { [(text(owner), times.to_string())].into() };
        assert_eq!(admin.hgetall(name).await, holds, "holds of {name}");
        assert!(*times == 0 || admin.pttl(name).await > 0, "{name} never expires");
    }
}

pub async fn only_keys(admin: &Admin, expected: &[&str]) {
    let expected = BTreeSet::from_iter(expected.iter().map(|key| (*key).to_owned()));
    becomes("keys", expected, async || BTreeSet::from_iter(admin.keys().await)).await;
}

/// Waits until this client has one waiting acquire, and is subscribed to the lock's channel.
pub async fn waits_at(bed: &Bed, client: &Client, name: &str) {
    becomes("acquires that wait", 1, async || client.stats().waiting).await;
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually("it listens", async || bed.admin.numsub(&channel).await > 0).await;
}

/// Runs the scripts of plain members once, so that the server knows them, and resets the counters.
pub async fn warm(admin: &Admin, client: &Client) {
    let both = client.multi(["warm 1", "warm 2"].map(kin));
    let guard = both.lock().await.unwrap();
    client.renew_now().await;
    guard.unlock().await.unwrap();
    both.locks()[0].lock().await.unwrap().unlock().await.unwrap();
    // Concurrent calls are batched.
    let many: Vec<_> = (0..20).map(|n| client.reentrant(&kin(&format!("warm {n}")))).collect();
    let guards = futures::future::join_all(many.iter().map(|lock| lock.lock())).await;
    futures::future::join_all(guards.into_iter().map(|guard| guard.unwrap().unlock())).await;
    idle(client).await;
    admin.reset_stats().await;
}

pub struct Second {
    pub server: RedisServer,
    pub client: Client,
}

impl Second {
    pub async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    pub async fn with(options: impl FnOnce(Builder) -> Builder) -> Self {
        let server = RedisServer::start();
        let client = options(bed::builder(&server.url())).connect().await.unwrap();
        Self { server, client }
    }

    pub async fn admin(&self) -> Admin {
        Admin::connect(&self.server).await
    }

    pub async fn end(self) {
        idle(&self.client).await;
        assert_eq!(self.admin().await.keys().await, [""; 0], "keys on the second server");
        self.client.shutdown(PATIENCE).await.unwrap();
    }
}

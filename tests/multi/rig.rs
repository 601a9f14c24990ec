//! What the tests of the multi lock add to the bed: a second server, and what stands in Redis of each member.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use distlock::{Builder, Client, DistLock, Flavour, MultiLock, Owner};
use distlock_support::{Admin, RedisServer};

use bed::{Bed, QUICK, eventually, idle, kin, ms, secs, text};

/// One lock as a member.
pub fn member(lock: impl DistLock + 'static) -> Arc<dyn DistLock> {
    Arc::new(lock)
}

/// Locks of these flavours and names as one.
pub fn multi(client: &Client, members: &[(Flavour, &str)]) -> MultiLock {
    MultiLock::of(members.iter().map(|(flavour, name)| client.lock(*flavour, name)).collect())
}

/// Fair locks as one. No script takes these together: each is asked for by itself, and held while another is waited for.
pub fn fair(client: &Client, names: &[&str]) -> MultiLock {
    multi(client, &names.iter().map(|name| (Flavour::Fair, *name)).collect::<Vec<_>>())
}

/// The hash must be this owner's, so many times; 0: there is none.
#[track_caller]
pub fn held_by(owner: &Owner, times: u32) -> BTreeMap<String, String> {
    if times == 0 { BTreeMap::new() } else { [(text(owner), times.to_string())].into() }
}

/// How often the owner holds each of these, and nobody else holds them.
pub async fn counts(admin: &Admin, owner: &Owner, expected: &[(&str, u32)]) {
    for (name, times) in expected {
        assert_eq!(admin.hgetall(name).await, held_by(owner, *times), "{name}");
        assert!(*times == 0 || admin.pttl(name).await > 0, "{name} has no end");
    }
}

/// Waits until these keys are all there are.
pub async fn only_keys(admin: &Admin, expected: &[&str]) {
    let mut expected: Vec<_> = expected.iter().map(|key| (*key).to_owned()).collect();
    expected.sort();
    let mut found = Vec::new();
    let deadline = std::time::Instant::now() + secs(5);
    while std::time::Instant::now() < deadline {
        found = admin.keys().await;
        found.sort();
        if found == expected {
            return;
        }
        tokio::time::sleep(ms(2)).await;
    }
    panic!("keys {found:?}, expected {expected:?}");
}

/// Has the scripts of plain members run once, so that the server knows them, and forgets the counts.
pub async fn warm(admin: &Admin, client: &Client) {
    let both = client.multi(["warm 1", "warm 2"].map(kin));
    let guard = both.lock().await.unwrap();
    client.renew_now().await;
    guard.unlock().await.unwrap();
    both.locks()[0].lock().await.unwrap().unlock().await.unwrap();
    // Many at a time go out together.
    let many: Vec<_> = (0..20).map(|n| client.reentrant(&kin(&format!("warm {n}")))).collect();
    let guards = futures::future::join_all(many.iter().map(|lock| lock.lock())).await;
    futures::future::join_all(guards.into_iter().map(|guard| guard.unwrap().unlock())).await;
    idle(client).await;
    admin.reset_stats().await;
}

/// Waits until the client has so many acquires in queues here, and they have said to Redis what they have to say.
pub async fn settled(bed: &Bed, client: &Client, waiting: usize) {
    eventually("it waits", async || client.stats().waiting == waiting).await;
    let mut asked = u64::MAX;
    eventually("it is silent", async || {
        let now = bed.admin.calls("evalsha").await;
        let same = std::mem::replace(&mut asked, now) == now;
        tokio::time::sleep(ms(20)).await;
        same
    })
    .await;
}

/// Another server with a client of its own.
pub struct Second {
    pub server: RedisServer,
    pub client: Client,
}

impl Second {
    pub async fn start() -> Self {
        Self::with(|builder| builder.watchdog(QUICK).command_timeout(QUICK / 3).retry_attempts(2)).await
    }

    pub async fn with(options: impl FnOnce(Builder) -> Builder) -> Self {
        let server = RedisServer::start();
        let builder = options(Client::builder(&server.url()).retry_delay((ms(10), ms(100))));
        let client = builder.connect().await.unwrap();
        Self { server, client }
    }

    pub async fn admin(&self) -> Admin {
        Admin::connect(&self.server).await
    }

    /// Nothing is left there.
    pub async fn end(self) {
        idle(&self.client).await;
        assert_eq!(self.admin().await.keys().await, [""; 0], "on the second server");
        self.client.shutdown(secs(5)).await.unwrap();
    }
}

/// Waits for a lock within the test's patience.
pub async fn soon<T>(what: &str, within: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(within, work).await.unwrap_or_else(|_| panic!("not within {within:?}: {what}"))
}

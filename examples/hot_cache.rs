//! A cache entry that is expensive to build and in high demand: `cargo run --example hot_cache`.
//!
//! When the entry expires, all readers miss at once. One reader rebuilds it under the lock. The others wait for the
//! lock, check the cache again, and find the entry. Without the second check, each of them would rebuild it in turn.
//!
//! Starts its own Redis unless `REDIS_URL` names one.

mod private_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use distlock::{Client, Error, ReentrantLock};
use distlock_support::Admin;
use tokio::task::JoinSet;

const READERS: usize = 100;
const EXPIRIES: u32 = 5;

struct Cache {
    redis: Admin,
    key: String,
    lock: ReentrantLock,
    rebuilds: Arc<AtomicU32>,
}

impl Cache {
    async fn look(&self) -> Option<String> {
        self.redis.cmd(&["GET", &self.key]).await
    }

    async fn get(&self) -> Result<String, Error> {
        if let Some(value) = self.look().await {
            return Ok(value);
        }
        let guard = self.lock.lock().await?;
        // Another reader may have rebuilt the entry meanwhile.
        let value = match self.look().await {
            Some(value) => value,
            None => guard.run(self.rebuild()).await?,
        };
        guard.unlock().await?;
        Ok(value)
    }

    /// Builds the entry, which is expensive.
    async fn rebuild(&self) -> String {
        let number = self.rebuilds.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let value = format!("version {number}");
        let _: () = self.redis.cmd(&["SET", &self.key, &value, "EX", "60"]).await;
        value
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = private_server::start_unless_given();
    let rebuilds = Arc::new(AtomicU32::new(0));
    let key = format!("{}front-page", server.prefix);

    // Two clients stand for two processes.
    let mut clients = Vec::new();
    let mut caches = Vec::new();
    for _ in 0..2 {
        let client = Client::builder(&server.url).name_prefix(&server.prefix).connect().await?;
        let lock = client.reentrant("front-page:rebuild");
        let redis = Admin::from_url(&server.url).await;
        caches.push(Arc::new(Cache { redis, key: key.clone(), lock, rebuilds: Arc::clone(&rebuilds) }));
        clients.push(client);
    }

    let admin = Admin::from_url(&server.url).await;
    for expiry in 1..=EXPIRIES {
        // Expire the entry.
        let _: () = admin.cmd(&["DEL", &key]).await;
        let began = Instant::now();
        let mut readers = JoinSet::new();
        for reader in 0..READERS {
            let cache = Arc::clone(&caches[reader % caches.len()]);
            readers.spawn(async move { cache.get().await });
        }
        while let Some(value) = readers.join_next().await {
            assert_eq!(value??, format!("version {expiry}"), "everybody reads what was rebuilt once");
        }
        println!("expiry {expiry}: {READERS} readers served after {:?}", began.elapsed());
    }

    let _: () = admin.cmd(&["DEL", &key]).await;
    drop(caches);
    for client in clients {
        client.shutdown(Duration::from_secs(5)).await?;
    }
    let rebuilds = rebuilds.load(Ordering::SeqCst);
    println!("{EXPIRIES} expiries, {rebuilds} rebuilds");
    assert_eq!(rebuilds, EXPIRIES);
    Ok(())
}

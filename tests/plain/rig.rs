//! Helpers of the plain lock's tests: strangers (users of other libraries on the same keys), and counts of commands.

use std::time::Duration;

use distlock::{Acquire, Client, Flavour};
use distlock_support::Admin;

use bed::{Bed, idle};

pub async fn plain(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Plain, name), body).await;
}

/// A user of another library, who sends the commands of the Redlock documentation.
pub struct Stranger<'a> {
    pub admin: &'a Admin,
    pub value: &'a str,
}

impl Stranger<'_> {
    pub async fn takes(&self, key: &str, lease: Duration) -> bool {
        let lease = lease.as_millis().to_string();
        let taken: Option<String> = self.admin.cmd(&["SET", key, self.value, "NX", "PX", &lease]).await;
        taken.is_some()
    }

    pub async fn releases(&self, key: &str) -> bool {
        let delete = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
        self.admin.cmd::<u64>(&["EVAL", delete, "1", key, self.value]).await == 1
    }

    pub async fn extends(&self, key: &str, lease: Duration) -> bool {
        let extend =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
        let lease = lease.as_millis().to_string();
        self.admin.cmd::<u64>(&["EVAL", extend, "1", key, self.value, &lease]).await == 1
    }
}

pub async fn value(bed: &Bed, key: &str) -> Option<String> {
    bed.admin.cmd(&["GET", key]).await
}

/// Connects a client, teaches the server the scripts, and resets the counters.
pub async fn warm(bed: &Bed) -> Client {
    let client =
        bed.connect(bed.still_builder().configure(|options| options.local_handoff_time = bed::secs(600))).await;
    let lock = client.plain("warm");
    // An owner that other tasks may use acquires by a script.
    let guard = lock.acquire(Acquire::new().owner(&client.owner())).await.unwrap().unwrap();
    guard.extend(bed::secs(60)).await.unwrap();
    assert!(lock.is_locked().await.unwrap() && lock.force_unlock().await.unwrap());
    drop(guard);
    lock.lock().await.unwrap().unlock().await.unwrap();
    idle(&client).await;
    bed.admin.reset_stats().await;
    client
}

/// Returns the number of scripts and of plain `SET` commands since the last call. Only subscriptions may be sent in
/// addition.
pub async fn sent(bed: &Bed) -> (u64, u64) {
    let mut sent = bed::cost::sent(bed).await;
    let [eval, evalsha, set, _] =
        ["eval", "evalsha", "set", "subscribe"].map(|name| sent.remove(name).unwrap_or_default());
    assert!(sent.is_empty(), "other commands: {sent:?}");
    (eval + evalsha, set)
}

//! A server, its administrator, and blocking clients.

use std::fmt::Debug;
use std::time::Duration;

use bed::{COUNTER, in_vain, ms, secs};
use distlock::blocking::Client;
use distlock::{Builder, Result};
use distlock_support::{Admin, Baseline, RedisServer, assert_nothing_left};
use tokio::runtime::{self, Runtime};

pub struct Rig {
    pub server: RedisServer,
    pub admin: Admin,
    /// Runs the administrator and the waits for events.
    pub runtime: Runtime,
    baseline: Baseline,
}

impl Rig {
    pub fn start() -> Self {
        let (server, runtime) = (RedisServer::start(), runtime());
        let (admin, baseline) = runtime.block_on(async {
            let admin = Admin::connect(&server).await;
            let baseline = Baseline::take(&admin).await;
            (admin, baseline)
        });
        // Tokens, barriers and the counters of fenced locks outlive their use.
        let baseline = baseline.allow_key("distlock_once:*").allow_key("distlock_barrier:*");
        Self { server, admin, runtime, baseline: baseline.allow_key(&format!("{COUNTER}*")) }
    }

    /// No lease ends during a test, so only a release frees a lock.
    pub fn builder(&self) -> Builder {
        bed::builder(&self.server.url()).watchdog(secs(3600))
    }

    pub fn client(&self) -> Client {
        Client::start(self.builder().connect()).unwrap()
    }

    pub fn delete(&self, key: &str) {
        self.runtime.block_on(self.admin.cmd::<()>(&["DEL", key]));
    }

    pub fn keys(&self) -> Vec<String> {
        self.runtime.block_on(self.admin.keys())
    }

    /// Waits until this many calls of the client wait.
    pub fn wait_for_waiters(&self, client: &Client, count: usize) {
        let waiting = async || client.as_async().stats().waiting;
        self.runtime.block_on(bed::becomes("waiting calls", count, waiting));
    }

    /// Checks that no key and no connection is left. All clients must have been dropped.
    pub fn end(self) {
        self.runtime.block_on(assert_nothing_left(&self.admin, &self.baseline));
    }
}

pub fn runtime() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Waits for an object that others hold, until the wait runs out. On a slow machine a command may be in flight at that
/// moment. Then a longer wait follows.
pub fn waits_in_vain<T: Debug>(attempt: impl Fn(Duration) -> Result<Option<T>>) {
    for wait in [50, 500, 5_000, 50_000] {
        match attempt(ms(wait)) {
            Ok(None) => return,
            outcome => assert!(in_vain(&outcome), "a wait of {wait} ms: {outcome:?}"),
        }
    }
    panic!("no wait was long enough");
}

/// Renews all locks now, which detects deleted keys. Returns how many guards have lost their locks.
pub fn renew(client: &Client) -> usize {
    client.block_on(async { Ok(client.as_async().renew_now().await.lost) }).unwrap()
}

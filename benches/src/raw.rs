//! The upper bound: only the two `EVALSHA`s of a lock and its unlock, with the client library and the settings of
//! distlock's own connections. There are no waiters, no watchdog and no guards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::{ClientLike as _, LuaInterface as _};
use fred::types::config::{
    Config, ConnectionConfig, PerformanceConfig, ReconnectError, ReconnectPolicy, TcpConfig, UnresponsiveConfig,
};
use fred::types::{ClusterHash, CustomCommand, RespVersion, Value};

use crate::subject::{LEASE, Lock, Subject};

const ACQUIRE: &str =
    concat!(include_str!("../../lua/common/holds.lua"), include_str!("../../lua/reentrant/acquire.lua"));
const RELEASE: &str =
    concat!(include_str!("../../lua/common/holds.lua"), include_str!("../../lua/reentrant/release.lua"));
const RENEW: &str = concat!(
    include_str!("../../lua/common/holds.lua"),
    include_str!("../../lua/common/renew/begin.lua"),
    include_str!("../../lua/common/renew.lua"),
);

/// Equal to the defaults of `Options::command_timeout` and `Options::connect_timeout`.
const COMMAND: Duration = Duration::from_secs(3);
const CONNECT: Duration = Duration::from_secs(10);

/// A pool of connections to a server that has loaded the scripts.
#[derive(Clone)]
pub struct Raw(Arc<Inner>);

struct Inner {
    lines: Vec<Client>,
    next: AtomicUsize,
    owners: AtomicU64,
    acquire: Bytes,
    release: Bytes,
    renew: Bytes,
}

impl Raw {
    pub async fn connect(url: &str, pool: usize) -> Self {
        let mut lines = Vec::with_capacity(pool);
        for _ in 0..pool {
            let line = client(url);
            // The task ends when the connection is closed.
            drop(line.connect());
            line.wait_for_connect().await.unwrap_or_else(|error| panic!("raw: {error}"));
            lines.push(line);
        }
        let load = async |text: &str| {
            let sha: Result<String, _> = lines[0].script_load(text).await;
            Bytes::from(sha.unwrap_or_else(|error| panic!("raw: {error}")))
        };
        let (acquire, release, renew) = (load(ACQUIRE).await, load(RELEASE).await, load(RENEW).await);
        Self(Arc::new(Inner { lines, next: AtomicUsize::new(0), owners: AtomicU64::new(1), acquire, release, renew }))
    }

    async fn eval(&self, words: Vec<Value>) -> Value {
        let lines = &self.0.lines;
        let next = if lines.len() == 1 { 0 } else { self.0.next.fetch_add(1, Ordering::Relaxed) % lines.len() };
        let command = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let reply: Result<Value, _> = lines[next].custom(command, words).await;
        reply.unwrap_or_else(|error| panic!("raw: {error}"))
    }

    /// Renews the leases of all these locks with one command.
    pub async fn renew(&self, locks: &[RawLock]) -> usize {
        let mut words = Vec::with_capacity(locks.len() * 2 + 3);
        words.push(Value::Bytes(self.0.renew.clone()));
        words.push(integer(locks.len()));
        words.extend(locks.iter().map(|lock| Value::Bytes(lock.key.clone())));
        words.extend([lease(), integer(0)]);
        // Each lock has only one hold.
        words.extend(locks.iter().flat_map(|lock| [Value::Bytes(lock.owner.clone()), Value::Bytes(Bytes::new())]));
        match self.eval(words).await {
            Value::Array(entries) => entries.iter().filter(|entry| entry.as_i64() == Some(1)).count(),
            odd => panic!("raw: renewal answered {odd:?}"),
        }
    }

    pub async fn close(self) {
        for line in &self.0.lines {
            line.quit().await.unwrap_or_else(|error| panic!("raw: {error}"));
        }
    }
}

/// Uses the settings of `src/transport/node/connect.rs`.
fn client(url: &str) -> Client {
    let mut config = Config::from_url_centralized(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    config.version = RespVersion::RESP3;
    config.fail_fast = false;
    let connection = ConnectionConfig {
        connection_timeout: CONNECT,
        internal_command_timeout: CONNECT,
        max_command_attempts: 1,
        unresponsive: UnresponsiveConfig { max_timeout: Some(COMMAND), interval: COMMAND / 4 },
        tcp: TcpConfig { nodelay: Some(true), user_timeout: Some(COMMAND * 2), ..TcpConfig::default() },
        reconnect_errors: vec![
            ReconnectError::ReadOnly,
            ReconnectError::Loading,
            ReconnectError::MasterDown,
            ReconnectError::ClusterDown,
        ],
        ..ConnectionConfig::default()
    };
    let performance = PerformanceConfig {
        default_command_timeout: COMMAND,
        broadcast_channel_capacity: 4096,
        ..PerformanceConfig::default()
    };
    let policy = ReconnectPolicy::new_exponential(0, 20, 2_000, 2);
    Client::new(config, Some(performance), Some(connection), Some(policy))
}

fn integer(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn lease() -> Value {
    Value::Integer(i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX))
}

impl Subject for Raw {
    type Lock = RawLock;

    fn lock(&self, name: String) -> RawLock {
        let owner = self.0.owners.fetch_add(1, Ordering::Relaxed);
        RawLock {
            raw: self.clone(),
            channel: Bytes::from(format!("redisson_lock__channel:{{{name}}}")),
            key: Bytes::from(name),
            owner: Bytes::from(format!("00000000-0000-8000-8000-000000000000:{owner}")),
        }
    }
}

/// One name and one owner.
pub struct RawLock {
    raw: Raw,
    key: Bytes,
    channel: Bytes,
    owner: Bytes,
}

impl Lock for RawLock {
    type Guard = ();

    async fn acquire(&mut self) {
        let words = vec![
            Value::Bytes(self.raw.0.acquire.clone()),
            Value::Integer(1),
            Value::Bytes(self.key.clone()),
            Value::Bytes(self.owner.clone()),
            lease(),
        ];
        let reply = self.raw.eval(words).await;
        assert!(reply.is_null(), "raw: the lock is busy, and nothing waits here: {reply:?}");
    }

    async fn release(&mut self, (): ()) {
        let words = vec![
            Value::Bytes(self.raw.0.release.clone()),
            Value::Integer(1),
            Value::Bytes(self.key.clone()),
            Value::Bytes(self.owner.clone()),
            lease(),
            Value::Bytes(Bytes::from_static(b"PUBLISH")),
            Value::Bytes(self.channel.clone()),
        ];
        let reply = self.raw.eval(words).await;
        assert_eq!(reply.as_i64(), Some(0), "raw: not released");
    }
}

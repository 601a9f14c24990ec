//! An administrator's connection to a server, independent of the client library under test.

mod line;
mod several;

use std::collections::BTreeMap;

use redis::{FromRedisValue, RedisResult, Value};

use crate::server::RedisServer;
use line::Line;

/// The name every admin connection gives itself; [`Admin::others`] leaves them all out.
pub const NAME: &str = "distlock-admin";

/// `MONITOR` does not show `CONFIG RESETSTAT`; it shows `ECHO` of this, which [`Admin::reset_stats`] sends before.
pub const RESET: &str = "the stats are reset";

/// By this channel sentinels hear of each other.
const SENTINELS: &str = "__sentinel__:hello";

/// One line of `CLIENT LIST`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// The connection's id, unique over the life of the server.
    pub id: u64,
    /// The name set by `CLIENT SETNAME`, or empty.
    pub name: String,
    /// The last command, such as `evalsha` or `client|list`.
    pub cmd: String,
    /// The flags, such as `N` (normal) or `P` (subscriber).
    pub flags: String,
    /// Subscriptions: channels, patterns and shard channels together.
    pub sub: u64,
    /// The address of the client's end.
    pub addr: String,
}

/// A connection for looking at a server and for breaking it.
///
/// It connects on demand and again after a restart. A command that is under way when the server
/// dies may therefore run twice. The typed helpers panic when the server answers by an error.
///
/// It may be for all primaries of a cluster: see [`Admin::of_cluster`].
#[derive(Debug)]
pub struct Admin {
    lines: Vec<Line>,
    /// Which of them has which slot; empty where this is one server, and not about a cluster.
    slots: Vec<usize>,
}

impl Admin {
    /// Connects to a server of this crate.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub async fn connect(server: &RedisServer) -> Self {
        Self::from_url(&server.url()).await
    }

    /// Connects to `redis://...`.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub async fn from_url(url: &str) -> Self {
        let admin = Self { lines: vec![Line::to(url)], slots: Vec::new() };
        let _: String = admin.cmd(&["CLIENT", "GETNAME"]).await;
        admin
    }

    /// Sends one command and gives the answer as it is, errors included.
    ///
    /// # Errors
    /// What the server says, or the connection's error when it stays away for 10 s.
    pub async fn raw<A: AsRef<[u8]>>(&self, args: &[A]) -> RedisResult<Value> {
        match &self.lines[..] {
            [line] => line.raw(args).await,
            _ => self.raw_anywhere(args).await,
        }
    }

    /// Sends one command and converts the answer.
    ///
    /// # Panics
    /// When the server answers by an error or by something of another type.
    pub async fn cmd<T: FromRedisValue>(&self, args: &[&str]) -> T {
        self.cmd_bytes(args).await
    }

    /// As [`Admin::cmd`], for arguments that are no text.
    ///
    /// # Panics
    /// When the server answers by an error or by something of another type.
    pub async fn cmd_bytes<T: FromRedisValue, A: AsRef<[u8]>>(&self, args: &[A]) -> T {
        converted(self.raw(args).await, args)
    }

    /// All keys, by `SCAN`, sorted.
    pub async fn keys(&self) -> Vec<String> {
        self.scan(&[]).await
    }

    /// All keys that hold a hash, sorted.
    pub async fn hash_keys(&self) -> Vec<String> {
        self.scan(&["TYPE", "hash"]).await
    }

    async fn scan(&self, options: &[&str]) -> Vec<String> {
        let mut keys = Vec::new();
        for line in &self.lines {
            let mut cursor = String::from("0");
            loop {
                let args = [&["SCAN", &cursor, "COUNT", "1000"], options].concat();
                let (next, page): (String, Vec<Vec<u8>>) = converted(line.raw(&args).await, &args);
                keys.extend(page.iter().map(|k| String::from_utf8_lossy(k).into_owned()));
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    /// The fields of a hash, but for the lists of holds, which Redisson knows nothing of; empty when there is none.
    pub async fn hgetall(&self, key: &str) -> BTreeMap<String, String> {
        let mut fields = self.hgetall_whole(key).await;
        fields.retain(|field, _| !field.ends_with(":holds"));
        fields
    }

    /// All fields of a hash.
    pub async fn hgetall_whole(&self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key]).await
    }

    /// The remaining life of a key in ms; −1: no end, −2: no key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.cmd(&["PTTL", key]).await
    }

    /// Whether the key exists.
    pub async fn exists(&self, key: &str) -> bool {
        self.cmd(&["EXISTS", key]).await
    }

    /// The channels with a subscriber, sorted, without the one by which sentinels hear of each other.
    pub async fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.cmd(&["PUBSUB", "CHANNELS", "*"]).await;
        if self.is_cluster() {
            channels.extend(self.shard_channels().await);
        }
        channels.retain(|channel| channel != SENTINELS);
        channels.sort();
        channels
    }

    /// The shard channels with a subscriber, sorted; none on servers before 7.0.
    pub async fn shard_channels(&self) -> Vec<String> {
        let Ok(value) = self.raw(&["PUBSUB", "SHARDCHANNELS", "*"]).await else {
            return Vec::new();
        };
        let mut channels: Vec<String> =
            redis::from_redis_value(value).unwrap_or_else(|e| panic!("PUBSUB SHARDCHANNELS: odd answer: {e}"));
        channels.sort();
        channels
    }

    /// How many connections subscribe to a channel.
    pub async fn numsub(&self, channel: &str) -> u64 {
        let sharded = if self.is_cluster() { self.listeners("SHARDNUMSUB", channel).await } else { 0 };
        sharded + self.listeners("NUMSUB", channel).await
    }

    /// All connections, the admins' included.
    pub async fn client_list(&self) -> Vec<ClientInfo> {
        self.clients(&["CLIENT", "LIST"]).await
    }

    /// All connections but those of admins, of sentinels and of replicas.
    pub async fn others(&self) -> Vec<ClientInfo> {
        let mut list = self.client_list().await;
        list.retain(|c| c.name != NAME && !c.name.starts_with("sentinel-") && !c.flags.contains(['S', 'M']));
        list
    }

    /// Closes all connections of a type (`normal`, `pubsub`) but admins'; gives their number.
    pub async fn client_kill_type(&self, kind: &str) -> u64 {
        let mut killed = 0;
        for client in self.clients(&["CLIENT", "LIST", "TYPE", kind]).await.iter().filter(|c| c.name != NAME) {
            killed += self.kill(client.id).await;
        }
        killed
    }

    /// Closes one connection; whether it was there.
    pub async fn client_kill(&self, id: u64) -> bool {
        self.kill(id).await > 0
    }

    /// Calls per command since the last reset (`INFO commandstats`). Names are in lower case:
    /// `evalsha`, `subscribe`, `client|list`. What scripts call inside counts as well.
    pub async fn commandstats(&self) -> BTreeMap<String, u64> {
        let info: String = self.cmd(&["INFO", "commandstats"]).await;
        self.count(info.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = rest.strip_prefix("calls=")?.split(',').next()?;
            Some((name.to_lowercase(), calls.parse().ok()?))
        }))
    }

    /// The calls of one command since the last reset.
    pub async fn calls(&self, command: &str) -> u64 {
        self.commandstats().await.get(command).copied().unwrap_or(0)
    }

    /// One field of `CLUSTER INFO` or of a section of `INFO`; empty where there is none.
    pub(crate) async fn field(&self, command: &[&str], name: &str) -> String {
        let text: String = self.cmd(command).await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Sets the counters of [`Admin::commandstats`] to zero.
    pub async fn reset_stats(&self) {
        let _: String = self.cmd(&["ECHO", RESET]).await;
        self.cmd(&["CONFIG", "RESETSTAT"]).await
    }

    /// `CONFIG SET`.
    pub async fn config_set(&self, name: &str, value: &str) {
        self.cmd(&["CONFIG", "SET", name, value]).await
    }

    /// `CLIENT PAUSE`: for `ms`, `"ALL"` commands or only `"WRITE"` ones wait. The admin's too:
    /// under `ALL` even `CLIENT UNPAUSE` waits.
    pub async fn pause(&self, ms: u64, mode: &str) {
        self.cmd(&["CLIENT", "PAUSE", &ms.to_string(), mode]).await
    }

    /// Makes the server forget all scripts.
    pub async fn script_flush(&self) {
        self.cmd(&["SCRIPT", "FLUSH"]).await
    }

    /// Publishes a message; gives the number of connections that got it.
    pub async fn publish(&self, channel: &str, message: &[u8]) -> u64 {
        let is_sharded = self.is_cluster() && self.listeners("SHARDNUMSUB", channel).await > 0;
        let command: &[u8] = if is_sharded { b"SPUBLISH" } else { b"PUBLISH" };
        self.cmd_bytes(&[command, channel.as_bytes(), message]).await
    }
}

fn converted<T: FromRedisValue, A: AsRef<[u8]>>(answer: RedisResult<Value>, args: &[A]) -> T {
    let show = || {
        let words = args.iter().map(|a| String::from_utf8_lossy(a.as_ref()));
        words.collect::<Vec<_>>().join(" ")
    };
    let value = answer.unwrap_or_else(|e| panic!("admin command `{}`: {e}", show()));
    redis::from_redis_value(value).unwrap_or_else(|e| panic!("admin command `{}`: odd answer: {e}", show()))
}

fn client_info(line: &str) -> ClientInfo {
    let mut info = ClientInfo::default();
    for (name, value) in line.split(' ').filter_map(|field| field.split_once('=')) {
        match name {
            "id" => info.id = value.parse().unwrap_or_default(),
            "name" => info.name = value.to_owned(),
            "cmd" => info.cmd = value.to_owned(),
            "flags" => info.flags = value.to_owned(),
            "addr" => info.addr = value.to_owned(),
            "sub" | "psub" | "ssub" => info.sub += value.parse::<u64>().unwrap_or_default(),
            _ => {}
        }
    }
    info
}

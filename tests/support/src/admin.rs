//! Administrator connections to servers, independent of the client library under test.

mod line;
mod several;

use std::collections::BTreeMap;

use redis::{FromRedisValue, RedisResult, Value};

use crate::server::RedisServer;
use line::Line;

/// The name that every admin connection sets. [`Admin::others`] leaves these connections out.
pub const NAME: &str = "distlock-admin";

/// `MONITOR` does not show `CONFIG RESETSTAT`, so [`Admin::reset_stats`] first sends an `ECHO` of this text.
pub const RESET: &str = "the stats are reset";

/// The channel by which sentinels discover each other.
const SENTINELS: &str = "__sentinel__:hello";

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

/// A connection for inspecting and breaking a server.
///
/// It connects on demand, and again after a restart. A command that is in flight when the server dies may therefore
/// run twice. The typed helpers panic when the server replies with an error.
///
/// [`Admin::of_cluster`] connects to all primaries of a cluster.
#[derive(Debug)]
pub struct Admin {
    lines: Vec<Line>,
    /// The index in `lines` of each slot's server. Empty for a server that is not part of a cluster.
    slots: Vec<usize>,
}

impl Admin {
    /// Connects to a server that [`RedisServer`] has started.
    pub async fn connect(server: &RedisServer) -> Self {
        Self::from_url(&server.url()).await
    }

    /// Connects to `redis://...`.
    pub async fn from_url(url: &str) -> Self {
        let admin = Self { lines: vec![Line::to(url)], slots: Vec::new() };
        let _: String = admin.cmd(&["CLIENT", "GETNAME"]).await;
        admin
    }

    /// Sends one command and returns the reply as it is, errors included.
    ///
    /// # Errors
    /// The server's error, or the connection's error when the server is unreachable for 10 s.
    pub async fn raw<A: AsRef<[u8]>>(&self, args: &[A]) -> RedisResult<Value> {
        match &self.lines[..] {
            [line] => line.raw(args).await,
            _ => self.raw_anywhere(args).await,
        }
    }

    /// Sends one command and converts the reply.
    pub async fn cmd<T: FromRedisValue>(&self, args: &[&str]) -> T {
        self.cmd_bytes(args).await
    }

    /// As [`Admin::cmd`], for arguments that are not text.
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

    /// The fields of a hash, except the lists of hold ids, which Redisson does not know. Empty if there is no hash.
    pub async fn hgetall(&self, key: &str) -> BTreeMap<String, String> {
        let mut fields = self.hgetall_whole(key).await;
        fields.retain(|field, _| !field.ends_with(":holds"));
        fields
    }

    /// All fields of a hash.
    pub async fn hgetall_whole(&self, key: &str) -> BTreeMap<String, String> {
        self.cmd(&["HGETALL", key]).await
    }

    /// The remaining life of a key in ms; −1: no expiry, −2: no key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.cmd(&["PTTL", key]).await
    }

    pub async fn exists(&self, key: &str) -> bool {
        self.cmd(&["EXISTS", key]).await
    }

    /// The channels with a subscriber, sorted. Leaves out the channel by which sentinels discover each other.
    pub async fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.cmd(&["PUBSUB", "CHANNELS", "*"]).await;
        if self.is_cluster() {
            channels.extend(self.shard_channels().await);
        }
        channels.retain(|channel| channel != SENTINELS);
        channels.sort();
        channels
    }

    /// The shard channels with a subscriber, sorted. None on servers before 7.0.
    pub async fn shard_channels(&self) -> Vec<String> {
        let Ok(value) = self.raw(&["PUBSUB", "SHARDCHANNELS", "*"]).await else {
            return Vec::new();
        };
        let mut channels: Vec<String> =
            redis::from_redis_value(value).unwrap_or_else(|e| panic!("PUBSUB SHARDCHANNELS: odd answer: {e}"));
        channels.sort();
        channels
    }

    /// Number of connections that subscribe to a channel.
    pub async fn numsub(&self, channel: &str) -> u64 {
        let sharded = if self.is_cluster() { self.listeners("SHARDNUMSUB", channel).await } else { 0 };
        sharded + self.listeners("NUMSUB", channel).await
    }

    /// All connections, including admin connections.
    pub async fn client_list(&self) -> Vec<ClientInfo> {
        self.clients(&["CLIENT", "LIST"]).await
    }

    /// All connections except admins, sentinels and replicas.
    pub async fn others(&self) -> Vec<ClientInfo> {
        let mut list = self.client_list().await;
        list.retain(|c| c.name != NAME && !c.name.starts_with("sentinel-") && !c.flags.contains(['S', 'M']));
        list
    }

    /// Closes all connections of a type (`normal`, `pubsub`), except admin connections. Returns their number.
    pub async fn client_kill_type(&self, kind: &str) -> u64 {
        let mut killed = 0;
        for client in self.clients(&["CLIENT", "LIST", "TYPE", kind]).await.iter().filter(|c| c.name != NAME) {
            killed += self.kill(client.id).await;
        }
        killed
    }

    /// Closes one connection. Returns whether it existed.
    pub async fn client_kill(&self, id: u64) -> bool {
        self.kill(id).await > 0
    }

    /// Calls of each command since the last reset (`INFO commandstats`), including calls inside scripts. Names are in
    /// lower case: `evalsha`, `subscribe`, `client|list`.
    pub async fn commandstats(&self) -> BTreeMap<String, u64> {
        let info: String = self.cmd(&["INFO", "commandstats"]).await;
        self.count(info.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = rest.strip_prefix("calls=")?.split(',').next()?;
            Some((name.to_lowercase(), calls.parse().ok()?))
        }))
    }

    pub async fn calls(&self, command: &str) -> u64 {
        self.commandstats().await.get(command).copied().unwrap_or(0)
    }

    /// One field of `CLUSTER INFO` or of a section of `INFO`. Empty if it does not exist.
    pub(crate) async fn field(&self, command: &[&str], name: &str) -> String {
        let text: String = self.cmd(command).await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    pub async fn reset_stats(&self) {
        let _: String = self.cmd(&["ECHO", RESET]).await;
        self.cmd(&["CONFIG", "RESETSTAT"]).await
    }

    pub async fn config_set(&self, name: &str, value: &str) {
        self.cmd(&["CONFIG", "SET", name, value]).await
    }

    /// `CLIENT PAUSE`: for `ms`, all commands (`"ALL"`) or only writes (`"WRITE"`) wait. Admin commands wait, too: with
    /// `ALL`, even `CLIENT UNPAUSE` does.
    pub async fn pause(&self, ms: u64, mode: &str) {
        self.cmd(&["CLIENT", "PAUSE", &ms.to_string(), mode]).await
    }

    pub async fn script_flush(&self) {
        self.cmd(&["SCRIPT", "FLUSH"]).await
    }

    /// Publishes a message. Returns the number of connections that received it.
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

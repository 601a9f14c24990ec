//! One administrator for all primaries of a cluster. It shows the cluster as one server with all the data: keys are
//! looked up at their node, counts are summed, lists are merged, and shard channels count as channels.

use std::collections::BTreeMap;

use futures::future::join_all;
use redis::{RedisResult, Value};

use super::{Admin, ClientInfo, Line};
use crate::cluster::SLOTS;
use crate::{Cluster, RedisServer, slot_of};

/// Connection ids are unique per server only. A server's ids are increased by its index times this offset.
const IDS: u64 = 1 << 40;

/// Commands about a server, not about a key.
const ABOUT_SERVERS: [&str; 14] = [
    "acl", "client", "cluster", "command", "config", "dbsize", "debug", "echo", "flushall", "info", "ping", "pubsub",
    "scan", "script",
];

impl Admin {
    /// Connects to all primaries of a cluster whose slots do not move.
    pub async fn of_cluster(cluster: &Cluster) -> Self {
        let map = cluster.agreed().await;
        let mut ids: Vec<&str> = Vec::new();
        let mut slots = Vec::new();
        for slot in 0..SLOTS {
            let Some(owner) = map.owner(slot) else { panic!("slot {slot} is nobody's") };
            let at = ids.iter().position(|id| *id == owner).unwrap_or(ids.len());
            if at == ids.len() {
                ids.push(owner);
            }
            slots.push(at);
        }
        let lines = ids.iter().map(|id| Line::to(&format!("redis://{}", cluster.node(id).server().addr()))).collect();
        Self::over(lines, slots).await
    }

    pub async fn of_node(server: &RedisServer) -> Self {
        Self::over(vec![Line::to(&server.url())], vec![0; usize::from(SLOTS)]).await
    }

    async fn over(lines: Vec<Line>, slots: Vec<usize>) -> Self {
        let admin = Self { lines, slots };
        let _: String = admin.cmd(&["CLIENT", "GETNAME"]).await;
        admin
    }

    pub(super) fn is_cluster(&self) -> bool {
        !self.slots.is_empty()
    }

    pub(super) fn at(&self, key: &[u8]) -> &Line {
        &self.lines[self.slots.get(usize::from(slot_of(key))).copied().unwrap_or(0)]
    }

    /// The server for a command, or `None` for all servers if the command names no key.
    fn line_for<A: AsRef<[u8]>>(&self, args: &[A]) -> Option<&Line> {
        let word = |n: usize| args.get(n).map(|word| String::from_utf8_lossy(word.as_ref()).to_lowercase());
        let name = word(0).unwrap_or_default();
        let key = match &*name {
            "eval" | "evalsha" => 3,
            "time" => return self.lines.first(),
            about if ABOUT_SERVERS.contains(&about) => return None,
            _ => 1,
        };
        args.get(key).map(|key| self.at(key.as_ref()))
    }

    /// Sends a command to the node of its key, or to all nodes, and merges the replies.
    pub(super) async fn raw_anywhere<A: AsRef<[u8]>>(&self, args: &[A]) -> RedisResult<Value> {
        if let Some(line) = self.line_for(args) {
            return line.raw(args).await;
        }
        let answers: RedisResult<Vec<Value>> =
            join_all(self.lines.iter().map(|line| line.raw(args))).await.into_iter().collect();
        Ok(answers?.into_iter().reduce(together).unwrap_or(Value::Nil))
    }

    pub(super) async fn clients(&self, args: &[&str]) -> Vec<ClientInfo> {
        let mut all = Vec::new();
        for (line, n) in self.lines.iter().zip(0..) {
            let text: String = super::converted(line.raw(args).await, args);
            all.extend(text.lines().map(super::client_info).map(|info| ClientInfo { id: info.id + n * IDS, ..info }));
        }
        all
    }

    pub(super) async fn kill(&self, id: u64) -> u64 {
        let (at, own) = (usize::try_from(id / IDS).unwrap_or(usize::MAX), (id % IDS).to_string());
        let args = ["CLIENT", "KILL", "ID", &own];
        super::converted(self.lines[at].raw(&args).await, &args)
    }

    /// Number of listeners of a channel by this subcommand of `PUBSUB`, summed over all servers.
    pub(super) async fn listeners(&self, command: &str, channel: &str) -> u64 {
        let mut sum = 0;
        for line in &self.lines {
            let args = ["PUBSUB", command, channel];
            let (_, n): (String, u64) = super::converted(line.raw(&args).await, &args);
            sum += n;
        }
        sum
    }

    /// Sums counts. Counts of sharded commands go under the names of the plain commands.
    pub(super) fn count(&self, counts: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (name, calls) in counts {
            let plain = match &*name {
                "ssubscribe" | "sunsubscribe" | "spublish" if self.is_cluster() => name[1..].to_owned(),
                _ => name,
            };
            *sums.entry(plain).or_insert(0) += calls;
        }
        sums
    }
}

/// Merges the replies of two servers.
fn together(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => Value::Int(one + other),
        (Value::Array(mut one), Value::Array(other)) => {
            one.extend(other);
            Value::Array(one)
        }
        (Value::BulkString(mut one), Value::BulkString(other)) if one != other => {
            one.extend_from_slice(b"\n");
            one.extend(other);
            Value::BulkString(one)
        }
        (one, _) => one,
    }
}

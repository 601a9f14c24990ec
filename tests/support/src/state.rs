//! The state of a server, for the report of a failed test.

use std::fmt::Write as _;
use std::time::Duration;

use redis::{Cmd, Connection, RedisResult, Value, cmd};

/// The limit for each reply. A server that a test has frozen does not answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

const MOST_KEYS: usize = 40;
const MOST_CHARACTERS: usize = 2_000;

const FIELDS: [&str; 8] = ["addr=", "name=", "age=", "idle=", "flags=", "sub=", "ssub=", "cmd="];

/// The keys with their leases and values, the channels with subscribers, and the clients, one a line. A cluster node
/// also shows its view of the other nodes.
pub(crate) fn of(url: &str) -> RedisResult<String> {
    let server = &mut redis::Client::open(url)?.get_connection_with_timeout(ANSWERS_WITHIN)?;
    server.set_read_timeout(Some(ANSWERS_WITHIN))?;
    let mut text = String::new();
    let mut keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(server)?;
    keys.sort();
    let _ = writeln!(text, "{} keys", keys.len());
    for key in keys.iter().take(MOST_KEYS) {
        let lease: RedisResult<i64> = cmd("PTTL").arg(key).query(server);
        let lease = lease.map_or_else(|error| error.to_string(), |ms| format!("{ms} ms"));
        // A cluster node may refuse keys of a slot that is being moved.
        let value: String = format!("{:?}", value(server, key)).chars().take(MOST_CHARACTERS).collect();
        let _ = writeln!(text, "key {:?} for {lease}: {value}", String::from_utf8_lossy(key));
    }
    let channels: Vec<Vec<u8>> = cmd("PUBSUB").arg("CHANNELS").query(server)?;
    for channel in channels {
        let (_, count): (Vec<u8>, u64) = cmd("PUBSUB").arg("NUMSUB").arg(&channel).query(server)?;
        let _ = writeln!(text, "channel {:?}: {count} subscribed", String::from_utf8_lossy(&channel));
    }
    let clients: String = cmd("CLIENT").arg("LIST").query(server)?;
    for client in clients.lines() {
        let shown = client.split(' ').filter(|field| FIELDS.iter().any(|name| field.starts_with(name)));
        let _ = writeln!(text, "client {}", shown.collect::<Vec<_>>().join(" "));
    }
    if let Ok(nodes) = cmd("CLUSTER").arg("NODES").query::<String>(server) {
        text += &nodes;
    }
    Ok(text)
}

fn value(server: &mut Connection, key: &[u8]) -> RedisResult<Value> {
    let kind: String = cmd("TYPE").arg(key).query(server)?;
    let words: &[&str] = match kind.as_str() {
        "string" => &["GET"],
        "hash" => &["HGETALL"],
        "list" => &["LRANGE", "0", "-1"],
        "zset" => &["ZRANGE", "0", "-1", "WITHSCORES"],
        "set" => &["SMEMBERS"],
        _ => return Ok(Value::SimpleString(kind)),
    };
    let mut command = Cmd::new();
    command.arg(words[0]).arg(key).arg(&words[1..]);
    command.query(server)
}

//! The state of a server, for the report of a failed test.

use std::fmt::Write as _;
use std::time::Duration;

use redis::{Cmd, Connection, RedisResult, Value, cmd};

/// The limit for each answer. A server that a test has stopped does not answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The number of keys that are shown.
const MOST: usize = 40;

/// The keys with their leases and values, the channels somebody is subscribed to, and the clients, one a line.
pub(crate) fn of(url: &str) -> RedisResult<String> {
    let server = &mut redis::Client::open(url)?.get_connection_with_timeout(ANSWERS_WITHIN)?;
    server.set_read_timeout(Some(ANSWERS_WITHIN))?;
    let mut text = String::new();
    let mut keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(server)?;
    keys.sort();
    for key in keys.iter().take(MOST) {
        let lease: i64 = cmd("PTTL").arg(key).query(server)?;
        let value = value(server, key)?;
        let _ = writeln!(text, "key {:?} for {lease} ms: {value:?}", String::from_utf8_lossy(key));
    }
    let channels: Vec<String> = cmd("PUBSUB").arg("CHANNELS").query(server)?;
    for channel in channels {
        let (_, count): (String, u64) = cmd("PUBSUB").arg("NUMSUB").arg(&channel).query(server)?;
        let _ = writeln!(text, "channel {channel:?}: {count} subscribed");
    }
    let clients: String = cmd("CLIENT").arg("LIST").query(server)?;
    text.push_str(&clients);
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

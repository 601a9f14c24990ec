//! The server, Java, and the state of locks in Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bed::PATIENCE;
use distlock_support::agent::{Agent, AgentError, AgentOptions};
use distlock_support::leak::alive_tasks;
use distlock_support::{Admin, Baseline, RedisServer, assert_nothing_left};
use parking_lot::Mutex;
use serde_json::json;

use crate::book::WATCHDOG;
use crate::state::{Half, JAVA, OWNERS, Span, State};

/// Reads both locks: the hash and its expiry, all other keys and their expiries, and the time. Expiries are absolute
/// (Redis 7 or later), because a delay of the script on a busy machine would falsify remaining times.
const LOOK: &str = "
local out = {}
for i, key in ipairs(KEYS) do
  local covers = {}
  for _, cover in ipairs(redis.call('keys', '{' .. key .. '}:*')) do
    covers[#covers + 1] = cover
    covers[#covers + 1] = tostring(redis.call('pexpiretime', cover))
  end
  local fields, all = {}, redis.call('hgetall', key)
  for n = 1, #all, 2 do
    -- Redisson knows nothing of lists of holds.
    if string.sub(all[n], -6) ~= ':holds' then
      fields[#fields + 1] = all[n]
      fields[#fields + 1] = all[n + 1]
    end
  end
  out[i] = {redis.call('pexpiretime', key), fields, covers}
end
local now = redis.call('time')
return {now[1] * 1000 + math.floor(now[2] / 1000), out}
";

const PUT: &str = "
local lists, all = {}, redis.call('hgetall', KEYS[1])
for n = 1, #all, 2 do
  if string.sub(all[n], -6) == ':holds' then lists[all[n]] = all[n + 1] end
end
redis.call('del', KEYS[1], unpack(redis.call('keys', '{' .. KEYS[1] .. '}:*')))
local fields = tonumber(ARGV[2])
if fields > 0 then
  redis.call('hset', KEYS[1], unpack(ARGV, 3, 2 + fields))
  for list, ids in pairs(lists) do
    if redis.call('hexists', KEYS[1], string.sub(list, 1, -7)) == 1 then redis.call('hset', KEYS[1], list, ids) end
  end
  redis.call('pexpireat', KEYS[1], ARGV[1])
end
for i = 3 + fields, #ARGV, 2 do
  redis.call('set', ARGV[i], 1)
  redis.call('pexpireat', ARGV[i], ARGV[i + 1])
end
";

/// A tick of Redisson's watchdog for one hold (protocol 6), which Redisson cannot be asked for.
const TICK: &str = "
for _, key in ipairs(KEYS) do
  local count = tonumber(redis.call('hget', key, ARGV[1]) or 0)
  if count > 0 then
    for n = 1, count do redis.call('pexpire', '{' .. key .. '}:' .. ARGV[1] .. ':rwlock_timeout:' .. n, ARGV[2]) end
    redis.call('pexpire', key, ARGV[2])
  end
end
";

/// Prefix of Redisson's unlock latches.
const LATCH: &str = "redisson_unlock_latch:";

type Heard = Arc<Mutex<HashMap<String, String>>>;

pub struct Rig {
    pub server: RedisServer,
    pub admin: Admin,
    pub agent: Agent,
    started: i64,
    baseline: Baseline,
    heard: Heard,
}

pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(since.as_millis()).expect("a time before long")
}

pub fn ms(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl Rig {
    pub async fn start() -> Self {
        let server = RedisServer::start();
        let admin = Admin::connect(&server).await;
        let heard = listen(&server.url());
        let options =
            AgentOptions { watchdog: Some(ms(WATCHDOG.lo)), timeout: Some(PATIENCE), ..AgentOptions::default() };
        let baseline = Baseline::take(&admin).await;
        let agent = Agent::start(&server.url(), options).await;
        let baseline = baseline.tasks(alive_tasks());
        let rig = Self { server, admin, agent, started: now(), baseline, heard };
        // Java is slow at first.
        for half in [Half::Read, Half::Write].repeat(20) {
            rig.java_lock("warm", 0, half, None).await;
            rig.java_unlock("warm", 0, half).await;
        }
        rig
    }

    /// True if a client, which trusts the server's time for a minute, may forget it before the end of a short story.
    pub fn is_clock_stale(&self) -> bool {
        now() - self.started > 50_000
    }

    /// Reads the state of these locks in Redis, given their owners, and the server's time.
    pub async fn look(&self, names: [&str; 2], owners: [&[String; OWNERS]; 2]) -> (i64, [Result<State, String>; 2]) {
        let (time, [one, two]): (i64, [Seen; 2]) = self.admin.cmd(&["EVAL", LOOK, "2", names[0], names[1]]).await;
        (time, [read(names[0], owners[0], &one), read(names[1], owners[1], &two)])
    }

    pub async fn put(&self, name: &str, owners: &[String; OWNERS], state: &State) {
        let mut fields = Vec::new();
        if let Some(mode) = state.mode {
            fields.extend(["mode".into(), if mode == Half::Read { "read" } else { "write" }.into()]);
        }
        for (who, owner) in owners.iter().enumerate() {
            for (field, count) in [(owner.clone(), state.reads[who]), (format!("{owner}:write"), state.writes[who])] {
                if count > 0 {
                    fields.extend([field, count.to_string()]);
                }
            }
        }
        let mut args: Vec<String> = ["EVAL", PUT, "1", name].map(str::to_owned).into();
        args.extend([state.end.lo.to_string(), fields.len().to_string()]);
        args.append(&mut fields);
        for ((who, n), end) in &state.covers {
            args.extend([format!("{{{name}}}:{}:rwlock_timeout:{n}", owners[*who]), end.lo.to_string()]);
        }
        let _: Option<i64> = self.admin.cmd_bytes(&args).await;
    }

    /// A `tryLock` of Java's, without waiting.
    pub async fn java_lock(&self, name: &str, who: usize, half: Half, lease: Option<i64>) -> bool {
        let mut request =
            json!({"op": "try_lock_as", "flavour": flavour(half), "name": name, "tid": who + 1, "fresh": true});
        if let Some(lease) = lease {
            request["lease_ms"] = lease.into();
        }
        let reply = self.agent.call(request).await.expect("Java answers");
        reply.value.as_bool().expect("whether it is held")
    }

    /// Unlocks for Java. Returns false if Java did not hold the lock.
    pub async fn java_unlock(&self, name: &str, who: usize, half: Half) -> bool {
        let request = json!({"op": "unlock_as", "flavour": flavour(half), "name": name, "tid": who + 1, "fresh": true});
        match self.agent.call(request).await {
            Ok(_) => true,
            Err(AgentError { error, .. }) if error == "IllegalMonitorStateException" => false,
            Err(error) => panic!("Java: {error}"),
        }
    }

    /// A tick of Java's watchdog for its own hold.
    pub async fn tick(&self, names: [&str; 2], half: Half) {
        let suffix = if half == Half::Write { ":write" } else { "" };
        let holder = format!("{}{suffix}", self.java(JAVA));
        let _: Option<i64> =
            self.admin.cmd(&["EVAL", TICK, "2", names[0], names[1], &holder, &WATCHDOG.lo.to_string()]).await;
    }

    pub fn java(&self, who: usize) -> String {
        format!("{}:{}", self.agent.id(), who + 1)
    }

    pub async fn said(&self, name: &str) -> String {
        let channel = format!("redisson_rwlock:{{{name}}}");
        self.admin.publish(&channel, b"9").await;
        let asked = now();
        loop {
            assert!(now() < asked + 90_000, "nothing is heard on {channel} for 90 s");
            if let Some(heard) = self.heard.lock().get(&channel).and_then(|heard| heard.strip_suffix('9')) {
                return heard.to_owned();
            }
            tokio::time::sleep(ms(1)).await;
        }
    }

    pub async fn end(self) {
        while self.admin.keys().await.iter().any(|key| key.starts_with(LATCH)) {
            tokio::time::sleep(ms(5)).await;
        }
        self.agent.close().await;
        assert_nothing_left(&self.admin, &self.baseline).await;
    }
}

fn flavour(half: Half) -> &'static str {
    if half == Half::Read { "read" } else { "write" }
}

/// Collects messages until the server ends.
fn listen(url: &str) -> Heard {
    let client = redis::Client::open(url).expect("a good url");
    let mut connection = client.get_connection().expect("a connection");
    let heard = Heard::default();
    let told = Arc::clone(&heard);
    let (ready, subscribed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut ear = connection.as_pubsub();
        ear.psubscribe("redisson_rwlock:*").expect("to subscribe");
        ready.send(()).expect("somebody waits");
        while let Ok(message) = ear.get_message() {
            let payload: String = message.get_payload().expect("a text");
            told.lock().entry(message.get_channel_name().to_owned()).or_default().push_str(&payload);
        }
    });
    subscribed.recv().expect("the subscription");
    heard
}

type Seen = (i64, Vec<String>, Vec<String>);

fn read(name: &str, owners: &[String; OWNERS], (end, fields, covers): &Seen) -> Result<State, String> {
    let odd = || format!("{name}: {end} {fields:?} {covers:?}");
    let life = |end: i64| if end < 0 { Err(odd()) } else { Ok(Span::at(end)) };
    let owner = |text: &str| owners.iter().position(|owner| owner == text).ok_or_else(odd);
    let mut state = State::default();
    for field in fields.chunks(2) {
        match (field[0].as_str(), field[1].as_str()) {
            ("mode", "read") => state.mode = Some(Half::Read),
            ("mode", "write") => state.mode = Some(Half::Write),
            (field, count) => {
                let (counts, text) = match field.strip_suffix(":write") {
                    Some(text) => (&mut state.writes, text),
                    None => (&mut state.reads, field),
                };
                counts[owner(text)?] = count.parse().ok().filter(|count| *count > 0).ok_or_else(odd)?;
            }
        }
    }
    if state.mode.is_some() {
        state.end = life(*end)?;
    } else if !fields.is_empty() {
        return Err(odd());
    }
    for cover in covers.chunks(2) {
        let rest = cover[0].strip_prefix(&format!("{{{name}}}:")).ok_or_else(odd)?;
        let (text, n) = rest.split_once(":rwlock_timeout:").ok_or_else(odd)?;
        let end = cover[1].parse().map_err(|_| odd())?;
        state.covers.insert((owner(text)?, n.parse().map_err(|_| odd())?), life(end)?);
    }
    Ok(state)
}

//! Many readers in Redis at once, created without clients, and the read-write lock's scripts for them.

use std::collections::BTreeMap;

use bed::{Bed, scripts};
use redis::Value;

use crate::rig::{channel, cover, marks};

pub const NAME: &str = "x";
const TAG: &str = "{x}";

/// A reader: its owner, and the remaining ms of each of its covers. A cover is a key that lives as long as one read
/// hold. A cover with 0 ms does not exist.
#[derive(Clone, Debug)]
pub struct Reader {
    pub owner: String,
    pub covers: Vec<i64>,
}

impl Reader {
    pub fn ours(n: usize, covers: &[i64]) -> Self {
        Self { owner: format!("0a1b2c3d-0000-8000-9000-00000000000a:{n}"), covers: covers.to_vec() }
    }

    pub fn javas(n: usize, covers: &[i64]) -> Self {
        Self { owner: format!("0a1b2c3d-0000-4000-9000-00000000000b:{n}"), covers: covers.to_vec() }
    }

    /// Remaining ms of the reader's longest cover. 0: the reader is dead.
    pub fn lasts(&self) -> i64 {
        self.covers.iter().copied().max().unwrap_or(0)
    }
}

/// True if the UUID version of the owner's client is the one that this crate uses.
pub fn is_ours(owner: &str) -> bool {
    owner.as_bytes()[14] == b'8'
}

#[derive(Debug)]
pub struct Seen {
    /// The time at which the state was read, in ms of the server's clock.
    pub at: i64,
    /// Remaining ms of the hash. −2: there is no hash.
    pub left: i64,
    pub fields: BTreeMap<String, String>,
    /// Remaining ms of the longest cover of each reader in the hash.
    pub readers: BTreeMap<String, i64>,
}

impl Seen {
    pub fn longest(&self) -> i64 {
        self.readers.values().copied().max().unwrap_or(0).max(0)
    }
}

/// Uses one time for everything that a script sets or reads. Before Redis 7.2 each command of a script reads the clock.
const NOW: &str = "
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Before Redis 7.0 there is no PEXPIRETIME.
local exact = type(redis.pcall('pexpiretime', KEYS[1])) == 'number'
local function remaining(key)
  local ends = exact and redis.call('pexpiretime', key)
  return ends and ends >= 0 and math.max(ends - now, 0) or redis.call('pttl', key)
end
local function expire_in(key, left)
  redis.call('pexpireat', key, string.format('%.0f', now + left))
end";

const PUT: &str = "
redis.call('del', KEYS[1])
redis.call('hset', KEYS[1], 'mode', 'read')
for i = 2, #ARGV, 2 do
  local n = 0
  for left in string.gmatch(ARGV[i + 1], '%d+') do
    n = n + 1
    local key = '{' .. KEYS[1] .. '}:' .. ARGV[i] .. ':rwlock_timeout:' .. n
    redis.call('set', key, '1')
    expire_in(key, left)
  end
  redis.call('hset', KEYS[1], ARGV[i], n)
end
expire_in(KEYS[1], ARGV[1])";

const LOOK: &str = "
local flat = redis.call('hgetall', KEYS[1])
local out = {now, remaining(KEYS[1])}
for i = 1, #flat, 2 do
  local best = 0
  for n = 1, tonumber(flat[i + 1]) or 0 do
    best = math.max(best, remaining('{' .. KEYS[1] .. '}:' .. flat[i] .. ':rwlock_timeout:' .. n))
  end
  out[#out + 1] = flat[i]
  out[#out + 1] = flat[i + 1]
  out[#out + 1] = best
end
return out";

pub struct Crowd<'a> {
    bed: &'a Bed,
    shas: BTreeMap<&'static str, String>,
}

impl<'a> Crowd<'a> {
    pub async fn new(bed: &'a Bed) -> Self {
        let mut shas = BTreeMap::new();
        for script in ["read", "read_release", "write", "renew", "leave", "many"] {
            let sha: String = bed.admin.cmd(&["SCRIPT", "LOAD", &scripts::text(&format!("rwlock/{script}"))]).await;
            shas.insert(script, sha);
        }
        Self { bed, shas }
    }

    /// Creates these readers, and a hash that lasts `left` ms.
    pub async fn put(&self, left: i64, readers: &[Reader]) {
        let mut words = vec!["EVAL".to_owned(), [NOW, PUT].concat(), "1".to_owned(), NAME.to_owned(), left.to_string()];
        for reader in readers {
            let covers: Vec<String> = reader.covers.iter().map(ToString::to_string).collect();
            words.extend([reader.owner.clone(), covers.join(" ")]);
        }
        let _: Value = self.bed.admin.cmd_bytes(&words).await;
    }

    pub async fn look(&self) -> Seen {
        let words: Vec<Value> = self.bed.admin.cmd(&["EVAL", &[NOW, LOOK].concat(), "1", NAME]).await;
        let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).unwrap();
        let number = |value: &Value| redis::from_redis_value::<i64>(value.clone()).unwrap();
        let (mut fields, mut readers) = (BTreeMap::new(), BTreeMap::new());
        for field in words[2..].chunks(3) {
            let (name, value) = (text(&field[0]), text(&field[1]));
            if value.parse::<u32>().is_ok() {
                readers.insert(name.clone(), number(&field[2]));
            }
            fields.insert(name, value);
        }
        Seen { at: number(&words[0]), left: number(&words[1]), fields, readers }
    }

    async fn run(&self, script: &str, keys: &[&str], args: &[&str]) -> Value {
        let count = keys.len().to_string();
        let words = [&["EVALSHA", &self.shas[script], &count][..], keys, args].concat();
        self.bed.admin.cmd(&words).await
    }

    /// Tries to acquire the read half as this owner, and yields to waiting writers.
    pub async fn read(&self, owner: &str, lease: i64) -> Value {
        let (first, marks, lease) = (cover(NAME, owner, 1), marks(NAME), lease.to_string());
        self.run("read", &[NAME, &first, &marks], &[owner, &lease, "", "", "0", "0", TAG, "1"]).await
    }

    pub async fn release(&self, owner: &str) -> Value {
        let (first, channel) = (cover(NAME, owner, 1), channel(NAME));
        self.run("read_release", &[NAME, &first], &giving(owner, &channel)).await
    }

    /// Releases the only hold of each of these owners, in this order, by one command.
    pub async fn release_together(&self, owners: &[&str]) -> Value {
        let channel = channel(NAME);
        let firsts: Vec<String> = owners.iter().map(|owner| cover(NAME, owner, 1)).collect();
        let keys: Vec<&str> = firsts.iter().flat_map(|first| [NAME, first]).collect();
        let steps = owners.iter().map(|owner| giving(owner, &channel));
        // The second script of the batch, with two keys.
        let shape = (2 * 10_000 + 2 * 100 + giving("", "").len()).to_string();
        let args: Vec<&str> = steps.flat_map(|args| [&[&*shape][..], &args].concat()).collect();
        self.run("many", &keys, &args).await
    }

    /// Tries to acquire the write half. Returns nil, or the ms for which the lock is busy. `mark`: the lifetime in ms
    /// of the mark (entry of a waiting writer) that the attempt sets; 0 = none.
    pub async fn write(&self, owner: &str, mark: i64) -> Value {
        let (first, marks, mark) = (cover(NAME, owner, 1), marks(NAME), mark.to_string());
        match self.run("write", &[NAME, &first, &marks], &[owner, "60000", "", "", "0", "0", TAG, &mark]).await {
            // The script has seen a Java client.
            Value::Array(mut busy) if busy.get(1) == Some(&Value::Int(1)) => busy.swap_remove(0),
            told => told,
        }
    }

    /// Removes the mark of a waiting writer that gives up.
    pub async fn leave(&self, owner: &str) -> Value {
        let (first, marks, channel) = (cover(NAME, owner, 1), marks(NAME), channel(NAME));
        let args = [owner, "", "30000", "", "0", TAG, "publish", &channel];
        self.run("leave", &[NAME, &first, &marks], &args).await
    }

    /// Renews these readers. A negative `lease` sets each reader's lease, even if it becomes shorter, by a command with
    /// this number.
    pub async fn renew(&self, owners: &[&str], lease: i64, number: u64) -> Value {
        let holds = if lease < 0 { format!(",-~{number}") } else { String::new() };
        let (mut keys, lease) = (Vec::new(), lease.to_string());
        let mut args = vec![&*lease, "0"];
        for owner in owners {
            keys.extend([NAME.to_owned(), cover(NAME, owner, 1)]);
            args.extend([owner, &*holds, "read", TAG, "1"]);
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.run("renew", &keys, &args).await
    }

    /// Counts the commands that scripts ran since the last call. A command that reads a whole hash counts once for each
    /// field.
    pub async fn asked(&self, fields: usize) -> u64 {
        let stats = self.bed.admin.commandstats().await;
        self.bed.admin.reset_stats().await;
        let outside =
            |name: &str| ["evalsha", "eval", "config", "info", "script"].iter().any(|own| name.starts_with(own));
        let weight = |name: &str| if matches!(name, "hgetall" | "hkeys" | "hvals") { fields as u64 } else { 1 };
        stats.iter().filter(|(name, _)| !outside(name)).map(|(name, calls)| calls * weight(name)).sum()
    }

    pub async fn clear(&self) {
        let () = self.bed.admin.cmd(&["FLUSHALL"]).await;
    }
}

/// Arguments for the release of this owner's only hold.
fn giving<'a>(owner: &'a str, channel: &'a str) -> [&'a str; 9] {
    [owner, "", "30000", "", "0", TAG, "0", "publish", channel]
}

//! Many readers in Redis at once, put there without clients, and the scripts of the read-write lock run on them.

use std::collections::BTreeMap;

use bed::{Bed, scripts};
use redis::Value;

/// The lock's name.
pub const NAME: &str = "x";

/// One reader: whose it is, and what is left of each of its covers in ms; 0: that one is gone.
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

    pub fn is_ours(&self) -> bool {
        self.owner.as_bytes()[14] == b'8'
    }

    /// For how long it is covered; 0: it is dead.
    pub fn lasts(&self) -> i64 {
        self.covers.iter().copied().max().unwrap_or(0)
    }
}

/// What stands in Redis.
#[derive(Debug)]
pub struct Seen {
    /// What is left of the hash in ms; −2: there is none.
    pub left: i64,
    pub fields: BTreeMap<String, String>,
    /// For how long each reader in the hash is covered.
    pub readers: BTreeMap<String, i64>,
}

impl Seen {
    /// The longest cover of anybody in the hash.
    pub fn longest(&self) -> i64 {
        self.readers.values().copied().max().unwrap_or(0).max(0)
    }
}

const PUT: &str = "
redis.call('del', KEYS[1])
redis.call('hset', KEYS[1], 'mode', 'read')
for i = 2, #ARGV, 2 do
  local n = 0
  for left in string.gmatch(ARGV[i + 1], '%d+') do
    n = n + 1
    local key = '{' .. KEYS[1] .. '}:' .. ARGV[i] .. ':rwlock_timeout:' .. n
    if left ~= '0' then redis.call('set', key, '1', 'px', left) else redis.call('del', key) end
  end
  redis.call('hset', KEYS[1], ARGV[i], n)
end
redis.call('pexpire', KEYS[1], ARGV[1])";

const LOOK: &str = "
local out, flat = {redis.call('pttl', KEYS[1])}, redis.call('hgetall', KEYS[1])
for i = 1, #flat, 2 do
  local best = 0
  for n = 1, tonumber(flat[i + 1]) or 0 do
    local left = redis.call('pttl', '{' .. KEYS[1] .. '}:' .. flat[i] .. ':rwlock_timeout:' .. n)
    if left > best then best = left end
  end
  out[#out + 1] = flat[i]
  out[#out + 1] = flat[i + 1]
  out[#out + 1] = best
end
return out";

/// A lock with many readers.
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

    /// Has these readers in, and the hash last for so many ms.
    pub async fn put(&self, left: i64, readers: &[Reader]) {
        let mut words = vec!["EVAL".to_owned(), PUT.to_owned(), "1".to_owned(), NAME.to_owned(), left.to_string()];
        for reader in readers {
            let covers: Vec<String> = reader.covers.iter().map(ToString::to_string).collect();
            words.extend([reader.owner.clone(), covers.join(" ")]);
        }
        let _: Value = self.bed.admin.cmd_bytes(&words).await;
    }

    pub async fn look(&self) -> Seen {
        let words: Vec<Value> = self.bed.admin.cmd(&["EVAL", LOOK, "1", NAME]).await;
        let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).unwrap();
        let number = |value: &Value| redis::from_redis_value::<i64>(value.clone()).unwrap();
        let (mut fields, mut readers) = (BTreeMap::new(), BTreeMap::new());
        for field in words[1..].chunks(3) {
            let (name, value) = (text(&field[0]), text(&field[1]));
            if value.parse::<u32>().is_ok() {
                readers.insert(name.clone(), number(&field[2]));
            }
            fields.insert(name, value);
        }
        Seen { left: number(&words[0]), fields, readers }
    }

    async fn run(&self, script: &str, keys: &[&str], args: &[&str]) -> Value {
        let count = keys.len().to_string();
        let words = [&["EVALSHA", &self.shas[script], &count][..], keys, args].concat();
        self.bed.admin.cmd(&words).await
    }

    fn cover(owner: &str, n: usize) -> String {
        format!("{{{NAME}}}:{owner}:rwlock_timeout:{n}")
    }

    /// Comes in as this owner, which gives way to writers.
    pub async fn read(&self, owner: &str, lease: i64) -> Value {
        let (first, marks, lease) = (Self::cover(owner, 1), marks(), lease.to_string());
        self.run("read", &[NAME, &first, &marks], &[owner, &lease, "", "", "0", "0", &tag(), "1"]).await
    }

    /// Gives back the only hold of this owner.
    pub async fn release(&self, owner: &str) -> Value {
        let (first, channel) = (Self::cover(owner, 1), crate::rig::channel(NAME));
        self.run("read_release", &[NAME, &first], &giving(owner, &tag(), &channel)).await
    }

    /// Gives back the only hold of each of these by one command, in this order.
    pub async fn release_together(&self, owners: &[&str]) -> Value {
        let (tag, channel) = (tag(), crate::rig::channel(NAME));
        let firsts: Vec<String> = owners.iter().map(|owner| Self::cover(owner, 1)).collect();
        let keys: Vec<&str> = firsts.iter().flat_map(|first| [NAME, first]).collect();
        let steps = owners.iter().map(|owner| giving(owner, &tag, &channel));
        let count = giving("", "", "").len().to_string();
        let args: Vec<&str> = steps.flat_map(|args| [&["2", "2", &count][..], &args].concat()).collect();
        self.run("many", &keys, &args).await
    }

    /// Asks to write; `mark`: for how long that is to be known.
    pub async fn write(&self, owner: &str, mark: i64) -> Value {
        let (first, marks, mark) = (Self::cover(owner, 1), marks(), mark.to_string());
        self.run("write", &[NAME, &first, &marks], &[owner, "60000", "", "", "0", "0", &tag(), &mark]).await
    }

    /// A writer that waited gives up.
    pub async fn leave(&self, owner: &str) -> Value {
        let (first, marks, channel) = (Self::cover(owner, 1), marks(), crate::rig::channel(NAME));
        let args = [owner, "", "30000", "", "0", &tag(), "publish", &channel];
        self.run("leave", &[NAME, &first, &marks], &args).await
    }

    /// Renews these readers; `lease` below 0: sets the lease of each, be it shorter, by its command of this number.
    pub async fn renew(&self, owners: &[&str], lease: i64, number: u64) -> Value {
        let holds = if lease < 0 { format!(",-~{number}") } else { String::new() };
        let (mut keys, tag, lease) = (Vec::new(), tag(), lease.to_string());
        let mut args = vec![&*lease, "0"];
        for owner in owners {
            keys.extend([NAME.to_owned(), Self::cover(owner, 1)]);
            args.extend([owner, &*holds, "read", &tag, "1"]);
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.run("renew", &keys, &args).await
    }

    /// What scripts have asked the server for since the last time: commands, and fields where one reads a whole hash.
    pub async fn asked(&self, fields: usize) -> u64 {
        let stats = self.bed.admin.commandstats().await;
        self.bed.admin.reset_stats().await;
        let outside =
            |name: &str| ["evalsha", "eval", "config", "info", "script"].iter().any(|own| name.starts_with(own));
        let weight = |name: &str| if matches!(name, "hgetall" | "hkeys" | "hvals") { fields as u64 } else { 1 };
        stats.iter().filter(|(name, _)| !outside(name)).map(|(name, calls)| calls * weight(name)).sum()
    }

    /// Takes everything away.
    pub async fn clear(&self) {
        let () = self.bed.admin.cmd(&["FLUSHALL"]).await;
    }
}

/// What a release of this owner's only hold says.
fn giving<'a>(owner: &'a str, tag: &'a str, channel: &'a str) -> [&'a str; 9] {
    [owner, "", "30000", "", "0", tag, "0", "publish", channel]
}

fn tag() -> String {
    format!("{{{NAME}}}")
}

fn marks() -> String {
    crate::rig::marks(NAME)
}

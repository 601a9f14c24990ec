//! Two nodes, and one slot that is being moved from the first to the second.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use bed::scripts;
use distlock_support::{Admin, Cluster, Node, RedisServer, slot_of};
use redis::Value;

use super::cases::{Call, Shape};
use super::walk::Keys;
use super::words::Words;

/// The lock's name, and the hash tag of all keys.
pub const NAME: &str = "s";

/// Returns every key with its type, value and TTL, and the time.
const LOOK: &str = "
local out, cursor = {}, '0'
repeat
  local page = redis.call('scan', cursor)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local kind, value = redis.call('type', key).ok, {}
    if kind == 'hash' then value = redis.call('hgetall', key)
    elseif kind == 'list' then value = redis.call('lrange', key, 0, -1)
    elseif kind == 'zset' then value = redis.call('zrange', key, 0, -1, 'withscores')
    else value = {redis.call('get', key)} end
    out[#out + 1] = {key, kind, value, redis.call('pttl', key)}
  end
until cursor == '0'
local now = redis.call('time')
return {now[1] * 1000 + math.floor(now[2] / 1000), out}";

/// Makes a script that needs declared keys read its keys from the front of its arguments.
const UNDECLARED: &str = "
local count = tonumber(ARGV[1])
local KEYS = {unpack(ARGV, 2, count + 1)}
local ARGV = {unpack(ARGV, count + 2)}
";

/// A key, its type, its value and its TTL, as [`LOOK`] returns them.
type Told = (String, String, Vec<String>, i64);

/// A key's value, and its expiry time in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub value: Vec<String>,
    pub end: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub at: i64,
    pub keys: BTreeMap<String, Kept>,
}

/// An error for the whole call, or an answer or a reason to fail for each step.
pub type Said = Result<Vec<Result<Value, String>>, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// To the source, while the slot is not open.
    Settled,
    Source,
    Target,
    /// To the target, behind `ASKING`.
    Asking,
}

/// The ways for an open slot.
pub const WAYS: [Way; 3] = [Way::Source, Way::Target, Way::Asking];

pub struct Server<'a> {
    admin: &'a Admin,
    asks: bool,
}

impl Server<'_> {
    async fn raw(&self, words: &[impl AsRef<[u8]>]) -> redis::RedisResult<Value> {
        if self.asks {
            self.admin.cmd::<()>(&["ASKING"]).await;
        }
        self.admin.raw(words).await
    }

    pub async fn prepare(&self, commands: &[Vec<String>]) {
        let mut words: Vec<String> = ["EVAL", scripts::RUN_ALL, "0"].map(str::to_owned).to_vec();
        words.extend(commands.iter().flat_map(|command| [vec![command.len().to_string()], command.clone()].concat()));
        self.raw(&words).await.expect("the state can be made");
    }

    pub async fn look(&self) -> Seen {
        let value = self.raw(&["EVAL", LOOK, "0"]).await.expect("all can be read");
        let (at, keys): (i64, Vec<Told>) = redis::from_redis_value(value).expect("as asked");
        let keys = keys.into_iter().map(|(key, kind, mut value, left)| {
            // Members of a sorted set are sorted by name, because scores may be equal.
            if kind == "zset" {
                let mut pairs: Vec<_> = value.chunks(2).map(<[String]>::to_vec).collect();
                pairs.sort();
                value = pairs.concat();
            }
            let value = [vec![kind], value].concat();
            (key, Kept { value, end: (left >= 0).then_some(at + left) })
        });
        Seen { at, keys: keys.collect() }
    }

    /// Sends the steps of a call that are not in `without`.
    pub async fn say(&self, call: &Call, words: &Words, without: &BTreeSet<usize>, handed: Keys) -> Said {
        let steps: Vec<_> = (0..call.steps.len()).filter(|step| !without.contains(step)).collect();
        let is_declared = handed == Keys::Declared;
        let (mut keys, mut args) = (Vec::new(), words.list(call.head));
        for step in &steps {
            let (mut step_keys, step_args) = (words.list(call.steps[*step].0), words.list(call.steps[*step].1));
            if call.shape == Shape::Many {
                let number: usize = step_keys.remove(0).parse().expect("the number of a step");
                args.push((number * 10_000 + step_keys.len() * 100 + step_args.len()).to_string());
            }
            let is_apart = is_declared || call.shape != Shape::Many;
            if is_apart { &mut keys } else { &mut args }.extend(step_keys);
            args.extend(step_args);
        }
        let mut text = scripts::text(call.script);
        let count = keys.len().to_string();
        let front = match call.shape {
            _ if is_declared => vec![count],
            // Without declared keys, as clients send these calls.
            Shape::Many => vec!["0".to_owned()],
            Shape::Entries => vec!["0".to_owned(), count],
            Shape::One | Shape::Fours => {
                text.insert_str(0, UNDECLARED);
                vec!["0".to_owned(), count]
            }
        };
        let mut all = vec!["EVAL".to_owned(), text];
        all.extend(front.into_iter().chain(keys).chain(args));
        let value = self.raw(&all).await.map_err(|error| error.to_string())?;
        Ok(taken_apart(call.shape, value, steps.len()))
    }
}

/// Splits a reply into the answers to each step.
fn taken_apart(shape: Shape, value: Value, steps: usize) -> Vec<Result<Value, String>> {
    let text = |value: &Value| match value {
        Value::BulkString(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    let Value::Array(entries) = value else { return vec![Ok(value)] };
    let answers: Vec<Result<Value, String>> = match shape {
        Shape::One => vec![Ok(Value::Array(entries))],
        Shape::Entries => entries.into_iter().map(|entry| text(&entry).map_or(Ok(entry), Err)).collect(),
        Shape::Many => entries
            .into_iter()
            .map(|entry| match &entry {
                Value::Array(parts) if parts.first().and_then(text).as_deref() == Some("!") => {
                    Err(text(&parts[1]).unwrap_or_default())
                }
                _ => Ok(entry),
            })
            .collect(),
        Shape::Fours => entries[1..]
            .chunks(4)
            .map(|four| text(&four[0]).map_or_else(|| Ok(Value::Array(four.to_vec())), Err))
            .collect(),
    };
    assert_eq!(answers.len(), steps, "{answers:?}");
    answers
}

/// The open slot of [`NAME`], with its source and its target.
pub struct OpenSlot<'a> {
    source: &'a Node,
    target: &'a Node,
    slot: String,
}

impl<'a> OpenSlot<'a> {
    pub async fn of(cluster: &'a Cluster) -> Self {
        let source = cluster.primary_of(NAME).await;
        let target = cluster.other_primary(source).await;
        let slot = slot_of(NAME).to_string();
        target.admin().cmd::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", source.id()]).await;
        Self { source, target, slot }
    }

    pub fn at(&self, way: Way) -> Server<'a> {
        let is_source = matches!(way, Way::Settled | Way::Source);
        let admin = if is_source { self.source.admin() } else { self.target.admin() };
        Server { admin, asks: way == Way::Asking }
    }

    /// Creates exactly the keys of these commands: those in `moved` at the target, the others at the source. `None`:
    /// the slot is not open.
    pub async fn set_up(&self, commands: &[Vec<String>], moved: Option<&BTreeSet<String>>) {
        let is_there = |command: &Vec<String>| moved.is_some_and(|moved| moved.contains(&command[1]));
        let (there, here): (Vec<_>, Vec<_>) = commands.iter().cloned().partition(is_there);
        let source = self.source.admin();
        source.cmd::<()>(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]).await;
        for admin in [source, self.target.admin()] {
            admin.cmd::<()>(&["FLUSHALL"]).await;
        }
        self.at(Way::Source).prepare(&here).await;
        self.at(Way::Asking).prepare(&there).await;
        if moved.is_some() {
            source.cmd::<()>(&["CLUSTER", "SETSLOT", &self.slot, "MIGRATING", self.target.id()]).await;
        }
    }

    pub async fn look(&self) -> [Seen; 2] {
        [self.at(Way::Source).look().await, self.at(Way::Asking).look().await]
    }
}

pub struct Alone {
    _server: RedisServer,
    admin: Admin,
    publish: &'static str,
}

impl Alone {
    pub async fn start() -> Self {
        let server = RedisServer::start();
        let admin = Admin::connect(&server).await;
        let known: Vec<Value> = admin.cmd(&["COMMAND", "INFO", "SPUBLISH"]).await;
        let publish = if matches!(known.as_slice(), [Value::Array(_)]) { "spublish" } else { "publish" };
        Self { _server: server, admin, publish }
    }

    pub fn words(&self) -> Words {
        Words::now(self.publish)
    }

    /// Runs the steps that are not in `without` in this state. Returns the answers and the resulting state.
    pub async fn run(&self, state: &[&str], call: &Call, without: &BTreeSet<usize>) -> (Said, Seen) {
        let server = Server { admin: &self.admin, asks: false };
        self.admin.cmd::<()>(&["FLUSHALL"]).await;
        let words = self.words();
        server.prepare(&words.commands(state)).await;
        let is_empty = without.len() == call.steps.len();
        let said = if is_empty { Ok(Vec::new()) } else { server.say(call, &words, without, Keys::Declared).await };
        (said, server.look().await)
    }
}

pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 3000")
}

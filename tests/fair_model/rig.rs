//! Runs the scripts on the simulator and on a real server, with the time as a parameter.

use distlock_sim::{SimReply, SimScript, SimServer};
use distlock_support::RedisServer;

use crate::model::{MS, Reply, word};

/// Precedes every script. The last arguments are the waiters without a subscription (`,owner,owner,`) and the time in
/// ms. A lease is stored as `10000 * lease + 10^12` ms, so that no lease ends by itself, and is read in steps of 100
/// ms. So a pause of a quarter of an hour between two scripts has no effect. Published messages are recorded.
const CLOCK: &str = "
local now, redis, said = tonumber(table.remove(ARGV)), redis, {}
local absent = table.remove(ARGV)
do
  local server = redis
  local function timed(run)
    return function(command, key, ...)
      local name = string.lower(command)
      if name == 'time' then return {string.format('%d', math.floor(now / 1000)), string.format('%d', now % 1000 * 1000)} end
      if name == 'pexpire' then return run(command, key, string.format('%d', (...) * 10000 + 1000000000000)) end
      if name == 'pttl' then
        local left = run(command, key)
        return left < 0 and left or math.ceil((left - 1000000000000) / 1000000) * 100
      end
      if name == 'pubsub' then
        local owner = string.sub((...), #'channel:{lock}:' + 1)
        return {(...), string.find(absent, ',' .. owner .. ',', 1, true) and 0 or 1}
      end
      if name == 'publish' then
        said[#said + 1] = string.sub(key, #'channel:{lock}:' + 1)
        said[#said + 1] = (...)
      end
      return run(command, key, ...)
    end
  end
  redis = {call = timed(server.call), pcall = timed(server.pcall), error_reply = server.error_reply}
end
";

/// Follows every script. Adds to the reply the whole state of the lock and its twin (keys 5 and 6), and the
/// messages. Sets each lease to the value that it should have by now.
const STATE: &str = "
local function left(key)
  local ms = redis.call('pttl', key)
  if ms > 0 then redis.call('pexpire', key, ms) end
  return ms
end
local function all(key) return redis.call('hgetall', key) end
return {{redis.call('lrange', KEYS[2], 0, -1), redis.call('zrange', KEYS[3], 0, -1, 'withscores'), said,
  all(KEYS[1]), left(KEYS[1]), all(KEYS[4]), left(KEYS[4]),
  all(KEYS[5]), left(KEYS[5]), all(KEYS[6]), left(KEYS[6])}, reply}
";

/// Advances the time of the leases.
const PASS: &str = "
for _, key in ipairs({KEYS[1], KEYS[4], KEYS[5], KEYS[6]}) do
  local left = redis.call('pttl', key) - ARGV[1]
  if left > 0 then redis.call('pexpire', key, left) else redis.call('del', key) end
end
";

/// A script of the fair lock, after the parts that are put in front of it at build time. `FAIR_LUA=dir` reads the
/// scripts from another folder.
fn fair(name: &str) -> Script {
    let dir = std::env::var("FAIR_LUA").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../lua/fair").into());
    let read = |name: &str| std::fs::read_to_string(format!("{dir}/{name}.lua")).expect(name);
    let front = match name {
        "refresh" => read("mend"),
        "leave" => read("remove"),
        _ => String::new(),
    };
    Script::new(&(read("../common/holds") + &read("queue") + &front + &read(name)))
}

pub struct Script {
    source: String,
    sim: SimScript,
}

impl Script {
    fn new(source: &str) -> Self {
        let source = format!("{CLOCK}local function act()\n{source}\nend\nlocal reply = act()\n{STATE}");
        Self { sim: SimScript::new(&source), source }
    }
}

pub struct Scripts {
    pub acquire: Script,
    pub release: Script,
    pub leave: Script,
    pub force: Script,
    pub refresh: Script,
    pub java: Script,
    pub look: Script,
    pub pass: Script,
}

impl Scripts {
    pub fn new() -> Self {
        Self {
            acquire: fair("acquire"),
            release: fair("release"),
            leave: fair("leave"),
            force: fair("force"),
            refresh: fair("refresh"),
            java: Script::new(include_str!("java.lua")),
            look: Script::new(""),
            pass: Script::new(PASS),
        }
    }
}

/// A simulator, and a server of our own on a socket in its own directory.
pub struct Rig {
    sim: SimServer,
    real: redis::Connection,
    _server: RedisServer,
}

impl Rig {
    pub fn new() -> Self {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        Self { sim: SimServer::new(1), real: client.get_connection().unwrap(), _server: server }
    }

    /// Returns state and reply of the simulator and of the real server.
    pub fn run(&mut self, script: &Script, keys: &[&str], args: &[String]) -> [(Reply, Reply); 2] {
        let key_bytes: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let arg_bytes: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let sim = from_sim(self.sim.run(&script.sim, &key_bytes, &arg_bytes));
        let mut command = redis::cmd("EVAL");
        command.arg(&script.source).arg(keys.len()).arg(keys).arg(args);
        [sim, from_real(command.query(&mut self.real).expect("the real server answers"))].map(parted)
    }

    /// Runs a command whose reply does not matter.
    pub fn command(&mut self, words: &[&str]) {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let done = self.sim.command(&bytes);
        assert!(!done.error().is_some_and(|error| error.contains("unknown command")), "{done:?}");
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let _: redis::Value = command.query(&mut self.real).expect("the real server answers");
    }
}

fn parted(answer: Reply) -> (Reply, Reply) {
    match answer {
        Reply::List(mut parts) if parts.len() < 3 && !parts.is_empty() => {
            let reply = if parts.len() == 2 { parts.pop().unwrap() } else { Reply::Nil };
            (scaled(parts.pop().unwrap()), reply)
        }
        failed => (Reply::Nil, failed),
    }
}

/// Converts the deadlines of the state to 4096ths of a ms.
fn scaled(state: Reply) -> Reply {
    let Reply::List(mut parts) = state else { return state };
    if let [_, Reply::List(flat), ..] = parts.as_mut_slice() {
        for score in flat.iter_mut().skip(1).step_by(2) {
            match score {
                Reply::Int(ms) => *ms *= MS,
                Reply::Text(text) => {
                    if let Some(scaled) = exact(text) {
                        *score = Reply::Int(scaled);
                    }
                }
                _ => {}
            }
        }
    }
    Reply::List(parts)
}

/// None if the score is finer than 4096ths.
fn exact(score: &str) -> Option<i64> {
    let scaled = score.parse::<f64>().ok()? * 4096.0;
    (scaled.fract() == 0.0).then(|| format!("{scaled:.0}").parse().ok()).flatten()
}

fn text(bytes: &[u8]) -> Reply {
    // Scores and counts are numbers.
    word(&String::from_utf8_lossy(bytes))
}

fn from_sim(reply: SimReply) -> Reply {
    match reply {
        SimReply::Nil => Reply::Nil,
        SimReply::Int(n) => Reply::Int(n),
        SimReply::Text(bytes) => text(&bytes),
        SimReply::List(items) => Reply::List(items.into_iter().map(from_sim).collect()),
        SimReply::Status(other) | SimReply::Error(other) => Reply::Text(other),
    }
}

fn from_real(value: redis::Value) -> Reply {
    match value {
        redis::Value::Nil => Reply::Nil,
        redis::Value::Int(n) => Reply::Int(n),
        redis::Value::BulkString(bytes) => text(&bytes),
        redis::Value::Array(items) => Reply::List(items.into_iter().map(from_real).collect()),
        other => Reply::Text(format!("{other:?}")),
    }
}

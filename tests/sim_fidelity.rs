//! The simulator against a real `redis-server`: the same random commands and scripts, the same answers and the same
//! state. A failure prints its seed; `SEED=n` replays it, `OPS=n` sets the length of a run.
#![cfg(feature = "sim")]

use std::time::Duration;

use distlock::sim::{SimReply, SimServer};

/// Deadlines are set at slightly different moments on both sides. Leases differ by far more than this.
const SLACK: i64 = 250;

const KEYS: [&str; 6] = ["lock:0", "lock:1", "lock:2", "x", "y", "z"];
const OWNERS: [&str; 4] = ["a:1", "a:2", "b:1", "c:7"];
const NUMBERS: [&str; 14] =
    ["0", "1", "-1", "2", "5", "-3", "9223372036854775807", "-9223372036854775808", "01", "+1", "1.5", "x", "", " 1"];
const SCORES: [&str; 11] = ["0", "1", "2", "2.5", "-1", "1e3", "0.1", "inf", "-inf", "nan", "x"];
const BOUNDS: [&str; 8] = ["-inf", "+inf", "0", "(1", "2", "(2.5", "x", "1000"];
const LEASES: [&str; 9] = ["10000", "20000", "40000", "80000", "0", "-5", "9223372036854775807", "x", "1.5"];

const ACQUIRE: &str = include_str!("../lua/reentrant/acquire.lua");
const RELEASE: &str = include_str!("../lua/reentrant/release.lua");
const RENEW: &str = include_str!("../lua/common/renew.lua");
const FORCE: &str = include_str!("../lua/reentrant/force.lua");
const STATE: &str = include_str!("../lua/common/state.lua");

/// A script of the fair lock with what all of them share in front, as it is put together at build time.
macro_rules! fair {
    ($file:literal) => {
        concat!(include_str!("../lua/fair/queue.lua"), include_str!(concat!("../lua/fair/", $file, ".lua")))
    };
}

const FAIR_ACQUIRE: &str = fair!("acquire");
const FAIR_RELEASE: &str = fair!("release");
const FAIR_LEAVE: &str = fair!("leave");
const FAIR_FORCE: &str = fair!("force");
const FAIR_REFRESH: &str = fair!("refresh");
const FAIR_WAITERS: &str = fair!("waiters");

/// Two clients of ours (version 8), one of Java's (version 4), and what nobody should be called.
const QUEUERS: [&str; 8] = [
    "00000000-0000-8000-8000-00000000000a:1",
    "00000000-0000-8000-8000-00000000000a:2",
    "00000000-0000-8000-8000-00000000000a:3",
    "00000000-0000-8000-8000-00000000000b:1",
    "00000000-0000-4000-8000-00000000000c:1",
    "00000000-0000-4000-8000-00000000000c:2",
    "00000000-0000-4000-8000-00000000000c:3",
    "x",
];
/// A lock and its queue, its deadlines and the prefix of its channels; and one that shares its queue with nobody.
const FAIR: [[&str; 4]; 2] = [["f", "q", "t", "c:{f}"], ["g", "q:g", "t:g", "c:{g}"]];
const WAITS: [&str; 4] = ["4000", "10000", "60000", "300000"];

mod real {
    //! A server of our own, and what it answers.

    use distlock_support::RedisServer;
    use redis::{Connection, Value};

    pub struct Server {
        pub connection: Connection,
        _server: RedisServer,
    }

    impl Server {
        pub fn start() -> Self {
            let server = RedisServer::start();
            let client = redis::Client::open(server.url()).unwrap();
            Self { connection: client.get_connection().unwrap(), _server: server }
        }

        pub fn run(&mut self, words: &[Vec<u8>]) -> Value {
            let mut command = redis::Cmd::new();
            for word in words {
                command.arg(word.as_slice());
            }
            match command.query(&mut self.connection) {
                Ok(value) => value,
                Err(error) => {
                    let text = [error.code().unwrap_or("?"), error.detail().unwrap_or("")].join(" ");
                    Value::SimpleString(format!("\0{text}"))
                }
            }
        }
    }
}

fn converted(value: redis::Value) -> SimReply {
    match value {
        redis::Value::Nil => SimReply::Nil,
        redis::Value::Int(n) => SimReply::Int(n),
        redis::Value::BulkString(bytes) => SimReply::Text(bytes.into()),
        redis::Value::Array(items) => SimReply::List(items.into_iter().map(converted).collect()),
        redis::Value::Okay => SimReply::Status("OK".into()),
        redis::Value::SimpleString(text) => match text.strip_prefix('\0') {
            Some(error) => SimReply::Error(error.into()),
            None => SimReply::Status(text),
        },
        other => panic!("no reply of RESP 2: {other:?}"),
    }
}

/// How two replies have to agree.
#[derive(Clone, Copy, PartialEq)]
enum Agree {
    Exactly,
    /// Numbers above 1000 are ms left of a lease.
    Lease,
    /// Seconds left of a lease.
    Seconds,
    /// A list in any order.
    Set,
    /// Errors by their code only: the text names the script.
    Script,
}

fn agree(how: Agree, sim: &SimReply, real: &SimReply) -> bool {
    match (sim, real) {
        (SimReply::Int(a), SimReply::Int(b)) => match how {
            Agree::Lease | Agree::Script if *a > 500 && *b > 500 => (a - b).abs() <= SLACK,
            Agree::Seconds if *a > 0 => (a - b).abs() <= 1,
            _ => a == b,
        },
        (SimReply::List(a), SimReply::List(b)) => {
            let order = |list: &[SimReply]| {
                let mut list = list.to_vec();
                if how == Agree::Set {
                    list.sort_by_key(|item| format!("{item:?}"));
                }
                list
            };
            a.len() == b.len() && order(a).iter().zip(&order(b)).all(|(a, b)| agree(how, a, b))
        }
        (SimReply::Error(a), SimReply::Error(b)) if how == Agree::Script => a.split(' ').next() == b.split(' ').next(),
        (SimReply::Error(a), SimReply::Error(b)) => a.trim() == b.trim(),
        // Deadlines that were reckoned from a lease.
        (SimReply::Text(a), SimReply::Text(b)) if deadline(a).is_some() => {
            deadline(a).zip(deadline(b)).is_some_and(|(a, b)| (a - b).abs() <= SLACK as f64)
        }
        (a, b) => a == b,
    }
}

fn deadline(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|score: &f64| score.is_finite() && *score > 1e12)
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }

    fn of(&mut self, list: &[&'static str]) -> String {
        list[self.roll(list.len())].into()
    }

    /// Mostly one of the good ones in front, so that runs get somewhere.
    fn mostly(&mut self, list: &[&'static str], good: usize) -> String {
        if self.roll(4) > 0 { self.of(&list[..good]) } else { self.of(list) }
    }
}

fn script(source: &str, keys: &[String], args: &[String]) -> (Agree, Vec<String>) {
    let mut words = vec!["EVAL".to_owned(), source.to_owned(), keys.len().to_string()];
    words.extend_from_slice(keys);
    words.extend_from_slice(args);
    (Agree::Script, words)
}

/// One random command.
fn draw(d: &mut Dice) -> (Agree, Vec<String>) {
    let key = d.of(&KEYS);
    let lock = d.of(&KEYS[..4]);
    let owner = d.of(&OWNERS);
    let number = d.mostly(&NUMBERS, 6);
    let lease = d.mostly(&LEASES, 4);
    let score = d.mostly(&SCORES, 7);
    let count = ["0", "1", "2", "3"][d.roll(4)].to_owned();
    let publish = d.of(&["publish", "publish", "spublish", "nosuchcommand"]);
    let distinct = (5_000 + d.roll(1_000_000)).to_string();
    let channel = format!("channel:{{{lock}}}");
    let s = |text: &str| text.to_owned();
    let plain = |name: &str, rest: &[&String]| {
        let mut words = vec![name.to_owned(), key.clone()];
        words.extend(rest.iter().map(|word| (*word).clone()));
        words
    };
    let words = match d.roll(62) {
        0..6 => return script(ACQUIRE, &[lock], &[owner, lease, count]),
        6..11 => {
            let left = ["-1", "0", "1", "2"][d.roll(4)].to_owned();
            return script(RELEASE, &[lock, channel], &[owner, left, lease, publish]);
        }
        11..13 => {
            // A negative lease is set exactly so: one long enough not to end while the answers are compared.
            let lease = if lease == "-5" { s("-40000") } else { lease };
            return script(RENEW, &[s(KEYS[0]), key, s(KEYS[2])], &[lease, s("a:1"), owner, s("b:1")]);
        }
        13 => return script(FORCE, &[lock, channel], &[publish]),
        14..16 => return script(STATE, &[lock], &[]),
        16 => return (Agree::Lease, plain("pttl", &[])),
        17 => return (Agree::Seconds, plain("ttl", &[])),
        18 => return (Agree::Set, vec![s("keys"), d.of(&["*", "lock:*", "[xy]", "?", "nope"])]),
        19 => plain("exists", &[&lock]),
        20 => plain("del", &[]),
        21 => plain("get", &[]),
        22 => plain("set", &[&number]),
        23 => plain("set", &[&number, &s("px"), &lease, &d.of(&["nx", "xx", "keepttl", "get", "bad"])]),
        24 => plain(&d.of(&["incr", "decr"]), &[]),
        25 => plain(&d.of(&["incrby", "decrby"]), &[&number]),
        26 => plain("pexpire", &[&lease]),
        // The two deadlines compared by `gt` and `lt` must not be the same but for the moment they were set.
        27 => plain("pexpire", &[&distinct, &d.of(&["nx", "xx", "gt", "lt", "bad"])]),
        28 => plain("expire", &[&d.of(&["100", "0", "-1", "9223372036854775", "x"])]),
        29 => plain("persist", &[]),
        30 => plain("type", &[]),
        31 => plain("hset", &[&owner, &number]),
        32 => plain("hset", &[&owner, &number, &s("f"), &count]),
        33 => plain("hset", &[&owner, &number, &s("f")]),
        34 => plain("hsetnx", &[&owner, &number]),
        35 => plain("hget", &[&owner]),
        36 => plain("hdel", &[&owner, &s("f")]),
        37 => plain("hexists", &[&owner]),
        38 => plain("hincrby", &[&owner, &number]),
        39 => plain(&d.of(&["hkeys", "hvals", "hlen", "hgetall"]), &[]),
        40 => plain("hmget", &[&owner, &s("f"), &s("nope")]),
        41 => plain(&d.of(&["rpush", "lpush"]), &[&owner, &count]),
        42 => plain(&d.of(&["lpop", "rpop"]), &[]),
        43 => plain(&d.of(&["lpop", "rpop"]), &[&number]),
        44 => plain("lindex", &[&number]),
        45 => plain("lrange", &[&number, &d.mostly(&NUMBERS, 6)]),
        46 => plain("llen", &[]),
        47 => plain("lrem", &[&number, &owner]),
        48 => plain("zadd", &[&score, &owner]),
        49 => plain("zadd", &[&d.of(&["nx", "xx", "gt", "lt", "ch", "incr", "bad"]), &score, &owner]),
        50 => plain("zadd", &[&score, &owner, &d.mostly(&SCORES, 7), &s("m")]),
        51 => plain("zscore", &[&owner]),
        52 => plain("zrem", &[&owner]),
        53 => plain("zrange", &[&number, &d.mostly(&NUMBERS, 6), &d.of(&["withscores", "rev", "bad", "byscore"])]),
        54 => plain("zrange", &[&number, &s("-1")]),
        55 => plain("zrangebyscore", &[&d.of(&BOUNDS), &d.of(&BOUNDS), &s("withscores")]),
        56 => plain("zrangebyscore", &[&d.of(&BOUNDS), &d.of(&BOUNDS), &s("limit"), &number, &d.mostly(&NUMBERS, 6)]),
        57 => plain("zcount", &[&d.of(&BOUNDS), &d.of(&BOUNDS)]),
        58 => plain("zincrby", &[&score, &owner]),
        59 => plain(&d.of(&["zcard", "zrank", "publish", "hget", "nosuch", "lrem", "set"]), &[]),
        60 => plain("zremrangebyscore", &[&d.of(&BOUNDS), &d.of(&BOUNDS)]),
        _ => plain(&d.of(&["unlink", "setnx", "ping"]), &[&number]),
    };
    (Agree::Exactly, words)
}

/// One random call of a script of the fair lock, or something that spoils its keys. `now`: the time in ms that the scripts
/// are told instead of the server's, as a deadline that is 1 ms off may decide otherwise.
fn draw_fair(d: &mut Dice, now: i64) -> (Agree, Vec<String>) {
    let names = FAIR[d.roll(5) / 4].map(str::to_owned);
    let [hash, queue, deadlines, _] = names.clone();
    let owner = d.mostly(&QUEUERS, 7);
    let (wait, first_lease) = (d.of(&WAITS), d.of(&["4000", "15000", "15000", "15000", "x", "-1"]));
    let publish = d.of(&["publish", "publish", "publish", "nosuchcommand"]);
    let lease = d.mostly(&LEASES, 4);
    let s = |text: &str| text.to_owned();
    let at = |source: &str| source.replace("redis.call('time')", &format!("{{{}, {}}}", now / 1000, now % 1000 * 1000));
    let call = |source: &str, args: &[String]| {
        script(&at(source), &names, &[args, &[wait.clone(), first_lease.clone(), publish.clone()]].concat())
    };
    let due = (now + 1000 * (d.roll(40) as i64 - 10) + 500).to_string();
    match d.roll(33) {
        0..10 => {
            let (want, turn) = (d.of(&["0", "1", "1", "1", "2"]), d.of(&["0", "1", "1", "1", "2"]));
            call(FAIR_ACQUIRE, &[owner, lease, want, turn])
        }
        10..14 => call(FAIR_RELEASE, &[owner, d.of(&["-1", "0", "0", "0", "1"]), lease]),
        14..17 => call(FAIR_LEAVE, &[owner, d.of(&["-1", "-1", "0", "1"]), lease]),
        17 => call(FAIR_FORCE, &[]),
        18 => script(&at(FAIR_WAITERS), &[queue, deadlines], &[]),
        19..25 => {
            let (mut keys, mut args) = (Vec::new(), vec![wait, first_lease, publish]);
            for names in &FAIR[d.roll(2)..=1] {
                keys.extend(names.iter().map(|name| (*name).to_owned()));
                let n = d.roll(4);
                args.push(n.to_string());
                for _ in 0..n {
                    let last = if d.roll(3) == 0 { 0 } else { now - 1000 * d.roll(5) as i64 };
                    args.extend([d.mostly(&QUEUERS, 7), last.to_string()]);
                }
            }
            script(&at(FAIR_REFRESH), &keys, &args)
        }
        25 => (Agree::Exactly, vec![s("zadd"), deadlines, due, owner]),
        26 => (Agree::Exactly, vec![s("zadd"), deadlines, d.of(&["-1", "0", "inf", "-inf", "2.5"]), owner]),
        27 => (Agree::Exactly, vec![s("zrem"), deadlines, owner]),
        28 => (Agree::Exactly, vec![s("rpush"), queue, owner]),
        29 => (Agree::Exactly, vec![s("lrem"), queue, s("0"), owner]),
        30 => (Agree::Exactly, vec![s("del"), d.of(&["f", "f", "t", "q", "g"])]),
        31 => (Agree::Exactly, vec![s("hset"), hash, owner, s("1")]),
        _ if d.roll(4) > 0 => (Agree::Exactly, vec![s("ping")]),
        _ => (Agree::Exactly, vec![s("set"), d.of(&["f", "q", "t"]), s("no lock")]),
    }
}

struct Pair {
    sim: SimServer,
    real: real::Server,
    seed: u64,
    /// What led here, for the report.
    log: Vec<String>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self { sim: SimServer::new(seed), real: real::Server::start(), seed, log: Vec::new() }
    }

    fn both(&mut self, how: Agree, words: &[String]) {
        let bytes: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let sim = if words[0] == "EVAL" {
            let keys: usize = words[2].parse().unwrap();
            self.sim.eval(&words[1], &slices[3..3 + keys], &slices[3 + keys..])
        } else {
            self.sim.command(&slices)
        };
        let real = converted(self.real.run(&bytes));
        let short: Vec<&str> = words.iter().map(|word| word.lines().next().unwrap_or("")).collect();
        self.log.push(format!("{short:?} -> {sim:?}"));
        if !agree(how, &sim, &real) {
            let from = self.log.len().saturating_sub(25);
            let story = self.log[from..].join("\n");
            panic!("SEED={}, command {}:\n{story}\nthe real server says {real:?}", self.seed, self.log.len());
        }
    }

    /// Compares all there is.
    fn state(&mut self) {
        let word = |text: &str| text.to_owned();
        self.both(Agree::Set, &[word("keys"), word("*")]);
        for key in self.sim.keys() {
            let key = String::from_utf8(key).unwrap();
            self.both(Agree::Exactly, &[word("type"), key.clone()]);
            self.both(Agree::Lease, &[word("pttl"), key.clone()]);
            let kind = self.sim.command(&[b"type", key.as_bytes()]);
            let SimReply::Status(kind) = kind else { panic!("{kind:?}") };
            let words = match kind.as_str() {
                "string" => vec![word("get"), key],
                "hash" => vec![word("hgetall"), key],
                "list" => vec![word("lrange"), key, word("0"), word("-1")],
                _ => vec![word("zrange"), key, word("0"), word("-1"), word("withscores")],
            };
            self.both(Agree::Exactly, &words);
        }
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn random_commands_get_the_same_answers_from_both() {
    let seed = from_env("SEED", 1);
    let mut pair = Pair::new(seed);
    let mut dice = Dice(seed);
    for n in 1..=from_env("OPS", 20_000) {
        let (how, words) = draw(&mut dice);
        pair.both(how, &words);
        if n % 200 == 0 {
            pair.state();
        }
        // Without this every key ends up as a list of thousands or with a type nothing changes any more.
        if n % 500 == 0 {
            pair.both(Agree::Exactly, &["flushall".to_owned()]);
        }
    }
    pair.state();
}

#[test]
fn leases_end_alike_and_leave_the_same_behind() {
    let seed = from_env("SEED", 1);
    let mut pair = Pair::new(seed);
    let mut dice = Dice(seed);
    for _ in 0..8 {
        for _ in 0..60 {
            let (how, words) = draw(&mut dice);
            pair.both(how, &words);
        }
        let short = dice.of(&KEYS);
        pair.both(Agree::Exactly, &["pexpire".to_owned(), short, "30".to_owned()]);
        std::thread::sleep(Duration::from_millis(80));
        pair.state();
    }
}

#[test]
fn fair_scripts_do_the_same_on_both() {
    let seed = from_env("SEED", 1);
    let mut pair = Pair::new(seed);
    let mut dice = Dice(seed);
    for n in 1..=from_env("OPS", 12_000) {
        // Every so often time passes.
        let now = 1_795_000_000_000 + 1500 * (n as i64 / 20 % 10);
        let (how, words) = draw_fair(&mut dice, now);
        pair.both(how, &words);
        if n % 10 == 0 {
            pair.state();
        }
        // Before everything has a wrong type.
        if n % 100 == 0 {
            pair.both(Agree::Exactly, &["flushall".to_owned()]);
        }
    }
    pair.state();
}

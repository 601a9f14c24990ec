//! The simulator against a real `redis-server`: the same random commands and scripts at the same time of day must give
//! the same replies and the same state. A failure prints its seed; `SEED=n` replays it, `OPS=n` sets the length of a
//! run.

/// Concatenates scripts as the build does, after the code that all scripts of holds share.
macro_rules! holds {
    ($($file:literal),+) => {
        concat!(include_str!("../../lua/common/holds.lua") $(, include_str!(concat!("../../lua/", $file, ".lua")))+)
    };
}

mod cluster;
mod dice;
mod fair;
mod group;
mod plain;
mod ranges;
mod rwlock;
mod simple;

use distlock_sim::{SimReply, SimServer};
use distlock_support::{Clock, Numbers, RedisServer};

pub(crate) use dice::Dice;

/// Valid leases, then invalid ones.
const LEASES: [&str; 9] = ["10000", "20000", "40000", "80000", "0", "-5", "9223372036854775807", "x", "1.5"];

/// Ids of holds. Few, so that ids repeat.
const IDS: [&str; 4] = ["i1", "i2", "i3", "0a.7"];

mod real {
    //! The real server, and its replies.

    use distlock_support::RedisServer;
    use redis::{Connection, Value};

    pub struct Server {
        pub connection: Connection,
        _server: RedisServer,
    }

    impl Server {
        pub fn start(server: RedisServer) -> Self {
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

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Agree {
    Exactly,
    /// Lists may differ in order.
    Set,
    /// Errors are compared by their code only, because the text names the script.
    Script,
}

fn agree(how: Agree, sim: &SimReply, real: &SimReply) -> bool {
    match (sim, real) {
        (SimReply::List(a), SimReply::List(b)) if how == Agree::Set => {
            let sorted = |list: &[SimReply]| {
                let mut list: Vec<_> = list.iter().map(|item| format!("{item:?}")).collect();
                list.sort();
                list
            };
            sorted(a) == sorted(b)
        }
        (SimReply::Error(a), SimReply::Error(b)) if how == Agree::Script => a.split(' ').next() == b.split(' ').next(),
        (SimReply::Error(a), SimReply::Error(b)) => a.trim() == b.trim(),
        (a, b) => a == b,
    }
}

pub(crate) fn script(source: &str, keys: &[String], args: &[String]) -> (Agree, Vec<String>) {
    let mut words = vec!["EVAL".to_owned(), source.to_owned(), keys.len().to_string()];
    words.extend_from_slice(keys);
    words.extend_from_slice(args);
    (Agree::Script, words)
}

struct Pair {
    sim: SimServer,
    real: real::Server,
    /// The time of day of both servers. It moves only in [`Pair::pass`].
    clock: Clock,
    micros: i64,
    seed: u64,
    log: Vec<String>,
    /// Numbers of scripts that were run and that failed.
    scripts: (usize, usize),
}

impl Pair {
    fn new(seed: u64) -> Option<Self> {
        let (sim, clock) = (SimServer::new(seed), Clock::new()?);
        let SimReply::List(time) = sim.command(&[b"time"]) else { panic!("TIME is a list") };
        let [SimReply::Text(seconds), SimReply::Text(micros)] = time.as_slice() else { panic!("{time:?}") };
        let number = |text: &[u8]| str::from_utf8(text).unwrap().parse::<i64>().unwrap();
        let micros = number(seconds) * 1_000_000 + number(micros);
        clock.stop_at(micros);
        let real = real::Server::start(clock.of(RedisServer::builder()).start());
        Some(Self { sim, real, clock, micros, seed, log: Vec::new(), scripts: (0, 0) })
    }

    fn now(&self) -> i64 {
        self.micros / 1000
    }

    /// Lets so many ms pass on both servers.
    fn pass(&mut self, ms: i64) {
        self.micros += 1000 * ms;
        self.sim.step_clock(ms);
        self.clock.stop_at(self.micros);
        self.log.push(format!("{ms} ms pass"));
    }

    fn both(&mut self, how: Agree, words: &[String]) {
        let bytes: Vec<Vec<u8>> = words.iter().map(|word| word.clone().into_bytes()).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let sim = if words[0] == "EVAL" {
            let keys: usize = words[2].parse().unwrap();
            self.sim.eval(&words[1], &slices[3..3 + keys], &slices[3 + keys..])
        } else if words[0] == "keys" {
            SimReply::List(self.sim.keys().into_iter().map(|key| SimReply::Text(key.into())).collect())
        } else {
            self.sim.command(&slices)
        };
        let real = converted(self.real.run(&bytes));
        self.scripts.0 += usize::from(how == Agree::Script);
        self.scripts.1 += usize::from(how == Agree::Script && matches!(sim, SimReply::Error(_)));
        let short: Vec<&str> = words.iter().map(|word| word.lines().next().unwrap_or("")).collect();
        self.log.push(format!("{short:?} -> {sim:?}"));
        if !agree(how, &sim, &real) {
            let from = self.log.len().saturating_sub(25);
            let story = self.log[from..].join("\n");
            panic!("SEED={}, command {}:\n{story}\nthe real server says {real:?}", self.seed, self.log.len());
        }
    }

    fn state(&mut self) {
        let word = |text: &str| text.to_owned();
        self.both(Agree::Set, &[word("keys"), word("*")]);
        for key in self.sim.keys() {
            let key = String::from_utf8(key).unwrap();
            self.both(Agree::Exactly, &[word("type"), key.clone()]);
            self.both(Agree::Exactly, &[word("pttl"), key.clone()]);
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

fn command(words: &[&str]) -> (Agree, Vec<String>) {
    (Agree::Exactly, words.iter().map(|word| (*word).to_owned()).collect())
}

#[tokio::test(start_paused = true)]
async fn random_commands_get_same_replies_from_both_servers() {
    let seed = from_env("SEED", 1);
    let Some(mut pair) = Pair::new(seed) else { return };
    let mut dice = Dice(Numbers::new(seed));
    for n in 1..=from_env("OPS", 20_000) {
        let (how, words) = simple::draw(&mut dice, pair.now());
        pair.both(how, &words);
        if n % 20 == 0 {
            pair.pass(1500);
        }
        if n % 200 == 0 {
            pair.state();
        }
        // Deletes the keys now and then. Otherwise they become long lists, or get a type that no command changes.
        if n % 500 == 0 {
            pair.both(Agree::Exactly, &["flushall".to_owned()]);
        }
    }
    pair.state();
}

type Draw = fn(&mut Dice, i64) -> (Agree, Vec<String>);

/// Runs in which one of `keys` at a time expires. Compares both servers in the key's last millisecond and in the first
/// one without it.
fn ends_alike(keys: &[&'static str], draw: Draw) {
    let seed = from_env("SEED", 1);
    let Some(mut pair) = Pair::new(seed) else { return };
    let mut dice = Dice(Numbers::new(seed));
    let mut expired = 0;
    for _ in 0..24 {
        for _ in 0..60 {
            let (how, words) = draw(&mut dice, pair.now());
            pair.both(how, &words);
        }
        let short = dice.of(keys);
        expired += usize::from(pair.sim.pttl(short.as_bytes()) != -2);
        pair.both(Agree::Exactly, &["pexpire".to_owned(), short, "30".to_owned()]);
        pair.pass(29);
        for _ in 0..2 {
            pair.pass(1);
            pair.state();
        }
    }
    assert!(expired >= 8, "{expired} of 24 keys were there to expire: that shows little");
}

#[tokio::test(start_paused = true)]
async fn expired_leases_leave_same_state_on_both_servers() {
    ends_alike(&simple::KEYS, simple::draw);
}

#[tokio::test(start_paused = true)]
async fn counters_and_group_locks_expire_alike_on_both_servers() {
    ends_alike(&group::ENDING, group::draw);
}

#[tokio::test(start_paused = true)]
async fn expired_readers_leave_same_state_on_both_servers() {
    ends_alike(&rwlock::ENDING, rwlock::draw);
}

#[tokio::test(start_paused = true)]
async fn plain_locks_expire_alike_on_both_servers() {
    ends_alike(&plain::KEYS, plain::draw);
}

/// Random calls of a flavour's scripts, and commands that corrupt its keys.
fn scripts_do_the_same(draw: Draw) {
    let seed = from_env("SEED", 1);
    let Some(mut pair) = Pair::new(seed) else { return };
    let mut dice = Dice(Numbers::new(seed));
    for n in 1..=from_env("OPS", 12_000) {
        let (how, words) = draw(&mut dice, pair.now());
        pair.both(how, &words);
        if n % 20 == 0 {
            pair.pass(1500);
        }
        if n % 10 == 0 {
            pair.state();
        }
        // Before every key has a wrong type.
        if n % 100 == 0 {
            pair.both(Agree::Exactly, &["flushall".to_owned()]);
        }
    }
    pair.state();
    let (all, failed) = pair.scripts;
    assert!(failed * 2 < all, "{failed} of {all} scripts failed: that shows little");
}

#[tokio::test(start_paused = true)]
async fn fair_scripts_behave_alike_on_both_servers() {
    scripts_do_the_same(fair::draw);
}

/// Scripts of fenced, spin and multi locks.
#[tokio::test(start_paused = true)]
async fn fenced_spin_and_multi_scripts_behave_alike_on_both_servers() {
    scripts_do_the_same(group::draw);
}

#[tokio::test(start_paused = true)]
async fn plain_scripts_behave_alike_on_both_servers() {
    scripts_do_the_same(plain::draw);
}

#[tokio::test(start_paused = true)]
async fn read_write_scripts_behave_alike_on_both_servers() {
    scripts_do_the_same(rwlock::draw);
}

/// Scripts and commands of counters and sorted sets.
#[tokio::test(start_paused = true)]
async fn counters_and_ranges_behave_alike_on_both_servers() {
    scripts_do_the_same(ranges::draw);
}

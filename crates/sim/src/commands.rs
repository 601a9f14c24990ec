//! The commands of the simulated server: names, arity, dispatch.
//!
//! Only commands that distlock's scripts and their tests use are supported, in the forms that are used there. The texts
//! of errors are the same as in Redis 7.0.

mod hashes;
mod keys;
mod lists;
mod strings;
mod zsets;

use bytes::Bytes;

use super::number;
use super::reply::SimReply;
use super::store::{Failure, Store};
use distlock::transport::Arg;

pub(super) type Answer = Result<SimReply, Failure>;

type Handler = fn(&mut Store, &Words<'_>) -> Answer;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const NOT_A_FLOAT: &str = "ERR value is not a valid float";
const SYNTAX: &str = "ERR syntax error";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

/// A command's words in one buffer, so that a word costs no allocation.
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
}

impl<'a> Words<'a> {
    /// `ends[i]` is the end of word `i` in `bytes`.
    pub(super) const fn new(bytes: &'a [u8], ends: &'a [usize]) -> Self {
        Self { bytes, ends }
    }

    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns word `i`; word 0 is the command's name. Empty if there is no such word.
    pub(super) fn at(&self, i: usize) -> &'a [u8] {
        let Some(end) = self.ends.get(i) else { return b"" };
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..*end]
    }

    fn bytes_at(&self, i: usize) -> Bytes {
        Bytes::copy_from_slice(self.at(i))
    }

    fn from(&self, first: usize) -> impl Iterator<Item = &'a [u8]> + '_ {
        (first..self.len()).map(|i| self.at(i))
    }

    fn int(&self, i: usize) -> Result<i64, Failure> {
        number::int(self.at(i)).ok_or_else(|| NOT_AN_INTEGER.into())
    }

    fn float(&self, i: usize) -> Result<f64, Failure> {
        number::float(self.at(i)).ok_or_else(|| NOT_A_FLOAT.into())
    }

    fn is(&self, i: usize, option: &str) -> bool {
        self.at(i).eq_ignore_ascii_case(option.as_bytes())
    }
}

/// Why a command could not be run at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    Unknown,
    Arity,
}

pub(super) fn execute(store: &mut Store, words: &Words<'_>) -> Result<Answer, Unfit> {
    let mut name = [0_u8; 24];
    let given = words.at(0);
    let name = name.get_mut(..given.len()).ok_or(Unfit::Unknown)?;
    name.copy_from_slice(given);
    name.make_ascii_lowercase();
    let (arity, handler) = find(name).ok_or(Unfit::Unknown)?;
    let fits = if arity < 0 { words.len() >= arity.unsigned_abs() } else { words.len() == arity.unsigned_abs() };
    if fits { Ok(handler(store, words)) } else { Err(Unfit::Arity) }
}

/// Runs one command for a client. A script gets other error texts (`lua.rs`).
pub(super) fn direct(store: &mut Store, words: &Words<'_>) -> SimReply {
    let name = String::from_utf8_lossy(words.at(0));
    match execute(store, words) {
        Ok(Ok(reply)) => reply,
        Ok(Err(failure)) => SimReply::Error(failure),
        Err(Unfit::Unknown) => {
            let args: Vec<String> = words.from(1).map(|w| format!("'{}' ", String::from_utf8_lossy(w))).collect();
            SimReply::Error(format!("ERR unknown command '{name}', with args beginning with: {}", args.concat()))
        }
        Err(Unfit::Arity) => SimReply::Error(wrong_arity(&name.to_ascii_lowercase())),
    }
}

/// Runs one command for a client, with its name and arguments given separately.
pub(super) fn of_client(store: &mut Store, name: &str, words: &[Arg]) -> SimReply {
    let (mut bytes, mut ends) = (name.as_bytes().to_vec(), vec![name.len()]);
    for word in words {
        match word {
            Arg::Text(text) => bytes.extend_from_slice(text),
            Arg::Int(int) => bytes.extend_from_slice(&number::int_text(*int)),
        }
        ends.push(bytes.len());
    }
    direct(store, &Words::new(&bytes, &ends))
}

pub(super) fn keys<'a>(words: &Words<'a>) -> impl Iterator<Item = &'a [u8]> {
    let name = words.at(0);
    let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    let end = match () {
        () if is(&["time", "flushall", "publish", "spublish", "pubsub"]) => 1,
        () if is(&["exists", "del"]) => words.len(),
        () => words.len().min(2),
    };
    (1..end).map(|i| words.at(i)).collect::<Vec<_>>().into_iter()
}

/// Returns the channel of a sharded publish.
pub(super) fn channel<'a>(words: &Words<'a>) -> Option<&'a [u8]> {
    words.at(0).eq_ignore_ascii_case(b"spublish").then(|| words.at(1))
}

fn wrong_arity(name: &str) -> Failure {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Returns a command's arity, as Redis counts it, and its handler. The arity includes the name; a negative arity is a
/// minimum.
fn find(name: &[u8]) -> Option<(isize, Handler)> {
    Some(match name {
        b"exists" => (-2, keys::exists),
        b"del" => (-2, keys::del),
        b"pexpire" => (-3, keys::pexpire),
        b"pttl" => (2, keys::pttl),
        b"persist" => (2, keys::persist),
        b"type" => (2, keys::kind),
        b"flushall" => (-1, keys::flush),
        b"time" => (1, keys::time),
        b"publish" | b"spublish" => (3, keys::publish),
        b"pubsub" => (-2, keys::pubsub),
        b"get" => (2, strings::get),
        b"set" => (-3, strings::set),
        b"incr" => (2, strings::incr),
        b"incrby" => (3, strings::incrby),
        b"decrby" => (3, strings::decrby),
        b"hset" => (-4, hashes::hset),
        b"hget" => (3, hashes::hget),
        b"hdel" => (-3, hashes::hdel),
        b"hexists" => (3, hashes::hexists),
        b"hincrby" => (4, hashes::hincrby),
        b"hkeys" => (2, hashes::hkeys),
        b"hlen" => (2, hashes::hlen),
        b"hgetall" => (2, hashes::hgetall),
        b"hrandfield" => (-2, hashes::hrandfield),
        b"hmget" => (-3, hashes::hmget),
        b"rpush" => (-3, lists::rpush),
        b"lpush" => (-3, lists::lpush),
        b"lpop" => (2, lists::lpop),
        b"lindex" => (3, lists::lindex),
        b"llen" => (2, lists::llen),
        b"lset" => (4, lists::lset),
        b"lrange" => (4, lists::lrange),
        b"lrem" => (4, lists::lrem),
        b"zadd" => (-4, zsets::zadd),
        b"zscore" => (3, zsets::zscore),
        b"zrem" => (-3, zsets::zrem),
        b"zrange" => (-4, zsets::zrange),
        b"zrangebyscore" => (-4, zsets::zrangebyscore),
        b"zcount" => (4, zsets::zcount),
        b"zincrby" => (4, zsets::zincrby),
        b"zcard" => (2, zsets::zcard),
        _ => return None,
    })
}

const fn count(n: usize) -> SimReply {
    // No collection here can have more than i64::MAX elements.
    SimReply::Int(n as i64)
}

fn flag(yes: bool) -> SimReply {
    SimReply::Int(i64::from(yes))
}

/// Returns the range that `start` and `stop` select among `len` elements, by Redis' rules. Negative indexes count
/// from the end.
fn window(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let size = i64::try_from(len).unwrap_or(i64::MAX);
    let from = if start < 0 { start.saturating_add(size).max(0) } else { start };
    let to = if stop < 0 { stop.saturating_add(size) } else { stop.min(size - 1) };
    if from > to || from >= size {
        return 0..0;
    }
    usize::try_from(from).unwrap_or(0)..usize::try_from(to + 1).unwrap_or(0)
}

#[cfg(test)]
pub(super) fn run(store: &mut Store, words: &[&str]) -> SimReply {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for word in words {
        bytes.extend_from_slice(word.as_bytes());
        ends.push(bytes.len());
    }
    direct(store, &Words::new(&bytes, &ends))
}

#[cfg(test)]
mod tests;

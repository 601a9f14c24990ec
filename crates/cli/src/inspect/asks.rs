//! The reads of `inspect`, sent in one pipeline for each server: usually one, because the keys of a name share a slot.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use fred::types::Value;

use crate::connect::Servers;
use crate::exit::Failure;
use crate::keys::{Names, reply};

/// At most this many elements of a collection are read.
pub const MOST: usize = 1000;
/// `HGETALL` is sent only for hashes with at most this many fields.
const LARGEST: i64 = 10_000;
/// At most this many bytes of a string are used.
const LONGEST: usize = 256;

/// Subject of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Time,
    Type,
    Ttl,
    /// Number of fields of the lock's hash.
    Size,
    Fields,
    Mode,
    /// Value of a string.
    Text,
    Counter,
    QueueLength,
    Queue,
    Deadlines,
    LeaseCount,
    Leases,
    Marks,
    Barrier,
    PartyCount,
    Parties,
    /// The fair lock in front of fair permits.
    LineSize,
    Line,
    LineTtl,
    LineLength,
    LineQueue,
    LineDeadlines,
    Subscribers,
    ShardSubscribers,
}

/// One read: what it is about, the key whose server answers, and the command.
pub struct Ask {
    what: What,
    key: Bytes,
    words: Vec<Bytes>,
}

impl Ask {
    /// Reads `key` by this command; `{}` stands for the key.
    fn of(what: What, key: Bytes, command: &str) -> Self {
        let word = |word: &str| if word == "{}" { key.clone() } else { Bytes::copy_from_slice(word.as_bytes()) };
        let words = command.split(' ').map(word).collect();
        Self { what, key, words }
    }

    /// The reply in the form of a reply of the usual command: `HSCAN`, `GETRANGE`.
    fn in_usual_form(&self, reply: Value) -> Value {
        match self.words.first().map(|word| &word[..]) {
            Some(b"HGETALL") => Value::Array(vec![Value::from("0"), reply]),
            Some(b"GET") => {
                reply::bytes(&reply).map_or(Value::Null, |text| Value::Bytes(text.slice(..text.len().min(LONGEST))))
            }
            _ => reply,
        }
    }
}

/// A read that the server has refused.
#[derive(Debug)]
pub struct Unread {
    what: What,
    key: Bytes,
    pub why: Failure,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", String::from_utf8_lossy(&self.key), self.why)
    }
}

/// The replies. A read that the server has refused has none.
#[derive(Debug, Default)]
pub struct Answers {
    replies: HashMap<What, Value>,
    pub unread: Vec<Unread>,
    /// The server that has the main key.
    pub server: String,
}

impl Answers {
    /// The reply to this read; `Null` if there is none.
    pub fn get(&self, what: What) -> &Value {
        self.replies.get(&what).unwrap_or(&Value::Null)
    }

    /// The refused read without which it is unknown whether somebody holds the lock.
    pub fn undecided(&self) -> Option<&Unread> {
        let needed = |what| match what {
            What::Fields | What::Mode => self.is_type("hash"),
            What::Text | What::Ttl => self.is_type("string"),
            _ => false,
        };
        self.unread.iter().find(|unread| needed(unread.what))
    }

    fn is_type(&self, kind: &str) -> bool {
        reply::text(self.get(What::Type)).is_some_and(|found| found == kind)
    }

    /// The refused read by another command, which `docs/acl.md` allows. `None` if there is none.
    fn otherwise(&self, ask: &Ask) -> Option<Ask> {
        let is_small = |size| reply::int(self.get(size)).is_some_and(|fields| fields <= LARGEST);
        let command = match ask.what {
            What::Fields if is_small(What::Size) => "HGETALL {}",
            What::Line if is_small(What::LineSize) => "HGETALL {}",
            What::Text | What::Counter => "GET {}",
            _ => return None,
        };
        Some(Ask::of(ask.what, ask.key.clone(), command))
    }

    /// Sends reads. Returns the refused ones, except reads that suit another type of key.
    async fn read(&mut self, servers: &Servers, asks: Vec<Ask>) -> Result<Vec<(Ask, Failure)>, Failure> {
        let mut refused = Vec::new();
        for (raw, group) in servers.grouped(asks, |ask| &ask.key[..])? {
            let replies = raw.calls(group.iter().map(|ask| ask.words.clone()).collect()).await?;
            for (ask, reply) in group.into_iter().zip(replies) {
                match reply {
                    Ok(reply) => {
                        self.replies.insert(ask.what, ask.in_usual_form(reply));
                    }
                    Err(failure) if matches!(ask.what, What::Type | What::Time) => return Err(failure),
                    // Servers before 7.0 have no sharded channels.
                    Err(_) if ask.what == What::ShardSubscribers => {}
                    // Most reads suit one type of key only.
                    Err(Failure::Server(text)) if text.contains("WRONGTYPE") => {}
                    Err(failure) => refused.push((ask, failure)),
                }
            }
        }
        // A server refuses a command before it looks at the type of the key.
        refused.retain(|(ask, _)| match ask.what {
            What::Size | What::Fields | What::Mode => self.is_type("hash"),
            What::Text => self.is_type("string"),
            _ => true,
        });
        Ok(refused)
    }

    /// The same replies with this one.
    #[cfg(test)]
    pub fn with(mut self, what: What, reply: Value) -> Self {
        self.replies.insert(what, reply);
        self
    }

    /// The same replies with this refused read.
    #[cfg(test)]
    pub fn without(mut self, what: What) -> Self {
        let why = Failure::Server("NOPERM".to_owned());
        self.unread.push(Unread { what, key: Bytes::new(), why });
        self
    }
}

/// All reads about a name.
fn about(names: &Names) -> Vec<Ask> {
    let last = MOST - 1;
    let (range, scored) = (format!("LRANGE {{}} 0 {last}"), format!("ZRANGE {{}} 0 {last} WITHSCORES"));
    let (fields, line) = (format!("HSCAN {{}} 0 COUNT {MOST}"), names.line());
    let key = || names.key.clone();
    let mut asks = vec![
        Ask::of(What::Time, key(), "TIME"),
        Ask::of(What::Type, key(), "TYPE {}"),
        Ask::of(What::Ttl, key(), "PTTL {}"),
        Ask::of(What::Size, key(), "HLEN {}"),
        Ask::of(What::Fields, key(), &fields),
        Ask::of(What::Mode, key(), "HGET {} mode"),
        Ask::of(What::Text, key(), "GETRANGE {} 0 255"),
        Ask::of(What::Counter, names.counter(), "GETRANGE {} 0 31"),
        Ask::of(What::QueueLength, names.queue(), "LLEN {}"),
        Ask::of(What::Queue, names.queue(), &range),
        Ask::of(What::Deadlines, names.deadlines(), &scored),
        Ask::of(What::LeaseCount, names.leases(), "ZCARD {}"),
        Ask::of(What::Leases, names.leases(), &scored),
        Ask::of(What::Marks, names.marks(), &scored),
        Ask::of(What::Barrier, names.barrier(), "HMGET {} round first n broken"),
        Ask::of(What::PartyCount, names.parties(), "ZCARD {}"),
        Ask::of(What::Parties, names.parties(), &scored),
        Ask::of(What::LineSize, line.key.clone(), "HLEN {}"),
        Ask::of(What::Line, line.key.clone(), &fields),
        Ask::of(What::LineTtl, line.key.clone(), "PTTL {}"),
        Ask::of(What::LineLength, line.queue(), "LLEN {}"),
        Ask::of(What::LineQueue, line.queue(), &range),
        Ask::of(What::LineDeadlines, line.deadlines(), &scored),
    ];
    for (what, command) in [(What::Subscribers, "NUMSUB"), (What::ShardSubscribers, "SHARDNUMSUB")] {
        let front = ["PUBSUB", command].map(|word| Bytes::from_static(word.as_bytes()));
        asks.push(Ask { what, key: key(), words: front.into_iter().chain(names.channels()).collect() });
    }
    asks
}

/// Reads everything about a name. A login may lack the rights to `HSCAN` and `GETRANGE`, which read a part of a large
/// value. Then other commands read the whole value.
///
/// # Errors
///
/// [`Failure::Unreachable`]; [`Failure::Server`] if the server refuses to tell the key's type or its own time.
pub async fn ask(servers: &Servers, names: &Names) -> Result<Answers, Failure> {
    let mut answers = Answers { server: servers.of(&names.key)?.address().to_owned(), ..Answers::default() };
    let mut refused = answers.read(servers, about(names)).await?;
    let again: Vec<Ask> = refused.iter().filter_map(|(ask, _)| answers.otherwise(ask)).collect();
    refused.retain(|(ask, _)| again.iter().all(|other| other.what != ask.what));
    refused.extend(answers.read(servers, again).await?);
    answers.unread = refused.into_iter().map(|(ask, why)| Unread { what: ask.what, key: ask.key, why }).collect();
    Ok(answers)
}

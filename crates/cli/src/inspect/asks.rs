//! The reads of `inspect`, sent in one pipeline for each server: usually one, because the keys of a name share a slot.

use std::collections::HashMap;

use bytes::Bytes;
use fred::types::Value;

use crate::connect::Servers;
use crate::exit::Failure;
use crate::keys::Names;

/// At most this many elements of a collection are read.
pub const MOST: usize = 1000;

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
}

/// The replies. A read that the server has refused has none.
#[derive(Debug, Default)]
pub struct Answers {
    replies: HashMap<What, Value>,
    /// Keys that could not be read, with the server's errors.
    pub unread: Vec<String>,
    /// The server that has the main key.
    pub server: String,
}

impl Answers {
    /// The reply to this read; `Null` if there is none.
    pub fn get(&self, what: What) -> &Value {
        self.replies.get(&what).unwrap_or(&Value::Null)
    }

    /// The same replies with this one.
    #[cfg(test)]
    pub fn with(mut self, what: What, reply: Value) -> Self {
        self.replies.insert(what, reply);
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

/// Reads everything about a name.
///
/// # Errors
///
/// [`Failure::Unreachable`]; [`Failure::Server`] if the server refuses to tell the key's type or its own time.
pub async fn ask(servers: &Servers, names: &Names) -> Result<Answers, Failure> {
    let mut answers = Answers { server: servers.of(&names.key)?.address().to_owned(), ..Answers::default() };
    for (raw, group) in servers.grouped(about(names), |ask| &ask.key[..])? {
        let replies = raw.calls(group.iter().map(|ask| ask.words.clone()).collect()).await?;
        for (ask, reply) in group.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    answers.replies.insert(ask.what, reply);
                }
                Err(failure) if matches!(ask.what, What::Type | What::Time) => return Err(failure),
                // Servers before 7.0 have no sharded channels.
                Err(_) if ask.what == What::ShardSubscribers => {}
                // Most reads suit one type of key only.
                Err(Failure::Server(text)) if text.contains("WRONGTYPE") => {}
                Err(failure) => answers.unread.push(format!("{}: {failure}", String::from_utf8_lossy(&ask.key))),
            }
        }
    }
    Ok(answers)
}

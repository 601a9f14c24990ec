//! Finds held locks by the script `look.lua`, one call for each page of keys. A call takes the server about a
//! millisecond. Keys that are no locks cause no traffic.

use bytes::Bytes;
use distlock::TopologyKind;
use fred::types::Value;
use serde_json::{Value as Json, json};

use super::show::{count, safe};
use super::{Language, of_plain, reply};
use crate::connect::{Raw, Servers};
use crate::exit::Failure;

const SCRIPT: &str = include_str!("look.lua");
/// `COUNT` of a scan: the script spends about 3 us on each key.
const PAGE: &str = "400";

/// A lock whose name has a fencing counter. The holder may have acquired it as a fenced or as a reentrant lock: both
/// write the same hash, and only the fenced lock counts.
pub const MAYBE_FENCED: &str = "reentrant or fenced";

/// The flavour of a held lock, as its keys show it. A spin lock, and a fair lock without waiters, look like a reentrant
/// lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Reentrant,
    Fair,
    /// [`MAYBE_FENCED`].
    MaybeFenced,
    Read,
    Write,
    Plain,
    Permits,
}

impl Kind {
    /// The flavour's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::MaybeFenced => MAYBE_FENCED,
            Self::Read => "read",
            Self::Write => "write",
            Self::Plain => "plain",
            Self::Permits => "permits",
        }
    }
}

/// A held lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The main key.
    pub key: Bytes,
    pub kind: Kind,
    /// Time in ms until the key expires; for permits, until the last lease ends. `None` = no end.
    pub ttl: Option<i64>,
    /// The owner; for a read lock one of the readers. `None` for permits.
    pub holder: Option<String>,
    /// The owner's holds; the number of readers; the number of held permits.
    pub holds: i64,
    /// Fair locks: waiters in the queue. Others: connections that subscribe to the lock's channel, one for each process
    /// that waits or has just waited.
    pub waiters: i64,
    /// The fencing counter; for permits the total.
    pub number: Option<i64>,
}

impl Found {
    /// The lock's name: its key without this prefix.
    pub fn name(&self, prefix: &str) -> String {
        let name = self.key.strip_prefix(prefix.as_bytes()).unwrap_or(&self.key);
        String::from_utf8_lossy(name).into_owned()
    }

    /// The language of the holder.
    pub fn language(&self) -> Option<Language> {
        self.holder.as_deref().and_then(Language::of)
    }

    /// The holder as text for people: the owner, the number of readers, or the number of held permits.
    pub fn shown_holder(&self) -> String {
        match (&self.holder, self.kind, self.number) {
            (_, Kind::Read, _) if self.holds > 1 => count(usize::try_from(self.holds).unwrap_or(0), "reader"),
            (Some(holder), ..) => safe(holder),
            (None, _, Some(total)) => format!("{} of {total} permits", self.holds),
            (None, _, None) => String::new(),
        }
    }

    /// One line of `list --json`, which describes the members.
    pub fn json(&self, prefix: &str) -> Json {
        let mut line = json!({
            "name": self.name(prefix),
            "key": String::from_utf8_lossy(&self.key),
            "flavour": self.kind.as_str(),
            "owner": self.holder,
            "language": self.language().map(Language::as_str),
            "holds": self.holds,
            "ttl_ms": self.ttl,
            "waiters": self.waiters,
        });
        match self.kind {
            Kind::MaybeFenced => line["fencing_counter"] = json!(self.number),
            Kind::Permits => line["total"] = json!(self.number),
            _ => {}
        }
        line
    }

    /// Reads a record of `look.lua`.
    fn read(record: &Value) -> Option<Self> {
        let [key, kind, ttl, holder, holds, queue, subscribers, number] = reply::list(record) else { return None };
        let holder = reply::text(holder)?;
        let (queue, subscribers, number) = (reply::int(queue)?, reply::int(subscribers)?, reply::int(number));
        let (kind, holder) = match &*reply::text(kind)? {
            "lock" if queue > 0 => (Kind::Fair, Some(holder)),
            "lock" if number.is_some() => (Kind::MaybeFenced, Some(holder)),
            "lock" => (Kind::Reentrant, Some(holder)),
            "read" => (Kind::Read, Some(holder)),
            "write" => (Kind::Write, Some(holder)),
            // No lock, if another program wrote a value that only looks like a value of this crate.
            "plain" => (Kind::Plain, Some(of_plain(&holder)?.0)),
            "permits" => (Kind::Permits, None),
            _ => return None,
        };
        Some(Self {
            key: reply::bytes(key)?,
            kind,
            ttl: reply::int(ttl).filter(|ms| *ms >= 0),
            holder,
            holds: reply::int(holds)?,
            waiters: if kind == Kind::Fair { queue } else { subscribers },
            number,
        })
    }
}

/// One page of a scan.
pub struct Page {
    /// Where the next page begins; `0` after the last page.
    pub cursor: Bytes,
    /// Number of keys in this page.
    pub looked: u64,
    pub locks: Vec<Found>,
}

/// Reads the page of a scan that begins at `cursor`.
///
/// # Errors
///
/// As [`Raw::call`]. If the login lacks the right to a command, the error names it.
pub async fn page(servers: &Servers, raw: &Raw, cursor: &Bytes, pattern: &str) -> Result<Page, Failure> {
    let words = [Bytes::from_static(b"scan"), cursor.clone(), Bytes::from_static(PAGE.as_bytes())];
    let pattern = Bytes::copy_from_slice(pattern.as_bytes());
    let reply = run(servers, raw, words.into_iter().chain([pattern])).await?;
    let locks = reply::list(reply::nth(&reply, 2)).iter().filter_map(Found::read).collect();
    let cursor = reply::bytes(reply::nth(&reply, 0)).unwrap_or_else(|| Bytes::from_static(b"0"));
    let looked = reply::int(reply::nth(&reply, 1)).and_then(|keys| u64::try_from(keys).ok()).unwrap_or(0);
    Ok(Page { cursor, looked, locks })
}

/// Looks at these keys of one server. Locks that are free are missing in the result.
///
/// # Errors
///
/// As [`page`].
pub async fn keys(servers: &Servers, raw: &Raw, keys: &[Bytes]) -> Result<Vec<Found>, Failure> {
    let reply = run(servers, raw, [Bytes::from_static(b"keys")].into_iter().chain(keys.iter().cloned())).await?;
    Ok(reply::list(reply::nth(&reply, 2)).iter().filter_map(Found::read).collect())
}

async fn run(servers: &Servers, raw: &Raw, words: impl Iterator<Item = Bytes>) -> Result<Value, Failure> {
    let sharded = if servers.kind() == TopologyKind::Cluster { "shardnumsub" } else { "" };
    let front = ["EVAL", SCRIPT, "0", sharded].map(|word| Bytes::from_static(word.as_bytes()));
    raw.call(front.into_iter().chain(words)).await
}

/// The pattern of `SCAN` for the names that match `glob`: the prefix is taken literally.
pub fn pattern(prefix: &str, glob: Option<&str>) -> String {
    if prefix.is_empty() && glob.is_none() {
        return String::new();
    }
    let mut pattern = String::new();
    for letter in prefix.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern + glob.unwrap_or("*")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab:7";

    fn record(kind: &str, ttl: i64, holder: &str, queue: i64, number: &str) -> Value {
        let text = |word: &str| Value::from(word);
        let ints = [3, queue, 2].map(Value::Integer);
        let mut record = vec![text("app:a"), text(kind), Value::Integer(ttl), text(holder)];
        record.extend(ints);
        record.push(text(number));
        Value::Array(record)
    }

    #[test]
    fn records_become_locks_of_every_flavour() {
        for (kind, queue, number, expected, waiters) in [
            ("lock", 0, "", Kind::Reentrant, 2),
            ("lock", 5, "9", Kind::Fair, 5),
            ("lock", 0, "9", Kind::MaybeFenced, 2),
            ("read", 0, "", Kind::Read, 2),
            ("write", 0, "", Kind::Write, 2),
            ("plain", 0, "", Kind::Plain, 2),
        ] {
            let found = Found::read(&record(kind, 100, OWNER, queue, number)).expect(kind);
            assert_eq!((found.kind, found.waiters, found.ttl), (expected, waiters, Some(100)));
            assert_eq!((found.holder.as_deref(), found.language()), (Some(OWNER), Some(Language::Rust)));
            assert_eq!((found.name("app:"), found.name("other:"), found.holds), ("a".into(), "app:a".into(), 3));
        }
        let permits = Found::read(&record("permits", -1, "", 0, "8")).expect("permits");
        assert_eq!((permits.holder, permits.ttl, permits.number), (None, None, Some(8)));
    }

    #[test]
    fn plain_value_of_another_program_is_no_lock() {
        assert_eq!(Found::read(&record("plain", 100, &"A".repeat(52), 0, "")), None);
        assert_eq!(Found::read(&Value::Null), None);
    }

    #[test]
    fn pattern_takes_the_prefix_literally() {
        assert_eq!(pattern("", None), "");
        assert_eq!(pattern("", Some("a*")), "a*");
        assert_eq!(pattern("a[1]:", Some("b?")), "a\\[1\\]:b?");
        assert_eq!(pattern("app:", None), "app:*");
    }
}

//! Who holds a lock.

use std::fmt::{self, Write as _};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::hash::seeded;
use crate::world::World;

tokio::task_local! {
    static CURRENT: Owner;
}

/// Who holds a lock: `<client uuid>:<number>`, the field that stands in the lock's hash, as Redisson writes its thread.
///
/// Two acquires with the same owner are one holder coming in twice (the hold count goes up). Every acquire gets a fresh
/// owner unless one is given by [`Acquire::owner`](crate::Acquire::owner) or [`Owner::scope`], so there is no re-entry
/// by accident. An owner is never an OS thread or a task.
///
/// As text it can travel to another process (`Display`, `FromStr`, serde), which may come in as this owner or release what
/// it holds. Every hold is counted for itself, whoever took it: a guard gives back what its own acquire took, and nothing
/// else. See `docs/owners.md` for what is promised of owners that several act as.
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    text: Bytes,
    /// Of the text, for tables: the text may come from the outside world.
    hash: u64,
    /// True once somebody may acquire as this owner by name.
    known: AtomicBool,
    /// For an owner at one of several servers: the owner of the whole.
    whole: Option<Owner>,
}

/// A new uuid to begin owners with: of version 8, so that scripts can tell our owners from Java's, which are of version 4.
pub(crate) fn client_id(world: &dyn World) -> String {
    let random = (u128::from(world.random()) << 64) | u128::from(world.random());
    uuid::Builder::from_custom_bytes(random.to_be_bytes()).into_uuid().to_string()
}

/// So many owners' texts share a piece of memory: each acquire has an owner of its own, and most live as long as their neighbours.
/// One that stays keeps half a kilobyte at the most.
const TOGETHER: u64 = 8;

/// Fresh owners of one uuid, each of another number.
#[derive(Debug)]
pub(crate) struct Owners {
    id: Box<str>,
    ready: Mutex<Ready>,
}

/// The texts of the next owners.
#[derive(Debug)]
struct Ready {
    /// The number of the next owner.
    next: u64,
    texts: Bytes,
}

impl Owners {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.into(), ready: Mutex::new(Ready { next: 1, texts: Bytes::new() }) }
    }

    pub(crate) fn fresh(&self) -> Owner {
        let text = {
            let mut ready = self.ready.lock();
            let first = ready.next;
            if ready.texts.is_empty() {
                ready.texts = texts(&self.id, first..first.saturating_add(TOGETHER));
            }
            ready.next = first.saturating_add(1);
            let length = self.id.len() + 1 + digits(first);
            ready.texts.split_to(length)
        };
        Owner::of(text)
    }
}

/// How many decimal digits a number has.
const fn digits(number: u64) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

/// The texts of these owners of a client, one behind the other.
fn texts(client: &str, numbers: Range<u64>) -> Bytes {
    let length = numbers.clone().map(|number| client.len() + 1 + digits(number)).sum();
    let mut texts = String::with_capacity(length);
    for number in numbers {
        // Writing to a string does not fail.
        let _ = write!(texts, "{client}:{number}");
    }
    Bytes::from(texts)
}

impl Owner {
    /// This owner at the server of this number. Each server knows it by another name, so that two clients of one server
    /// are never taken for two servers that granted a lock.
    pub(crate) fn at(&self, node: usize) -> Self {
        if node == 0 {
            return self.clone();
        }
        let text = Bytes::from(moved(self.text(), node));
        let (hash, whole) = (seeded(&text), Some(self.clone()));
        Self(Arc::new(Inner { text, hash, known: AtomicBool::new(false), whole }))
    }

    #[cfg(test)]
    pub(crate) fn fresh(client: &str, number: u64) -> Self {
        Self::of(Bytes::from(format!("{client}:{number}")))
    }

    /// One that nobody knows yet.
    fn of(text: Bytes) -> Self {
        let hash = seeded(&text);
        Self(Arc::new(Inner { text, hash, known: AtomicBool::new(false), whole: None }))
    }

    /// The owner as it stands in Redis.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Whoever has it may act as it.
        self.reveal();
        self.text()
    }

    /// As [`as_str`](Self::as_str), for text that stays in this crate.
    pub(crate) fn text(&self) -> &str {
        // Made from a str in both constructors.
        std::str::from_utf8(&self.0.text).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.0.text.clone()
    }

    /// The user has this owner in hand.
    pub(crate) fn reveal(&self) {
        self.0.known.store(true, Ordering::Relaxed);
    }

    /// True when somebody may come in again as this owner: what it holds cannot be handed over to another task.
    pub(crate) fn is_known(&self) -> bool {
        self.0.known.load(Ordering::Relaxed) || self.0.whole.as_ref().is_some_and(Self::is_known)
    }

    /// Runs `work` with this owner as the current one: every acquire inside that names no owner uses it, as every lock
    /// call on one Java thread has the same holder. Does not reach into tasks that `work` spawns.
    ///
    /// *Cost*: none. *Cancel safety*: that of `work`.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }
}

/// An owner's text at the server of this number, and back: the last byte of the client's uuid is another.
pub(crate) fn moved(owner: &str, node: usize) -> String {
    // The last two digits of the uuid.
    let byte = owner.get(34..36).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    match byte {
        Some(byte) => format!("{}{:02x}{}", &owner[..34], byte ^ (node & 0xff) as u8, &owner[36..]),
        None => owner.to_owned(),
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.text())
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl FromStr for Owner {
    type Err = Error;

    /// Reads `<uuid>:<number>`, ours or a Redisson client's (its thread id is the number).
    fn from_str(text: &str) -> Result<Self> {
        let odd = || Error::config(format!("{text:?} is no owner: expected <uuid>:<number>"));
        let (client, number) = text.rsplit_once(':').ok_or_else(odd)?;
        number.parse::<u64>().map_err(|_| odd())?;
        if client.len() != 36 || uuid::Uuid::try_parse(client).is_err() || text.len() > 36 + 1 + 20 {
            return Err(odd());
        }
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Ok(Self(Arc::new(Inner { hash: seeded(&bytes), text: bytes, known: AtomicBool::new(true), whole: None })))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Owner {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Owner {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Machine;

    const ID: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab";

    #[test]
    fn text_and_back() {
        for number in [0, 7, 10, u64::MAX] {
            let owner = Owner::fresh(ID, number);
            assert_eq!(owner.text(), format!("{ID}:{number}"));
            assert!(!owner.is_known());
            let read: Owner = owner.as_str().parse().unwrap();
            assert_eq!(read, owner);
            assert!(read.is_known() && owner.is_known());
        }
    }

    #[test]
    fn each_server_knows_an_owner_by_another_name() {
        let owner = Owner::fresh(ID, 7);
        let all: std::collections::HashSet<_> = (0..256).map(|node| owner.at(node).text().to_owned()).collect();
        assert_eq!(all.len(), 256);
        for node in 0..256 {
            let there = owner.at(node);
            assert_eq!(moved(there.text(), node), owner.text());
            assert!(!there.is_known());
        }
        let there = owner.at(3);
        owner.reveal();
        assert!(there.is_known());
        let made = Owners::new(&client_id(&Machine));
        assert_eq!(made.fresh().text().as_bytes()[14], b'8');
        assert_ne!(made.fresh(), made.fresh());
        for number in 4..=1_005 {
            assert_eq!(made.fresh().text(), format!("{}:{number}", made.id));
        }
    }

    #[test]
    fn what_is_no_owner_is_refused() {
        for text in ["", ":", "x:1", ID, &format!("{ID}:"), &format!("{ID}:-1"), &format!("{ID}:1:write")] {
            assert!(text.parse::<Owner>().is_err(), "{text:?}");
        }
    }
}

//! Owners: who holds a lock.

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

/// Identity of a lock's holder: `<client uuid>:<number>`, the field in the lock's hash where Redisson writes its
/// client and thread.
///
/// Acquires with the same owner re-enter the lock: its hold count goes up. Every acquire gets a fresh owner, unless
/// one is given by [`Acquire::owner`](crate::Acquire::owner) or [`Owner::scope`], so re-entry never happens by
/// accident. An owner is never an OS thread or a task.
///
/// An owner can be sent to another process as text (`Display`, `FromStr`, serde). The other process may re-enter as
/// this owner, or release the owner's holds. A guard releases exactly the hold of its own acquire.
/// [`guide::owners`](crate::guide::owners) describes what is promised if several tasks share an owner.
///
/// # Examples
///
/// ```no_run
/// # use distlock::Acquire;
/// # async fn example(client: distlock::Client) -> distlock::Result<()> {
/// let owner = client.owner();
/// let lock = client.reentrant("orders:42");
/// let outer = lock.acquire(Acquire::new().owner(&owner)).await?;
/// let inner = lock.acquire(Acquire::new().owner(&owner)).await?; // re-entry: no wait
/// assert_eq!(lock.hold_count(&owner).await?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    text: Bytes,
    /// Seeded hash of the text, for tables.
    hash: u64,
    /// True once code outside of this crate may act as this owner.
    known: AtomicBool,
    /// For the owner at one server of a RedLock: the owner of the whole RedLock.
    whole: Option<Owner>,
}

/// Returns a new client uuid. It has version 8, and Java's have version 4, so that scripts can tell them apart.
pub(crate) fn client_id(world: &dyn World) -> String {
    let random = (u128::from(world.random()) << 64) | u128::from(world.random());
    uuid::Builder::from_custom_bytes(random.to_be_bytes()).into_uuid().to_string()
}

/// Number of owners whose texts share one buffer. Successive owners mostly live equally long. A long-lived owner keeps
/// the whole buffer, at most half a kilobyte.
const TOGETHER: u64 = 8;

/// Creates fresh owners of one uuid, with increasing numbers.
#[derive(Debug)]
pub(crate) struct Owners {
    id: Box<str>,
    ready: Mutex<Ready>,
}

/// Prepared texts of the next owners.
#[derive(Debug)]
struct Ready {
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

const fn digits(number: u64) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

/// The texts of a client's owners with these numbers, concatenated.
fn texts(client: &str, numbers: Range<u64>) -> Bytes {
    let length = numbers.clone().map(|number| client.len() + 1 + digits(number)).sum();
    let mut texts = String::with_capacity(length);
    for number in numbers {
        let _ = write!(texts, "{client}:{number}");
    }
    Bytes::from(texts)
}

impl Owner {
    /// This owner at server number `node` of a RedLock. The owner's text differs on each server, so that two clients of
    /// one server never count as two servers that granted the lock.
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

    fn of(text: Bytes) -> Self {
        let hash = seeded(&text);
        Self(Arc::new(Inner { text, hash, known: AtomicBool::new(false), whole: None }))
    }

    /// Returns the owner as stored in Redis.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The caller may act as this owner.
        self.reveal();
        self.text()
    }

    /// [`as_str`](Self::as_str), for text that stays in this crate.
    pub(crate) fn text(&self) -> &str {
        // Every constructor starts from a `str`.
        std::str::from_utf8(&self.0.text).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.0.text.clone()
    }

    /// Marks the owner as known outside of this crate.
    pub(crate) fn reveal(&self) {
        self.0.known.store(true, Ordering::Relaxed);
    }

    /// True if someone else may act as this owner. Then its holds are not handed over to another task.
    pub(crate) fn is_known(&self) -> bool {
        self.0.known.load(Ordering::Relaxed) || self.0.whole.as_ref().is_some_and(Self::is_known)
    }

    /// Runs `work` with this owner as the current owner. Acquires in `work` that name no owner use the current owner,
    /// as all lock calls on one Java thread share a holder. Tasks that `work` spawns do not use it.
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Cancel safety
    ///
    /// Depends on `work`.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }
}

/// Converts an owner's text to the text at server number `node`, and back, by changing the last byte of the uuid.
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

    /// Parses `<uuid>:<number>`, an owner of this crate or of a Redisson client (the number is its thread id).
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
    fn owner_round_trips_through_text() {
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
    fn owner_has_different_text_at_each_server() {
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
    fn malformed_owner_text_is_refused() {
        for text in ["", ":", "x:1", ID, &format!("{ID}:"), &format!("{ID}:-1"), &format!("{ID}:1:write")] {
            assert!(text.parse::<Owner>().is_err(), "{text:?}");
        }
    }
}

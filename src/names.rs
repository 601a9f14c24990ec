//! Every key and channel name, the hash-tag rule, and the limits of names: the only place that spells `redisson_`.
//!
//! They are Redisson's, but for three: `docs/wire-format.md`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

mod slot;

use crate::error::{Error, Result};
use crate::hash::seeded;

/// The longest name, in bytes of UTF-8, prefix included.
pub(crate) const LONGEST: usize = 4096;

/// The channel on which releases of Redisson's locks are announced, but for read-write locks.
const LOCK_CHANNEL: &str = "redisson_lock__channel";

/// The channel on which releases of read-write locks are announced.
const RW_CHANNEL: &str = "redisson_rwlock";

/// The channel on which our releases of plain locks are announced: other libraries have none.
const PLAIN_CHANNEL: &str = "distlock_plain";

/// Set the halves of a lock, and a plain lock, apart in tables.
const PLAIN_SALT: u64 = 0x3c3c_2468_ace0_1357;
const READ_SALT: u64 = 0xa5a5_1357_9bdf_2468;
const WRITE_SALT: u64 = 0x5a5a_8642_fdb9_7531;

/// The keys of a fair lock's queue, of its waiters' deadlines, and of those that are ours.
const LOCK_QUEUE: &str = "redisson_lock_queue";
const LOCK_TIMEOUT: &str = "redisson_lock_timeout";
const LOCK_WAITERS: &str = "redisson_lock_waiters";

/// The counter of a fenced lock's sections.
const LOCK_TOKEN: &str = "redisson_lock_token";

/// A lock's name with all that derives from it, made once for a lock object.
pub(crate) struct LockName {
    /// What the user wrote, without the prefix.
    pub(crate) as_written: Arc<str>,
    /// The main key: prefix and name.
    pub(crate) key: Bytes,
    /// Where its releases are announced.
    pub(crate) channel: Bytes,
    /// For a waiter's own channel: the lock it waits for.
    pub(crate) lock: Option<Arc<LockName>>,
    /// Which of those under this name it stands for: each has waiters and holds of its own.
    pub(crate) half: Half,
    hash: u64,
    /// The slot of its key, once somebody has asked.
    slot: OnceLock<u16>,
}

/// Which of those that stand under one name: a part of a lock that is acquired for itself, or a lock of another dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// There is but one.
    Whole,
    /// Of a read-write lock.
    Read,
    /// Of a read-write lock.
    Write,
    /// None of those under this name: a lock of the plain dialect, with a channel of its own.
    Plain,
}

impl LockName {
    pub(crate) fn new(prefix: &str, written: &str) -> Arc<Self> {
        Arc::new(Self::on(LOCK_CHANNEL, prefix, written, Half::Whole, 0))
    }

    /// Of a plain lock.
    pub(crate) fn of_plain(prefix: &str, written: &str) -> Arc<Self> {
        Arc::new(Self::on(PLAIN_CHANNEL, prefix, written, Half::Plain, PLAIN_SALT))
    }

    fn on(channel: &str, prefix: &str, written: &str, half: Half, salt: u64) -> Self {
        let key = format!("{prefix}{written}");
        let hash = seeded(key.as_bytes()) ^ salt;
        let channel = Bytes::from(tagged(channel, &key));
        // The channel's name ends in the key, and perhaps a brace: one piece of memory holds both.
        let end = channel.len() - usize::from(!key.contains('{'));
        let key = channel.slice(end - key.len()..end);
        Self { as_written: Arc::from(written), key, channel, lock: None, half, hash, slot: OnceLock::new() }
    }

    /// The two halves of a read-write lock, reading first: one key, one channel.
    pub(crate) fn halves(prefix: &str, written: &str) -> (Arc<Self>, Arc<Self>) {
        let whole = Self::new(prefix, written);
        let channel = Bytes::from(tagged(RW_CHANNEL, &whole.raw()));
        let half = |half, salt| {
            let (as_written, key) = (Arc::clone(&whole.as_written), whole.key.clone());
            let (channel, hash) = (channel.clone(), whole.hash ^ salt);
            Arc::new(Self { as_written, key, channel, lock: None, half, hash, slot: OnceLock::new() })
        };
        (half(Half::Read, READ_SALT), half(Half::Write, WRITE_SALT))
    }

    /// The name as keys beside the lock's own begin: in braces, unless it has some. Of a read-write lock.
    pub(crate) fn tag(&self) -> Bytes {
        self.channel.slice(RW_CHANNEL.len() + 1..)
    }

    /// The key of the writers of ours that wait for a read-write lock, to be preferred. Redisson knows none of the kind.
    pub(crate) fn waiting_writers(&self) -> Bytes {
        Bytes::from([&self.tag()[..], b":rwlock_waiting"].concat())
    }

    /// The key of a reader's lease for its hold of this number, from 1 on. Of a read-write lock.
    pub(crate) fn cover(&self, owner: &str, n: usize) -> Bytes {
        Bytes::from([&self.tag()[..], b":", owner.as_bytes(), format!(":rwlock_timeout:{n}").as_bytes()].concat())
    }

    /// Where one owner is told that its turn for this lock has come. Stands for itself: nobody else waits
    /// there.
    pub(crate) fn inbox(self: &Arc<Self>, owner: &str) -> Arc<Self> {
        let mut channel = Vec::with_capacity(self.channel.len() + 1 + owner.len());
        channel.extend_from_slice(&self.channel);
        channel.push(b':');
        channel.extend_from_slice(owner.as_bytes());
        let hash = seeded(&channel);
        let channel = Bytes::from(channel);
        let (as_written, lock) = (Arc::clone(&self.as_written), Some(Arc::clone(self)));
        let (key, slot) = (channel.clone(), OnceLock::new());
        Arc::new(Self { as_written, key, channel, lock, half: Half::Whole, hash, slot })
    }

    /// The key of a fair lock's queue.
    pub(crate) fn queue(&self) -> Bytes {
        Bytes::from(tagged(LOCK_QUEUE, &self.raw()))
    }

    /// The key of the deadlines of a fair lock's waiters.
    pub(crate) fn deadlines(&self) -> Bytes {
        Bytes::from(tagged(LOCK_TIMEOUT, &self.raw()))
    }

    /// The key of a fair lock's waiters of ours. Unlike the queue it is this name's alone: `x` and `{x}` share that, as in
    /// Redisson. Redisson knows none of the kind.
    pub(crate) fn waiters(&self) -> Bytes {
        Bytes::from(format!("{}:{}", tagged(LOCK_WAITERS, &self.raw()), self.raw()))
    }

    /// The key that counts a fenced lock's sections.
    pub(crate) fn counter(&self) -> Bytes {
        Bytes::from(tagged(LOCK_TOKEN, &self.raw()))
    }

    fn raw(&self) -> std::borrow::Cow<'_, str> {
        // Made from a str.
        String::from_utf8_lossy(&self.key)
    }

    /// Refuses names that no lock can have. Called before anything is sent.
    pub(crate) fn check(&self) -> Result<()> {
        if self.as_written.is_empty() {
            return Err(Error::config("a lock needs a name: the name is empty"));
        }
        if self.key.len() > LONGEST {
            return Err(Error::config(format!(
                "the lock's name has {} bytes with its prefix; at most {LONGEST} are allowed",
                self.key.len()
            )));
        }
        Ok(())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_written, f)
    }
}

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.half == other.half && self.key == other.key
    }
}

impl Eq for LockName {}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// `prefix:{raw}`, or `prefix:raw` when the name has a brace of its own: the same slot as the name itself.
fn tagged(prefix: &str, raw: &str) -> String {
    if raw.contains('{') { format!("{prefix}:{raw}") } else { format!("{prefix}:{{{raw}}}") }
}

/// Which of `n` shards a name lives in.
pub(crate) fn shard(name: &LockName, n: usize) -> usize {
    // The low bits pick the bucket inside a shard, so take high ones here.
    ((name.hash >> 40) as usize) % n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_redisson_makes_them() {
        let table = [
            ("", "foo", "foo", "redisson_lock__channel:{foo}"),
            ("", "pre{tag}suf", "pre{tag}suf", "redisson_lock__channel:pre{tag}suf"),
            ("", "a{b", "a{b", "redisson_lock__channel:a{b"),
            ("", "a{}b", "a{}b", "redisson_lock__channel:a{}b"),
            ("", "x}y", "x}y", "redisson_lock__channel:{x}y}"),
            ("app:", "foo", "app:foo", "redisson_lock__channel:{app:foo}"),
            ("{app}:", "foo", "{app}:foo", "redisson_lock__channel:{app}:foo"),
            ("", "a:b:c", "a:b:c", "redisson_lock__channel:{a:b:c}"),
            ("", "schloß ☃", "schloß ☃", "redisson_lock__channel:{schloß ☃}"),
        ];
        for (prefix, plain, key, channel) in table {
            let name = LockName::new(prefix, plain);
            assert_eq!(name.key, key);
            assert_eq!(name.channel, channel);
            assert_eq!(&*name.as_written, plain);
            assert!(name.check().is_ok());
            let suffix = channel.strip_prefix("redisson_lock__channel").unwrap();
            assert_eq!(name.queue(), format!("redisson_lock_queue{suffix}"));
            assert_eq!(name.deadlines(), format!("redisson_lock_timeout{suffix}"));
            assert_eq!(name.counter(), format!("redisson_lock_token{suffix}"));
            assert_eq!(name.inbox("u:1").channel, format!("{channel}:u:1"));
            let own = LockName::of_plain(prefix, plain);
            assert_eq!((&own.key, &*own.as_written), (&name.key, plain));
            assert_eq!(own.channel, format!("distlock_plain{suffix}"));
            let (read, write) = LockName::halves(prefix, plain);
            assert!(read != write && read != name && write != name);
            assert!([&name, &read, &write].into_iter().all(|other| *other != own));
            for half in [&read, &write] {
                assert_eq!(half.key, key);
                assert_eq!(half.channel, format!("redisson_rwlock{suffix}"));
                assert_eq!(half.tag(), suffix[1..]);
                assert_eq!(half.waiting_writers(), format!("{}:rwlock_waiting", &suffix[1..]));
                let cover = half.cover("u:1", 2);
                assert_eq!(cover, format!("{}:u:1:rwlock_timeout:2", &suffix[1..]));
            }
        }
    }

    #[test]
    fn names_are_hashed_as_nobody_outside_can_know() {
        // The FNV-1a hash of the first is 0, and stays so: whoever knows the function makes as many as he likes.
        let (one, other) = ("77kepQFQ8Kl\0", "77kepQFQ8Kl\0\0");
        assert_ne!(LockName::new("", one).hash, LockName::new("", other).hash);
        assert_eq!(LockName::new("p:", "x").hash, LockName::new("", "p:x").hash);
    }

    #[test]
    fn impossible_names_are_refused() {
        assert!(matches!(LockName::new("", "").check(), Err(Error::Config { .. })));
        assert!(matches!(LockName::new("p:", "").check(), Err(Error::Config { .. })));
        assert!(LockName::new("", &"x".repeat(LONGEST)).check().is_ok());
        assert!(matches!(LockName::new("p", &"x".repeat(LONGEST)).check(), Err(Error::Config { .. })));
    }
}

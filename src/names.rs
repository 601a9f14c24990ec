//! All keys and channels of a lock's name, the hash-tag rule, and the limits of names. No other file contains
//! `redisson_`. The keys and channels are Redisson's. `docs/wire-format.md` lists the exceptions.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub(crate) mod slot;

use crate::error::{Error, Result};
use crate::hash::seeded;

/// The longest name, in bytes of UTF-8, prefix included.
pub(crate) const LONGEST: usize = 4096;

/// The channel for releases of Redisson's locks, except read-write locks.
const LOCK_CHANNEL: &str = "redisson_lock__channel";

/// The channel for releases of read-write locks.
const RW_CHANNEL: &str = "redisson_rwlock";

/// The channel for this crate's releases of plain locks.
const PLAIN_CHANNEL: &str = "distlock_plain";

/// The channel for permits that become free, of semaphores with and without leases.
const PERMITS_CHANNEL: &str = "redisson_sc";

/// The channel of a latch. Redisson always puts the name behind it in braces.
const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__";

/// The fair lock in front of fair permits. Redisson has no fair permits.
const LINE: &str = "distlock_line";

/// The state of a barrier, and its channel. Redisson has no barrier.
const BARRIER: &str = "distlock_barrier";
const BARRIER_CHANNEL: &str = "distlock_barrier__channel";
/// The channel on which leaders announce themselves.
const LEADER_CHANNEL: &str = "distlock_leader";

/// The tokens of commands that must count exactly once (`lua/common/once.lua`).
const ONCE: &str = "distlock_once";

/// Salts that give names with the same key different hashes: plain locks, the halves of a read-write lock, permits.
const PLAIN_SALT: u64 = 0x3c3c_2468_ace0_1357;
const PERMITS_SALT: u64 = 0x6969_8ace_1357_9bdf;
const LATCH_SALT: u64 = 0x9696_1f2e_3d4c_5b6a;
const LEADER_SALT: u64 = 0x6996_3c5a_0f1e_2d4b;
const READ_SALT: u64 = 0xa5a5_1357_9bdf_2468;
const WRITE_SALT: u64 = 0x5a5a_8642_fdb9_7531;

/// The keys of a fair lock: its queue, the deadlines of all waiters, and the waiters of this crate.
const LOCK_QUEUE: &str = "redisson_lock_queue";
const LOCK_TIMEOUT: &str = "redisson_lock_timeout";
const LOCK_WAITERS: &str = "redisson_lock_waiters";

/// The token counter of a fenced lock.
const LOCK_TOKEN: &str = "redisson_lock_token";

/// A lock's name with everything derived from it. Created once per lock object.
pub(crate) struct LockName {
    /// The name as the user wrote it, without the prefix.
    pub(crate) as_written: Arc<str>,
    /// The main key: prefix and name.
    pub(crate) key: Bytes,
    /// The channel for releases of the lock.
    pub(crate) channel: Bytes,
    /// If this is an inbox (see [`LockName::inbox`]): the lock that its waiter waits for.
    pub(crate) lock: Option<Arc<LockName>>,
    /// Tells apart the locks that share this key. Each of these locks has its own waiters and holds.
    pub(crate) half: Half,
    hash: u64,
    /// The slot of the key, computed on first use.
    slot: OnceLock<u16>,
}

/// Distinguishes names that share a key: the halves of a read-write lock, a plain lock, permits, and a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Any other lock.
    Whole,
    /// The read half of a read-write lock.
    Read,
    /// The write half of a read-write lock.
    Write,
    /// A plain lock, with a channel of its own.
    Plain,
    /// Permits of a semaphore.
    Permits,
    /// A latch.
    Latch,
    /// The leader that holds a fenced lock, for its observers.
    Leader,
}

impl LockName {
    pub(crate) fn new(prefix: &str, written: &str) -> Arc<Self> {
        Arc::new(Self::on(LOCK_CHANNEL, prefix, written, Half::Whole, 0))
    }

    /// The name of a plain lock.
    pub(crate) fn of_plain(prefix: &str, written: &str) -> Arc<Self> {
        Arc::new(Self::on(PLAIN_CHANNEL, prefix, written, Half::Plain, PLAIN_SALT))
    }

    /// The name of the permits of a semaphore.
    pub(crate) fn of_permits(prefix: &str, written: &str) -> Arc<Self> {
        Arc::new(Self::on(PERMITS_CHANNEL, prefix, written, Half::Permits, PERMITS_SALT))
    }

    /// The name of the fair lock in front of fair permits.
    pub(crate) fn of_line(prefix: &str, written: &str) -> Arc<Self> {
        let key = tagged(LINE, &format!("{prefix}{written}"));
        Arc::new(Self { as_written: Arc::from(written), ..Self::on(LOCK_CHANNEL, "", &key, Half::Whole, 0) })
    }

    /// The name of a latch.
    pub(crate) fn of_latch(prefix: &str, written: &str) -> Arc<Self> {
        let key = format!("{prefix}{written}");
        let hash = seeded(key.as_bytes()) ^ LATCH_SALT;
        let channel = Bytes::from(format!("{LATCH_CHANNEL}{{{key}}}"));
        let (as_written, key, slot) = (Arc::from(written), Bytes::from(key), OnceLock::new());
        Arc::new(Self { as_written, key, channel, lock: None, half: Half::Latch, hash, slot })
    }

    /// The name of a leader, for its observers: the key of its fenced lock, with a channel of its own.
    pub(crate) fn of_leader(prefix: &str, written: &str) -> Arc<Self> {
        Arc::new(Self::on(LEADER_CHANNEL, prefix, written, Half::Leader, LEADER_SALT))
    }

    /// The name of a barrier.
    pub(crate) fn of_barrier(prefix: &str, written: &str) -> Arc<Self> {
        let raw = format!("{prefix}{written}");
        let (key, channel) = (Bytes::from(tagged(BARRIER, &raw)), Bytes::from(tagged(BARRIER_CHANNEL, &raw)));
        let (as_written, hash, slot) = (Arc::from(written), seeded(&key), OnceLock::new());
        Arc::new(Self { as_written, key, channel, lock: None, half: Half::Whole, hash, slot })
    }

    /// The parties of a barrier that have arrived.
    pub(crate) fn parties(&self) -> Bytes {
        Bytes::from([&self.key[..], b":parties"].concat())
    }

    fn on(channel: &str, prefix: &str, written: &str, half: Half, salt: u64) -> Self {
        let key = format!("{prefix}{written}");
        let hash = seeded(key.as_bytes()) ^ salt;
        let channel = Bytes::from(tagged(channel, &key));
        // The channel's name ends with the key, and possibly a brace, so the key is a slice of the channel.
        let end = channel.len() - usize::from(!key.contains('{'));
        let key = channel.slice(end - key.len()..end);
        Self { as_written: Arc::from(written), key, channel, lock: None, half, hash, slot: OnceLock::new() }
    }

    /// The two halves of a read-write lock, the read half first. They share the key and the channel.
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

    /// The start of a read-write lock's other keys: the key in braces, or the bare key if it contains a `{`.
    pub(crate) fn tag(&self) -> Bytes {
        self.channel.slice(RW_CHANNEL.len() + 1..)
    }

    /// The key with the marks of this crate's waiting writers (see `rwlock/mod.rs`), for read-write locks that prefer
    /// writers.
    pub(crate) fn waiting_writers(&self) -> Bytes {
        Bytes::from([&self.tag()[..], b":rwlock_waiting"].concat())
    }

    /// The key of a *cover*: the lease of a reader's hold number `n`, from 1 on. For read-write locks.
    pub(crate) fn cover(&self, owner: &str, n: usize) -> Bytes {
        Bytes::from([&self.tag()[..], b":", owner.as_bytes(), format!(":rwlock_timeout:{n}").as_bytes()].concat())
    }

    /// The inbox of one owner: the channel that reports the owner's turn for this lock. The inbox is a separate name in
    /// the registry, with one waiter only.
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

    pub(crate) fn queue(&self) -> Bytes {
        Bytes::from(tagged(LOCK_QUEUE, &self.raw()))
    }

    pub(crate) fn deadlines(&self) -> Bytes {
        Bytes::from(tagged(LOCK_TIMEOUT, &self.raw()))
    }

    /// The key for a fair lock's waiters of this crate. The names `x` and `{x}` share the queue, as in Redisson, but
    /// each of them has its own key for waiters.
    pub(crate) fn waiters(&self) -> Bytes {
        Bytes::from(format!("{}:{}", tagged(LOCK_WAITERS, &self.raw()), self.raw()))
    }

    pub(crate) fn counter(&self) -> Bytes {
        Bytes::from(tagged(LOCK_TOKEN, &self.raw()))
    }

    /// The key for the leases of permits.
    pub(crate) fn leases(&self) -> Bytes {
        Bytes::from([&self.channel[PERMITS_CHANNEL.len() + 1..], b":timeout"].concat())
    }

    /// The token with this number of this client, for commands that must count exactly once.
    pub(crate) fn token(&self, client: &str, lane: u64) -> Bytes {
        Bytes::from(format!("{}:{client}:{lane}", tagged(ONCE, &self.raw())))
    }

    fn raw(&self) -> std::borrow::Cow<'_, str> {
        // The key was built from a `str`.
        String::from_utf8_lossy(&self.key)
    }

    /// Refuses impossible names.
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

/// `prefix:{raw}`, or `prefix:raw` if `raw` contains a `{`. Both are in the slot of `raw`, except if `raw` has unusual
/// braces (see `spans_slots`).
fn tagged(prefix: &str, raw: &str) -> String {
    if raw.contains('{') { format!("{prefix}:{raw}") } else { format!("{prefix}:{{{raw}}}") }
}

/// The shard of a table with `n` shards.
pub(crate) fn shard(name: &LockName, n: usize) -> usize {
    // The low bits select the bucket inside a shard, so high bits select the shard.
    ((name.hash >> 40) as usize) % n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_to_redisson_keys_and_channels() {
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
            let permits = LockName::of_permits(prefix, plain);
            assert_eq!(permits.channel, format!("redisson_sc{suffix}"));
            assert_eq!(permits.leases(), format!("{}:timeout", &suffix[1..]));
            assert!(permits != name && permits != own && permits.key == name.key);
            let latch = LockName::of_latch(prefix, plain);
            assert_eq!(latch.channel, format!("redisson_countdownlatch__channel__{{{key}}}"));
            assert!(latch != permits && latch.key == key);
            assert_eq!(latch.token("u", 2), format!("distlock_once{suffix}:u:2"));
            let barrier = LockName::of_barrier(prefix, plain);
            assert_eq!(barrier.parties(), format!("distlock_barrier{suffix}:parties"));
            assert_eq!(barrier.channel, format!("distlock_barrier__channel{suffix}"));
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
    fn name_hash_resists_known_fnv_1a_collision() {
        // The FNV-1a hash of the first name is 0, and stays 0 with each zero byte appended. So anyone who knows an
        // unseeded hash can construct any number of colliding names.
        let (one, other) = ("77kepQFQ8Kl\0", "77kepQFQ8Kl\0\0");
        assert_ne!(LockName::new("", one).hash, LockName::new("", other).hash);
        assert_eq!(LockName::new("p:", "x").hash, LockName::new("", "p:x").hash);
    }

    #[test]
    fn empty_and_too_long_names_are_refused() {
        assert!(matches!(LockName::new("", "").check(), Err(Error::Config { .. })));
        assert!(matches!(LockName::new("p:", "").check(), Err(Error::Config { .. })));
        assert!(LockName::new("", &"x".repeat(LONGEST)).check().is_ok());
        assert!(matches!(LockName::new("p", &"x".repeat(LONGEST)).check(), Err(Error::Config { .. })));
    }
}

//! The fenced lock: Redisson's `RFencedLock`.
//!
//! A [reentrant lock](mod@crate::reentrant) that gives every *section* (the time from an owner's first hold to its last
//! release) a number, the *fencing token*, which is larger than the token of any earlier section. A holder that is
//! paused for longer than its lease still believes that it holds the lock, so it may write when it resumes. No lock
//! service can prevent this late write. The storage can: it remembers the largest token that it has seen, and refuses
//! smaller tokens.
//!
//! # The check
//!
//! Send the token with the write, and let the storage compare. In SQL, in one statement:
//!
//! ```sql
//! UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2;
//! -- 0 rows: a later holder has written; this one has lost the lock
//! ```
//!
//! In Redis (perhaps on another server than the lock's), in one script:
//!
//! ```lua
//! if tonumber(redis.call('hget', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return 0 end
//! redis.call('hset', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
//! return 1
//! ```
//!
//! The comparison is `<=`, not `<`, because a section may write more than once. `examples/fenced_write.rs` runs both
//! checks with a paused holder.
//!
//! # What is promised
//!
//! - Tokens of successive sections grow, for sections of this crate and of Redisson, and for every way to acquire. A
//!   section has one token: re-entry keeps it. Tokens may be skipped.
//! - No release, lease end, [`force_unlock`](crate::DistLock::force_unlock) or multi lock resets the counter.
//! - *Tokens grow only while the counter exists*, except in the strict modes (below). The counter has no expiry, unless
//!   [`FencedLock::expire_counter`] sets an expiry. The counter is lost if the server restarts without its file, and by
//!   `FLUSHALL`, an eviction, or Redisson's `delete()`. A promoted replica may have an older counter. Redisson's multi
//!   lock sets an expiry on the counter of a fenced member; the next acquire by a client of this crate removes that
//!   expiry, if the counter still exists.
//! - A reentrant or spin lock of the same name excludes the fenced lock, but its sections do not advance the counter.
//!   One owner cannot hold both.
//! - Tokens go up to 2^53 − 1.
//! - [`RedLock`](crate::RedLock) has no tokens; [its page](mod@crate::redlock) explains why.
//!
//! # Tokens in the strict modes of acknowledgement
//!
//! With [`Acks::AtLeast`](crate::Acks::AtLeast) or [`Acks::All`](crate::Acks::All), a new token is the larger of two
//! numbers: the counter plus 1, and the server's time in milliseconds since 1970. So tokens grow even if the counter
//! was lost, for example by the empty restart of a primary, an interrupted slot move, a deletion, or the restore of a
//! backup.
//!
//! - The storage needs 64 bits for a token (about 1.8 · 10^12 in 2026).
//! - If Redisson or clients in other modes use the lock too, they add 1 to the last token, so their tokens also grow
//!   while the counter exists. If the counter was lost and such a client counts first, its token is 1. The next token
//!   of a strict client is the time again.
//! - A re-entry reads the counter. If the counter was lost or changed during the section, the token of the re-entry
//!   differs from that of the section.
//! - There are two limits. If the counter was lost because another server took over, the clock of that server may be
//!   behind the old server's clock by no more than the time since the last token. And a name may have had at most 1 000
//!   sections a second on average. With more sections, its counter would be ahead of the time.
//!
//! # If the counter was lost in the other modes
//!
//! Tokens start at 1 again, so the storage refuses every write until the tokens have passed the largest token that it
//! has seen. Either set the counter to at least that token (`SET redisson_lock_token:{<name>} <number>`), or reset the
//! storage's token while nobody holds the lock.
//!
//! # Hand-offs
//!
//! A fenced lock is never handed over inside a process, because each section needs a token from the server.
//!
//! # Names that are used once
//!
//! Other free locks leave nothing in Redis, but a fenced lock leaves its counter forever, as in Redisson: about 100
//! bytes per name. If each name is used only once (`job:<uuid>`), end its counter by [`FencedLock::expire_counter`]
//! when nothing writes under that name any more.
//!
//! # Wire format
//!
//! Like the reentrant lock, plus `INCR redisson_lock_token:{<name>}` at the first acquire of a section. In the strict
//! modes a `SET` to the server's time follows, if the counter is smaller. Redisson also increments the counter at each
//! re-entry; this crate does not.

use std::time::Duration;

use crate::client::Client;
use crate::config::{check_lease, millis};
use crate::engine::protocol::Nature;
use crate::engine::replies::{is_held_with_token, token_of};
use crate::engine::simple::{HASH_RENEWAL, Kind, Simple};
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::object::Lock;
use crate::reentrant::script;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

/// Acquires as the reentrant lock does, and gives the section its fencing token.
macro_rules! acquire {
    () => {
        concat!(
            include_str!("../../lua/fenced/begin.lua"),
            include_str!("../../lua/reentrant/acquire.lua"),
            include_str!("../../lua/fenced/number.lua"),
        )
    };
}

static MANY: Script = Script::new(
    "fenced/many",
    concat!(
        include_str!("../../lua/common/holds.lua"),
        include_str!("../../lua/common/many/begin.lua"),
        acquire!(),
        include_str!("../../lua/common/many/next.lua"),
        include_str!("../../lua/reentrant/release.lua"),
        include_str!("../../lua/common/many/run.lua"),
    ),
);
static ACQUIRE: Script =
    Script::step("fenced/acquire", concat!(include_str!("../../lua/common/holds.lua"), acquire!()), &MANY, 1)
        .gaining(is_held_with_token);
static RELEASE: Script = Script::step("fenced/release", script!("release"), &MANY, 2);
static FORCE: Script = Script::new("fenced/force", script!("force"));
static EXPIRE: Script = Script::new("fenced/expire", include_str!("../../lua/fenced/expire.lua"));
static LAST: Script = Script::new("fenced/last", include_str!("../../lua/fenced/last.lua")).reading();

static KIND: Kind = Kind {
    nature: Nature { fenced: true, ..Nature::simple("fenced", &HASH_RENEWAL) },
    acquire: &ACQUIRE,
    release: &RELEASE,
    force: &FORCE,
    announces: true,
};

/// # Fenced locks
impl Client {
    /// Returns the fenced lock of this name: Redisson's `getFencedLock(name)`.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until an acquire. An impossible name is refused then.
    #[must_use]
    pub fn fenced(&self, name: &str) -> FencedLock {
        let name = LockName::new(&self.options().name_prefix, name);
        let counter = name.counter();
        let by_time = self.options().acks.is_strict();
        Lock::new(self, Simple::new(name, &KIND).fenced(counter, by_time))
    }
}

/// A reentrant lock with a token for every section ([`Guard::fencing_token`](crate::Guard::fencing_token)): Redisson's
/// `RFencedLock`. The [module](self) describes its promises and wire format, [`DistLock`](crate::DistLock) its methods.
///
/// # Cost
///
/// One command each for lock and unlock, also under contention inside one process.
pub type FencedLock = Lock<Fenced>;

/// The flavour of [`FencedLock`].
#[derive(Debug)]
pub enum Fenced {}

impl FencedLock {
    /// Sets an expiry on the counter of this lock, which would otherwise stay in Redis forever. Meant for a name that
    /// will not be used again. Returns false if somebody holds the lock; then nothing is changed.
    ///
    /// An acquire by a client of this crate removes the expiry, if its login has `+persist`. Redisson's acquire does
    /// not.
    ///
    /// After the counter has expired, tokens start at 1 again (in the strict modes, at the server's time). There are
    /// two cases:
    ///
    /// - A storage that has seen no token would accept an old writer's larger token after a new writer's token. So
    ///   `after` must be longer than a writer may keep an old token: at least the watchdog's lease, and longer than any
    ///   lease used for this name.
    /// - A storage that remembers its largest token refuses the new, small tokens. Keep the counter, or reset the
    ///   storage's token too.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Once begun, it may take effect.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `after` is shorter than the [watchdog](crate::Builder::watchdog)'s lease; the errors of
    /// [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn expire_counter(&self, after: Duration) -> Result<bool> {
        let least = self.client().options().watchdog;
        if after < least {
            return Err(Error::config(format!(
                "the counter of the fenced lock {:?} cannot end after {after:?}: whoever lost the lock may believe in it for as \
                 long as the watchdog's lease lasts, {least:?}, and has a number that must not come again by then",
                self.name()
            )));
        }
        check_lease(after)?;
        let name = self.protocol().name();
        let words = vec![Arg::Text(name.key.clone()), Arg::Text(name.counter()), Arg::Int(millis(after))];
        match self.ask(Call { script: &EXPIRE, keys: 2, words }).await? {
            Reply::Int(done @ 0..=1) => Ok(done == 1),
            odd => Err(Error::odd_reply(EXPIRE.name, &odd)),
        }
    }

    /// Returns the token of the last section of any owner; 0 if there was no section. This is Redisson's `getToken()`.
    /// Do not write with this token: use [`Guard::fencing_token`](crate::Guard::fencing_token), the token of your own
    /// section.
    ///
    /// # Cost
    ///
    /// One round trip, one command.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    ///
    /// # Errors
    ///
    /// As for [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn last_token(&self) -> Result<u64> {
        let words = vec![Arg::Text(self.protocol().name().counter())];
        let reply = self.ask(Call { script: &LAST, keys: 1, words }).await?;
        match &reply {
            Reply::Nil => Ok(0),
            _ => token_of(&reply).ok_or_else(|| Error::odd_reply(LAST.name, &reply)),
        }
    }
}

//! The fenced lock: Redisson's `RFencedLock`.
//!
//! As the [reentrant lock](mod@crate::reentrant), and every section has a number, the *fencing token*: larger than that of
//! every section before it. A lease ends whatever its holder is doing; a holder that was paused for longer than that comes
//! back and writes, believing that it still holds the lock. No lock service can prevent this. The storage can: it remembers
//! the largest token it has seen and refuses smaller ones.
//!
//! # The check
//!
//! The token belongs to the write, and the comparison to the storage. In SQL, one statement:
//!
//! ```sql
//! UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2;
//! -- 0 rows: a later holder has written; this one has lost the lock
//! ```
//!
//! In Redis, one script (on another server than the lock's, perhaps):
//!
//! ```lua
//! if tonumber(redis.call('hget', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return 0 end
//! redis.call('hset', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
//! return 1
//! ```
//!
//! `<=`, not `<`: a section may write more than once. `examples/fenced_write.rs` runs both, with a holder that is paused.
//!
//! # What is promised
//!
//! - Sections that follow one another, of ours and of Redisson's, have growing numbers, on every way to acquire.
//!   One section has one number: coming in again keeps it. Numbers may be left out.
//! - A release, the end of a lease, [`force_unlock`](crate::DistLock::force_unlock) and a multi lock never reset the counter.
//! - *Only while the counter lives*, unless the acknowledgement is strict (below). The counter never expires unless
//!   [`FencedLock::expire_counter`] set an expiry. It is lost with the data of a server that restarts without its file, with `FLUSHALL`,
//!   with an eviction, and with Redisson's `delete()`. A promoted replica may have an older counter. Redisson's multi lock sets an expiry
//!   on the counter of a fenced member. The next acquire by a client of ours removes that again, if it comes in time.
//! - A reentrant or spin lock of the same name keeps this one out, but counts nothing. One owner cannot hold both.
//! - Up to 2^53 − 1.
//! - Not over [`RedLock`](crate::RedLock): see there.
//!
//! # Tokens in the strict modes of acknowledgement
//!
//! With [`Acks::AtLeast`](crate::Acks::AtLeast) or [`Acks::All`](crate::Acks::All) a new token is the larger of the counter plus 1 and the
//! server's time in milliseconds since 1970. So tokens grow even if the counter was lost: by the empty restart of a primary, a slot move
//! that was cut short, a deletion, or the restore of a backup.
//!
//! - The storage needs 64 bits for a token (about 1.8 · 10^12 in 2026).
//! - In a mixed fleet, Redisson and clients of the other modes add 1 to the last token, so their tokens grow too while the counter lives.
//!   If the counter was lost and one of them counts first, that token is 1. The next token of a strict client is the time again.
//! - A re-entry reads the counter. If the counter was lost or changed during the section, the re-entry gets another number than the section.
//! - Two limits: the new server's clock may be behind the old one's by no more than the time since the last token. A name may have had at
//!   most 1 000 sections a second on average; with more, its counter would be ahead of the time.
//!
//! # If the counter was lost in the other modes
//!
//! Numbers begin at 1 again, so the storage refuses every write until they have passed the largest number that it has seen. Either set the
//! counter above that number (`SET redisson_lock_token:{<name>} <number>`), or have the storage forget its number while nobody holds the
//! lock.
//!
//! A fenced lock is never handed over inside a process without a word to the server, for each section needs its number.
//!
//! # Names that are never used again
//!
//! A lock leaves nothing behind in Redis once it is free; a fenced lock leaves its counter, about 100 bytes a name, for good, as
//! Redisson's does. Who fences ever new names (`job:<uuid>`) ends each counter when nobody will write there any more, by
//! [`FencedLock::expire_counter`].
//!
//! # Wire format
//!
//! The same as for the reentrant lock, plus `INCR redisson_lock_token:{<name>}` at the first acquire of a section. In the strict modes a
//! `SET` to the server's time follows, if the counter is smaller. Redisson also counts each time that the holder comes in again.

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

/// Takes the lock as the reentrant one is taken, and gives the section its fencing token.
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
    /// The fenced lock of this name: Redisson's `getFencedLock(name)`.
    ///
    /// *Cost*: none; nothing is sent until it is acquired. An impossible name is refused then.
    #[must_use]
    pub fn fenced(&self, name: &str) -> FencedLock {
        let name = LockName::new(&self.options().name_prefix, name);
        let counter = name.counter();
        let by_time = self.options().acks.is_strict();
        Lock::new(self, Simple::new(name, &KIND).fenced(counter, by_time))
    }
}

/// One owner at a time, who may come in again, and a number for every section ([`Guard::token`](crate::Guard::token)):
/// Redisson's `RFencedLock`. See the [module](self) for what it is good for and its wire format, and
/// [`DistLock`](crate::DistLock) for what it can do.
///
/// *Cost*: lock and unlock are one command each; under contention inside one process too.
pub type FencedLock = Lock<Fenced>;

/// The flavour of [`FencedLock`].
#[derive(Debug)]
pub enum Fenced {}

impl FencedLock {
    /// Has the counter of this lock's sections go after this time, unless the lock is acquired before that: for a name that
    /// will not be used again, whose counter would stay in Redis for ever. False when somebody holds the lock: nothing was done then.
    ///
    /// Numbers begin at 1 again once the counter is gone (in the strict modes, at the server's time). A storage that has seen no number
    /// would then take an old writer for the later one. So `after` must be longer than a writer may keep an old number: at least the
    /// watchdog's lease, and longer than any lease that is used for this name. A storage that remembers its largest number refuses the
    /// small ones: keep the counter, or have the storage forget its number too.
    /// An acquire by a client of ours takes the end away; one of Redisson's does not, nor one by a login without `+persist`: only for
    /// names that neither uses any more.
    ///
    /// *Cost*: one round trip, one command. *Cancel safety*: once begun it may take effect. *Errors*: [`Error::Config`] for a time
    /// that is shorter than the [watchdog](crate::Builder::watchdog)'s lease; those of [`DistLock::acquire`](crate::DistLock::acquire).
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

    /// The token of the last section, whoever has or had it; 0 when there was none: Redisson's `getToken()`. Not for
    /// writing: that is [`Guard::token`](crate::Guard::token)'s, which is one's own.
    ///
    /// *Cost*: one round trip, one command. *Cancel safety*: reads only. *Errors*: as
    /// [`DistLock::acquire`](crate::DistLock::acquire).
    pub async fn last_token(&self) -> Result<u64> {
        let words = vec![Arg::Text(self.protocol().name().counter())];
        let reply = self.ask(Call { script: &LAST, keys: 1, words }).await?;
        match &reply {
            Reply::Nil => Ok(0),
            _ => token_of(&reply).ok_or_else(|| Error::odd_reply(LAST.name, &reply)),
        }
    }
}

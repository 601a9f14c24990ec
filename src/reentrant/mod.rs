//! The reentrant lock: Redisson's `RLock`.
//!
//! One owner holds it, any number of times; waiters of all processes are woken by a message when it becomes free, and
//! race for it: no order among processes (inside one process waiters are served first come, first served).
//!
//! # Wire format
//!
//! What Redisson leaves in Redis, without its unlock latch:
//!
//! | step | `<name>` | message |
//! |---|---|---|
//! | first acquire | hash `{<owner>: 1}`, `PEXPIRE` lease | |
//! | the same owner again | count + 1, `PEXPIRE` lease (never less than an outer hold is still promised) | |
//! | release, holds left | count − 1, `PEXPIRE` the lease of what is left | |
//! | last release, force | deleted | `0` on `redisson_lock__channel:{<name>}` |

use crate::client::Client;
use crate::engine::protocol::Nature;
use crate::engine::replies::is_held;
use crate::engine::simple::{HASH_RENEWAL, Kind, Simple};
use crate::names::LockName;
use crate::object::Lock;
use crate::transport::script::Script;

static MANY: Script = Script::new(
    "reentrant/many",
    concat!(
        include_str!("../../lua/common/holds.lua"),
        include_str!("../../lua/common/many/begin.lua"),
        include_str!("../../lua/reentrant/acquire.lua"),
        include_str!("../../lua/common/many/next.lua"),
        include_str!("../../lua/reentrant/release.lua"),
        include_str!("../../lua/common/many/run.lua"),
    ),
);
/// A script of this flavour's, behind what all share that take and give back holds.
macro_rules! script {
    ($file:literal) => {
        concat!(
            include_str!("../../lua/common/holds.lua"),
            include_str!(concat!("../../lua/reentrant/", $file, ".lua"))
        )
    };
}
pub(crate) use script;

pub(crate) static ACQUIRE: Script = Script::step("reentrant/acquire", script!("acquire"), &MANY, 1).gaining(is_held);
pub(crate) static RELEASE: Script = Script::step("reentrant/release", script!("release"), &MANY, 2).announcing();
pub(crate) static FORCE: Script = Script::new("reentrant/force", script!("force")).announcing();

static KIND: Kind = Kind {
    nature: Nature { in_batch: true, ..Nature::simple("reentrant", &HASH_RENEWAL) },
    acquire: &ACQUIRE,
    release: &RELEASE,
    force: &FORCE,
    announces: true,
};

/// # Reentrant locks
impl Client {
    /// The reentrant lock of this name: Redisson's `getLock(name)`.
    ///
    /// *Cost*: none; nothing is sent until it is acquired. An impossible name is refused then.
    #[must_use]
    pub fn reentrant(&self, name: &str) -> ReentrantLock {
        let name = LockName::new(&self.options().name_prefix, name);
        Lock::new(self, Simple::new(name, &KIND))
    }
}

/// One owner at a time, who may come in again: Redisson's `RLock`. See the [module](self) for its wire format and
/// [`DistLock`](crate::DistLock) for what it can do.
pub type ReentrantLock = Lock<Reentrant>;

/// The flavour of [`ReentrantLock`].
#[derive(Debug)]
pub enum Reentrant {}

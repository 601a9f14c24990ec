//! The reentrant lock: Redisson's `RLock`.
//!
//! One owner holds the lock, any number of times. When the lock becomes free, a message wakes one waiter in each
//! process, and these waiters race. So processes have no order. Inside one process, waiters are served first come,
//! first served.
//!
//! # Wire format
//!
//! As Redisson's, without its unlock latch:
//!
//! | step | `<name>` | message |
//! |---|---|---|
//! | first acquire | hash `{<owner>: 1}`, `PEXPIRE` lease | |
//! | re-entry by the same owner | count + 1, `PEXPIRE` lease (never less than an outer hold was promised) | |
//! | release, holds left | count − 1, `PEXPIRE` the lease of the remaining holds | |
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
/// The text of a script of this flavour: the part that all scripts about holds share, then its own file.
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
    /// Returns the reentrant lock of this name: Redisson's `getLock(name)`.
    ///
    /// # Cost
    ///
    /// None: nothing is sent until an acquire. An impossible name is refused then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: distlock::Client) -> distlock::Result<()> {
    /// let guard = client.reentrant("orders:42").lock().await?;
    /// // Only one holder in all processes is here.
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn reentrant(&self, name: &str) -> ReentrantLock {
        let name = LockName::new(&self.options().name_prefix, name);
        Lock::new(self, Simple::new(name, &KIND))
    }
}

/// An exclusive lock that its owner may re-enter: Redisson's `RLock`. The [module](self) describes its wire format,
/// [`DistLock`](crate::DistLock) its methods.
pub type ReentrantLock = Lock<Reentrant>;

/// The flavour of [`ReentrantLock`].
#[derive(Debug)]
pub enum Reentrant {}

//! The reentrant lock: Redisson's `RLock`.
//!
//! One owner holds it, any number of times; waiters of all processes are woken by a message when it becomes free, and
//! race for it: no order among processes (inside one process waiters are served first come, first served).
//!
//! # Wire format
//!
//! Protocol §2.3, §3.1 and §4.3, as Redisson leaves it, without its unlock latch:
//!
//! | step | `<name>` | message |
//! |---|---|---|
//! | first acquire | hash `{<owner>: 1}`, `PEXPIRE` lease | |
//! | the same owner again | count + 1, `PEXPIRE` lease (never less than an outer hold is still promised) | |
//! | release, holds left | count − 1, `PEXPIRE` the lease of what is left | |
//! | last release, force | deleted | `0` on `redisson_lock__channel:{<name>}` |

use std::sync::Arc;

use crate::client::Client;
use crate::engine::names::LockName;
use crate::engine::protocol::{
    Attempt, Count, Forced, PLAIN_RENEWAL, PUBLISH, Protocol, Release, Renewal, Rest, Turn, plain_forced,
    plain_released, plain_state, plain_stated,
};
use crate::engine::script::Script;
use crate::engine::transport::{Arg, Call, Reply};
use crate::error::{Error, Result};
use crate::owner::Owner;

static MANY: Script = Script::new(
    "reentrant/many",
    concat!(
        include_str!("../../lua/common/many/begin.lua"),
        include_str!("../../lua/reentrant/acquire.lua"),
        include_str!("../../lua/common/many/next.lua"),
        include_str!("../../lua/reentrant/release.lua"),
        include_str!("../../lua/common/many/run.lua"),
    ),
);
static ACQUIRE: Script = Script::step("reentrant/acquire", include_str!("../../lua/reentrant/acquire.lua"), &MANY, 1);
static RELEASE: Script = Script::step("reentrant/release", include_str!("../../lua/reentrant/release.lua"), &MANY, 2);
static FORCE: Script = Script::new("reentrant/force", include_str!("../../lua/reentrant/force.lua"));

/// # Reentrant locks
impl Client {
    /// The reentrant lock of this name: Redisson's `getLock(name)`.
    ///
    /// *Cost*: none; nothing is sent until it is acquired. An impossible name is refused then.
    #[must_use]
    pub fn reentrant(&self, name: &str) -> ReentrantLock {
        let name = LockName::new(&self.options().name_prefix, name);
        ReentrantLock { client: self.clone(), protocol: Arc::new(Plain { name }) }
    }
}

/// One owner at a time, who may come in again: Redisson's `RLock`. See the [module](self) for its wire format and
/// [`DistLock`](crate::DistLock) for what it can do.
#[derive(Clone, Debug)]
pub struct ReentrantLock {
    client: Client,
    protocol: Arc<dyn Protocol>,
}

lock_object!(ReentrantLock);

/// How a plain lock speaks to Redis.
#[derive(Debug)]
struct Plain {
    name: Arc<LockName>,
}

impl Plain {
    fn call<const N: usize>(&self, script: &'static Script, with_channel: bool, args: [Arg; N]) -> Call {
        let mut words = Vec::with_capacity(N + 2);
        words.push(Arg::Text(self.name.key.clone()));
        if with_channel {
            words.push(Arg::Text(self.name.channel.clone()));
        }
        let keys = words.len();
        words.extend(args);
        Call { script, keys, words }
    }
}

impl Protocol for Plain {
    fn flavour(&self) -> &'static str {
        "reentrant"
    }

    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn acquire(&self, owner: &Owner, lease_ms: i64, count: Count, _turn: Turn) -> Call {
        self.call(&ACQUIRE, false, [Arg::Text(owner.bytes()), Arg::Int(lease_ms), count.wanted()])
    }

    fn acquired(&self, reply: Reply) -> Result<Attempt> {
        match reply {
            Reply::Nil => Ok(Attempt::Held),
            Reply::Int(-3) => Ok(Attempt::Gone),
            Reply::Int(-1) => Ok(Attempt::Busy(None, 0)),
            Reply::Int(ms @ 0..) => Ok(Attempt::Busy(Some(ms.unsigned_abs()), 0)),
            odd => Err(Error::odd_reply(ACQUIRE.name, &odd)),
        }
    }

    fn release(&self, owner: &Owner, rest: Rest, count: Count) -> Call {
        let args = [Arg::Text(owner.bytes()), count.left(), Arg::Int(rest.lease), Arg::Text(PUBLISH)];
        self.call(&RELEASE, true, args)
    }

    fn released(&self, reply: Reply) -> Result<Release> {
        plain_released(&RELEASE, reply)
    }

    fn renewal(&self) -> &'static Renewal {
        &PLAIN_RENEWAL
    }

    fn force(&self) -> Call {
        self.call(&FORCE, true, [Arg::Text(PUBLISH)])
    }

    fn forced(&self, reply: Reply) -> Result<Forced> {
        plain_forced(&FORCE, &reply)
    }

    fn state(&self) -> Call {
        plain_state(&self.name)
    }

    fn stated(&self, reply: Reply) -> Result<(i64, Vec<(String, u64)>)> {
        plain_stated(&reply)
    }
}

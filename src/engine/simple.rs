//! Locks whose holders are fields of a hash under the lock's name. Most flavours work like this.

use std::sync::Arc;

use bytes::Bytes;

use super::protocol::{Ask, Giving, Nature, Protocol, Renewal};
use super::replies::{gone_alone, is_renewed};
use crate::config::Backoff;
use crate::names::LockName;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

static RENEW: Script = Script::new(
    "common/renew",
    concat!(
        include_str!("../../lua/common/holds.lua"),
        include_str!("../../lua/common/renew/begin.lua"),
        include_str!("../../lua/common/renew.lua"),
    ),
)
.gaining(is_renewed)
.telling(gone_alone);
static STATE: Script = Script::new("common/state", include_str!("../../lua/common/state.lua")).reading();

/// Renews holds whose owners are fields of a hash under the lock's name.
pub(crate) static HASH_RENEWAL: Renewal =
    Renewal { script: &RENEW, about: |hold, mut about| about.by_owner(hold), notes_cuts: true };

/// Queries the lease and the holders of such a lock.
pub(crate) fn hash_state(name: &LockName) -> Call {
    Call { script: &STATE, keys: 1, words: vec![Arg::Text(name.key.clone())] }
}

/// The properties in which the flavours of such locks differ.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) nature: Nature,
    pub(crate) acquire: &'static Script,
    pub(crate) release: &'static Script,
    pub(crate) force: &'static Script,
    /// True if releases are announced on the lock's channel.
    pub(crate) announces: bool,
}

#[derive(Debug)]
pub(crate) struct Simple {
    name: Arc<LockName>,
    kind: &'static Kind,
    /// The key of the last fencing token.
    counter: Option<Bytes>,
    by_time: bool,
    /// Pauses between the attempts of a waiter that gets no message.
    backoff: Option<Backoff>,
}

impl Simple {
    pub(crate) const fn new(name: Arc<LockName>, kind: &'static Kind) -> Self {
        Self { name, kind, counter: None, by_time: false, backoff: None }
    }

    /// Adds a fencing token for every section, stored in this key. `by_time`: a new token is at least the server's time
    /// in ms.
    pub(crate) fn fenced(mut self, counter: Bytes, by_time: bool) -> Self {
        (self.counter, self.by_time) = (Some(counter), by_time);
        self
    }

    /// Makes waiters poll with this back-off.
    pub(crate) const fn spinning(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Builds a call. Omits trailing arguments that are empty or 0, because each argument costs time and most calls
    /// need few.
    fn call<const N: usize>(&self, script: &'static Script, second: Option<&Bytes>, args: [Arg; N]) -> Call {
        let mut words = Vec::with_capacity(N + 2);
        words.push(Arg::Text(self.name.key.clone()));
        words.extend(second.cloned().map(Arg::Text));
        let keys = words.len();
        let said = args.iter().rposition(|arg| !arg.is_default()).map_or(0, |last| last + 1);
        words.extend(args.into_iter().take(said));
        Call { script, keys, words }
    }

    /// The command that announces a release, and the channel. Both are empty if releases are not announced.
    fn telling(&self, publish: &Bytes) -> [Arg; 2] {
        let announced = |word: &Bytes| Arg::Text(if self.kind.announces { word.clone() } else { Bytes::new() });
        [announced(publish), announced(&self.name.channel)]
    }
}

impl Protocol for Simple {
    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn nature(&self) -> &'static Nature {
        &self.kind.nature
    }

    fn backoff(&self) -> Option<Backoff> {
        self.backoff
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let [owner, lease, hold, earlier, last, alone] = ask.words();
        let by_time = Arg::Int(i64::from(self.by_time));
        self.call(self.kind.acquire, self.counter.as_ref(), [owner, lease, hold, earlier, last, alone, by_time])
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let [owner, hold, lease, mine, last] = giving.words();
        let [publish, channel] = self.telling(&giving.publish);
        self.call(self.kind.release, None, [owner, lease, publish, channel, hold, mine, last])
    }

    fn force(&self, last_ms: i64, publish: Bytes) -> Call {
        let [publish, channel] = self.telling(&publish);
        self.call(self.kind.force, None, [Arg::Int(last_ms), publish, channel])
    }

    fn state(&self) -> Call {
        hash_state(&self.name)
    }
}

//! Locks whose holders are the fields of a hash under the lock's name: the way most of them speak to Redis.

use std::sync::Arc;

use bytes::Bytes;

use super::names::LockName;
use super::protocol::{Ask, Giving, Nature, Protocol, Renewal};
use super::script::Script;
use super::transport::{Arg, Call};
use crate::config::Backoff;

static RENEW: Script = Script::new(
    "common/renew",
    concat!(include_str!("../../lua/common/holds.lua"), include_str!("../../lua/common/renew.lua")),
);
static STATE: Script = Script::new("common/state", include_str!("../../lua/common/state.lua"));

/// How holds are renewed whose owners are fields of a hash under the lock's name.
pub(crate) static PLAIN_RENEWAL: Renewal = Renewal { script: &RENEW, about: |_, _| {} };

/// Asks who holds such a lock.
pub(crate) fn plain_state(name: &LockName) -> Call {
    Call { script: &STATE, keys: 1, words: vec![Arg::Text(name.key.clone())] }
}

/// What differs between flavours of such locks.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) nature: Nature,
    pub(crate) acquire: &'static Script,
    pub(crate) release: &'static Script,
    pub(crate) force: &'static Script,
    /// True when releases are announced on the lock's channel.
    pub(crate) tells: bool,
}

/// How such a lock speaks to Redis.
#[derive(Debug)]
pub(crate) struct Plain {
    name: Arc<LockName>,
    kind: &'static Kind,
    /// The key that counts its sections.
    counter: Option<Bytes>,
    /// How one who waits without being told sleeps.
    backoff: Option<Backoff>,
}

impl Plain {
    pub(crate) const fn new(name: Arc<LockName>, kind: &'static Kind) -> Self {
        Self { name, kind, counter: None, backoff: None }
    }

    /// With a number for every section, counted in this key.
    pub(crate) fn numbered(mut self, counter: Bytes) -> Self {
        self.counter = Some(counter);
        self
    }

    /// With waiters that look from time to time.
    pub(crate) const fn spinning(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    fn call<const N: usize>(&self, script: &'static Script, second: Option<&Bytes>, args: [Arg; N]) -> Call {
        let mut words = Vec::with_capacity(N + 4);
        words.push(Arg::Text(self.name.key.clone()));
        words.extend(second.cloned().map(Arg::Text));
        let keys = words.len();
        words.extend(args);
        Call { script, keys, words }
    }

    /// The command that announces a release, and the channel; an empty one where nobody is told.
    fn telling(&self, publish: Bytes, words: &mut Vec<Arg>) {
        if self.kind.tells {
            words.extend([publish, self.name.channel.clone()].map(Arg::Text));
        } else {
            words.push(Arg::Text(Bytes::new()));
        }
    }
}

impl Protocol for Plain {
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
        self.call(self.kind.acquire, self.counter.as_ref(), ask.words())
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let mut call = self.call(self.kind.release, None, giving.words());
        self.telling(giving.publish.clone(), &mut call.words);
        call
    }

    fn force(&self, last_ms: i64, publish: Bytes) -> Call {
        let mut call = self.call(self.kind.force, None, [Arg::Int(last_ms)]);
        self.telling(publish, &mut call.words);
        call
    }

    fn state(&self) -> Call {
        plain_state(&self.name)
    }
}

//! Locks whose holders are the fields of a hash under the lock's name: their scripts' replies, and the way most of them
//! speak to Redis.

use std::sync::Arc;

use bytes::Bytes;

use super::names::LockName;
use super::protocol::{Ask, Attempt, Forced, Giving, Protocol, Release, Renewal};
use super::script::Script;
use super::transport::{Arg, Call, Reply};
use crate::config::Backoff;
use crate::error::{Error, Result};

static RENEW: Script = Script::new(
    "common/renew",
    concat!(include_str!("../../lua/common/holds.lua"), include_str!("../../lua/common/renew.lua")),
);
static STATE: Script = Script::new("common/state", include_str!("../../lua/common/state.lua"));

/// What a script answers, with the server's time, whose last moment has passed.
pub(crate) const TOO_LATE: i64 = -7;

/// How holds are renewed whose owners are fields of a hash under the lock's name.
pub(crate) static PLAIN_RENEWAL: Renewal = Renewal { script: &RENEW, about: |_, _| {} };

/// Asks who holds such a lock.
pub(crate) fn plain_state(name: &LockName) -> Call {
    Call { script: &STATE, keys: 1, words: vec![Arg::Text(name.key.clone())] }
}

/// Reads who holds such a lock.
pub(crate) fn plain_stated(reply: &Reply) -> Result<(i64, Vec<(String, u64)>)> {
    let Reply::List(parts) = reply else { return Err(Error::odd_reply(STATE.name, reply)) };
    let Some((Reply::Int(ttl), fields)) = parts.split_first() else {
        return Err(Error::odd_reply(STATE.name, reply));
    };
    let mut holders = Vec::with_capacity(fields.len() / 2);
    for pair in fields.chunks(2) {
        let [Reply::Text(owner), Reply::Text(count)] = pair else {
            return Err(Error::odd_reply(STATE.name, reply));
        };
        // A count that is no number is somebody's forgery; the lock is held all the same.
        let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok()).unwrap_or(1);
        holders.push((String::from_utf8_lossy(owner).into_owned(), count));
    }
    Ok((*ttl, holders))
}

/// Reads what came of the release of such a lock.
pub(crate) fn plain_released(script: &Script, reply: Reply) -> Result<Release> {
    match reply {
        Reply::Nil => Ok(Release::NotHeld(None)),
        Reply::Text(owner) => Ok(Release::NotHeld(Some(String::from_utf8_lossy(&owner).into_owned()))),
        Reply::Int(left) => match (u32::try_from(left), u32::try_from(left.saturating_neg())) {
            (_, Ok(told)) => Ok(Release::Free(told)),
            (Ok(left), _) => Ok(Release::Left(left)),
            _ => Err(Error::odd_reply(script.name, &left)),
        },
        Reply::List(parts) => match parts.as_slice() {
            [Reply::Int(0), Reply::Text(reason)] => Ok(Release::Untold(String::from_utf8_lossy(reason).into_owned())),
            [Reply::Int(-1)] => Ok(Release::Others),
            [Reply::Int(TOO_LATE), Reply::Int(at)] => Ok(Release::TooLate(*at)),
            [Reply::Int(-2), Reply::Int(others)] => Ok(Release::NotThere(u32::try_from(*others).unwrap_or(u32::MAX))),
            [Reply::Int(-8), Reply::Text(id)] => Ok(Release::Which(id.clone())),
            odd => Err(Error::odd_reply(script.name, &odd)),
        },
    }
}

/// Reads whether such a lock was held when it was freed by force.
pub(crate) fn plain_forced(script: &Script, reply: &Reply) -> Result<Forced> {
    match reply {
        Reply::Int(0) => Ok(Forced::Free),
        Reply::Int(1) => Ok(Forced::Freed),
        Reply::Int(2) => Ok(Forced::Other),
        Reply::List(parts) => match parts.as_slice() {
            [Reply::Int(1), Reply::Text(_)] => Ok(Forced::Freed),
            [Reply::Int(TOO_LATE), Reply::Int(at)] => Ok(Forced::TooLate(*at)),
            odd => Err(Error::odd_reply(script.name, &odd)),
        },
        odd => Err(Error::odd_reply(script.name, odd)),
    }
}

/// What differs between flavours of such locks.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) flavour: &'static str,
    pub(crate) acquire: &'static Script,
    pub(crate) release: &'static Script,
    pub(crate) force: &'static Script,
    /// True when releases are announced on the lock's channel.
    pub(crate) tells: bool,
    /// True when it may be taken together with others.
    pub(crate) in_batch: bool,
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
    fn flavour(&self) -> &'static str {
        self.kind.flavour
    }

    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn numbers(&self) -> bool {
        self.counter.is_some()
    }

    fn in_batch(&self) -> bool {
        self.kind.in_batch
    }

    fn backoff(&self) -> Option<Backoff> {
        self.backoff
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        self.call(self.kind.acquire, self.counter.as_ref(), ask.words())
    }

    fn acquired(&self, reply: Reply) -> Result<Attempt> {
        match &reply {
            Reply::Nil if self.counter.is_none() => Ok(Attempt::Held),
            Reply::List(parts) => match parts.as_slice() {
                [Reply::Int(TOO_LATE), Reply::Int(at)] => Some(Attempt::TooLate(*at)),
                [number] if self.counter.is_some() => number_of(number).map(Attempt::Numbered),
                _ => None,
            }
            .ok_or_else(|| Error::odd_reply(self.kind.acquire.name, &reply)),
            Reply::Int(-6) => Ok(Attempt::Deadlock),
            Reply::Int(-3) => Ok(Attempt::Gone),
            Reply::Int(-1) => Ok(Attempt::Busy(None, 0)),
            Reply::Int(ms @ 0..) => Ok(Attempt::Busy(Some(ms.unsigned_abs()), 0)),
            odd => Err(Error::odd_reply(self.kind.acquire.name, odd)),
        }
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let mut call = self.call(self.kind.release, None, giving.words());
        self.telling(giving.publish.clone(), &mut call.words);
        call
    }

    fn released(&self, reply: Reply) -> Result<Release> {
        plain_released(self.kind.release, reply)
    }

    fn renewal(&self) -> &'static Renewal {
        &PLAIN_RENEWAL
    }

    fn force(&self, last_ms: i64, publish: Bytes) -> Call {
        let mut call = self.call(self.kind.force, None, [Arg::Int(last_ms)]);
        self.telling(publish, &mut call.words);
        call
    }

    fn forced(&self, reply: Reply) -> Result<Forced> {
        plain_forced(self.kind.force, &reply)
    }

    fn state(&self) -> Call {
        plain_state(&self.name)
    }

    fn stated(&self, reply: Reply) -> Result<(i64, Vec<(String, u64)>)> {
        plain_stated(&reply)
    }
}

/// A section's number: from 1.
pub(crate) fn number_of(reply: &Reply) -> Option<u64> {
    let number = match reply {
        Reply::Int(number) => u64::try_from(*number).ok(),
        Reply::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        Reply::Nil | Reply::List(_) => None,
    };
    number.filter(|number| *number > 0)
}

//! The replies of all flavours' scripts: one table per kind of command.

use super::protocol::{Answer, Busy, Forced, Nature, Protocol, Release};
use crate::error::{Error, Result};
use crate::transport::Reply;

/// The owner holds the lock, which was passed on to the owner before.
const PASSED: i64 = -2;

/// Followed by the server's time: the command arrived after its last moment, and did nothing.
const TOO_LATE: i64 = -7;

/// True if the owner holds the lock after an acquire by script. The table of `acquired` lists the replies.
pub(crate) fn is_held(reply: &Reply) -> bool {
    matches!(reply, Reply::Nil | Reply::Int(PASSED))
}

/// [`is_held`] for locks with fencing tokens.
pub(crate) fn is_held_with_token(reply: &Reply) -> bool {
    matches!(reply, Reply::List(parts) if parts.len() == 1)
}

/// [`is_held`] for an acquire by `SET`.
pub(crate) fn is_set(reply: &Reply) -> bool {
    matches!(reply, Reply::Text(ok) if ok == "OK")
}

/// True if a renewal found any of its holds.
pub(crate) fn is_renewed(reply: &Reply) -> bool {
    let is_none = |entry: &Reply| *entry == Reply::Int(0);
    too_late(reply).is_none() && matches!(reply, Reply::List(entries) if !entries.iter().all(is_none))
}

/// The part of a renewal's reply that needs no acknowledgement by replicas: 0 for each hold that is gone. The entries
/// of the other holds become Nil, and the caller renews these holds again. None if no hold is gone.
pub(crate) fn gone_alone(reply: &Reply) -> Option<Reply> {
    let Reply::List(entries) = reply else { return None };
    let is_gone = |entry: &Reply| *entry == Reply::Int(0);
    let alone = |entry: &Reply| if is_gone(entry) { Reply::Int(0) } else { Reply::Nil };
    entries.iter().any(is_gone).then(|| Reply::List(entries.iter().map(alone).collect()))
}

/// The server's time, if the reply says that the command arrived too late.
pub(crate) fn too_late(reply: &Reply) -> Option<i64> {
    let Reply::List(parts) = reply else { return None };
    match parts.as_slice() {
        [Reply::Int(TOO_LATE), Reply::Int(at)] => Some(*at),
        _ => None,
    }
}

impl dyn Protocol {
    fn odd(&self, command: &str, reply: &Reply) -> Error {
        Error::odd_reply(&format!("{}/{command}", self.nature().flavour), reply).about(&self.name().as_written)
    }

    /// Reads the reply to an acquire.
    ///
    /// | reply | meaning |
    /// |---|---|
    /// | nil; `[token]` for fencing tokens; `OK` for `SET` | held |
    /// | ms; -1; followed by the server's time if there is a queue | busy for ms; busy without an end |
    /// | nil for `SET`; `[ms, 0 or 1]` | busy; busy for ms, 1 = the release will be announced |
    /// | `[ms, 1]` without `SET` and queue | busy for ms, and a Java client was seen to hold the lock |
    /// | -2 | held: the lock was passed on before |
    /// | -3 | a re-entry, but the owner's earlier hold is gone |
    /// | -4 | the owner lost its place in the queue |
    /// | -5 | the other half does not hold the lock, but its waiters come first |
    /// | -6 | the owner would wait for itself |
    /// | `[-7, time]` | too late |
    pub(crate) fn acquired(&self, reply: &Reply) -> Result<Answer> {
        let Nature { fenced, by_set, .. } = *self.nature();
        // If a lock has a back-off, its release may not be announced.
        let busy = |ttl: i64, at, announced| {
            Some(Answer::Busy(Busy { ttl: u64::try_from(ttl).ok(), at, announced, by_java: false }))
        };
        let announced = self.backoff().is_none();
        let attempt = match reply {
            Reply::Nil if by_set => busy(-1, 0, true),
            Reply::Text(ok) if by_set && ok == "OK" => Some(Answer::Held),
            Reply::Nil if !fenced => Some(Answer::Held),
            Reply::Int(-1) => busy(-1, 0, announced),
            Reply::Int(PASSED) => Some(Answer::Passed),
            Reply::Int(-3) => Some(Answer::Gone),
            Reply::Int(-4) => Some(Answer::Displaced),
            Reply::Int(-5) => Some(Answer::HeldBack),
            Reply::Int(-6) => Some(Answer::Deadlock),
            Reply::Int(ms @ 0..) => busy(*ms, 0, announced),
            Reply::List(parts) => match parts.as_slice() {
                [Reply::Int(TOO_LATE), Reply::Int(at)] => Some(Answer::TooLate(*at)),
                [Reply::Int(ms), Reply::Int(at)] if self.queue().is_some() => busy(*ms, *at, true),
                [Reply::Int(ms @ -1..), Reply::Int(announced @ 0..=1)] if by_set => busy(*ms, 0, *announced == 1),
                [Reply::Int(ms @ -1..), Reply::Int(1)] => {
                    let ttl = u64::try_from(*ms).ok();
                    Some(Answer::Busy(Busy { ttl, at: 0, announced, by_java: true }))
                }
                [token] if fenced => token_of(token).map(Answer::Fenced),
                _ => None,
            },
            _ => None,
        };
        attempt.ok_or_else(|| self.odd("acquire", reply))
    }

    /// Reads the reply to a release.
    ///
    /// | reply | meaning |
    /// |---|---|
    /// | n > 0 | the owner has n holds left |
    /// | -n, 0 | free; n clients received the message. With a queue, n says how the lock was passed on |
    /// | `[0, text]` | free; the server refused to publish the message |
    /// | `[-1]` | the owner has no hold left, but others hold the lock |
    /// | nil; text | not held; held by this owner |
    /// | `[-2, n]` | the hold does not exist; the owner has n other holds |
    /// | `[-8, id]` | for [`HoldId::Any`](super::protocol::HoldId): the next command must name this hold |
    /// | `[-7, time]` | too late |
    pub(crate) fn released(&self, reply: Reply) -> Result<Release> {
        let release = match &reply {
            Reply::Nil => Some(Release::NotHeld(None)),
            Reply::Text(owner) => Some(Release::NotHeld(Some((self.nature().holder)(owner)))),
            Reply::Int(left) => match (u32::try_from(*left), u32::try_from(left.saturating_neg())) {
                (_, Ok(receivers)) => Some(Release::Free(receivers)),
                (Ok(left), _) => Some(Release::Left(left)),
                _ => None,
            },
            Reply::List(parts) => match parts.as_slice() {
                [Reply::Int(0), Reply::Text(reason)] => {
                    Some(Release::Unannounced(String::from_utf8_lossy(reason).into_owned()))
                }
                [Reply::Int(-1)] => Some(Release::Others),
                [Reply::Int(TOO_LATE), Reply::Int(at)] => Some(Release::TooLate(*at)),
                [Reply::Int(-2), Reply::Int(others)] => {
                    Some(Release::NotThere(u32::try_from(*others).unwrap_or(u32::MAX)))
                }
                [Reply::Int(-8), Reply::Text(id)] => Some(Release::Which(id.clone())),
                _ => None,
            },
        };
        release.ok_or_else(|| self.odd("release", &reply))
    }

    /// Reads the reply to a forced release.
    ///
    /// | reply | meaning |
    /// |---|---|
    /// | 1; `[1, text]` | was held; the server refused to publish the message |
    /// | 0 | was free |
    /// | `[1 or 0, n]` | the same, and n says how the lock was passed on |
    /// | 2 | the other half is held |
    /// | `[-7, time]` | too late |
    pub(crate) fn forced(&self, reply: &Reply) -> Result<Forced> {
        match reply {
            Reply::Int(0) => Ok(Forced::Free(0)),
            Reply::Int(1) => Ok(Forced::Freed(0)),
            Reply::Int(2) => Ok(Forced::Other),
            Reply::List(parts) => match parts.as_slice() {
                [Reply::Int(1), Reply::Text(reason)] => {
                    Ok(Forced::Unannounced(String::from_utf8_lossy(reason).into_owned()))
                }
                [Reply::Int(1), Reply::Int(passed)] => Ok(Forced::Freed(*passed)),
                [Reply::Int(0), Reply::Int(passed)] => Ok(Forced::Free(*passed)),
                [Reply::Int(TOO_LATE), Reply::Int(at)] => Ok(Forced::TooLate(*at)),
                _ => Err(self.odd("force", reply)),
            },
            _ => Err(self.odd("force", reply)),
        }
    }

    /// Reads the state of the lock: the time left as in `PTTL`, and the holders with their counts.
    pub(crate) fn stated(&self, reply: &Reply) -> Result<(i64, Vec<(String, u64)>)> {
        let odd = || self.odd("state", reply);
        let Reply::List(parts) = reply else { return Err(odd()) };
        let Some((Reply::Int(ttl), fields)) = parts.split_first() else { return Err(odd()) };
        let mut holders = Vec::with_capacity(fields.len() / 2);
        for pair in fields.chunks(2) {
            let [Reply::Text(owner), Reply::Text(count)] = pair else { return Err(odd()) };
            // A count that is not a number was forged. The lock still counts as held.
            let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok()).unwrap_or(1);
            holders.push(((self.nature().holder)(owner), count));
        }
        Ok((*ttl, holders))
    }
}

/// A fencing token, at least 1.
pub(crate) fn token_of(reply: &Reply) -> Option<u64> {
    let token = match reply {
        Reply::Int(token) => u64::try_from(*token).ok(),
        Reply::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        Reply::Nil | Reply::List(_) => None,
    };
    token.filter(|token| *token > 0)
}

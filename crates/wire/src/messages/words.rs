//! The server's words about subscriptions: commands, confirmations and messages.

use bytes::Bytes;

use super::channels::Request;
use crate::Reply;
use crate::resp::Answer;

/// The words for one kind of channel.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) subscribe: &'static [u8],
    pub(super) unsubscribe: &'static [u8],
    subscribed: &'static str,
    pub(super) unsubscribed: &'static str,
    message: &'static str,
    /// True if each channel belongs to one slot.
    pub(super) is_sharded: bool,
}

pub(super) static PLAIN: Kind = Kind {
    subscribe: b"SUBSCRIBE",
    unsubscribe: b"UNSUBSCRIBE",
    subscribed: "subscribe",
    unsubscribed: "unsubscribe",
    message: "message",
    is_sharded: false,
};
pub(super) static SHARDED: Kind = Kind {
    subscribe: b"SSUBSCRIBE",
    unsubscribe: b"SUNSUBSCRIBE",
    subscribed: "ssubscribe",
    unsubscribed: "sunsubscribe",
    message: "smessage",
    is_sharded: true,
};

/// Splits an answer that names a channel: what happened, the channel, and the rest.
pub(super) fn named(answer: &Answer) -> Option<(&Bytes, &Bytes, &Reply)> {
    let Ok(Reply::List(parts)) = answer else { return None };
    let [Reply::Text(kind), Reply::Text(channel), rest] = parts.as_slice() else { return None };
    Some((kind, channel, rest))
}

/// Returns the channel and the payload of a message.
pub(super) fn message<'a>(answer: &'a Answer, of: &Kind) -> Option<(&'a [u8], &'a [u8])> {
    match named(answer)? {
        (kind, channel, Reply::Text(payload)) if kind == of.message => Some((channel, payload)),
        _ => None,
    }
}

impl Request {
    /// True if this answer confirms the request.
    pub(super) fn is_confirmed_by(&self, answer: &Answer, of: &Kind) -> bool {
        let is = |word: &str, channel: &Bytes| {
            named(answer).is_some_and(|(kind, which, _)| kind == word && which == channel)
        };
        match self {
            Self::Subscribe(channel) => is(of.subscribed, channel),
            Self::Unsubscribe(channel, _) => is(of.unsubscribed, channel),
            Self::Ping => match answer {
                Ok(Reply::Text(text)) => text == "PONG",
                // With RESP2, the reply is a list while there are subscriptions.
                Ok(Reply::List(parts)) => matches!(parts.as_slice(), [Reply::Text(kind), _] if kind == "pong"),
                _ => false,
            },
        }
    }
}

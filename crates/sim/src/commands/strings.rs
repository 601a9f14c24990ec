//! Strings and counters.

use super::keys::deadline;
use super::{Answer, NOT_AN_INTEGER, OVERFLOW, SYNTAX, Words};
use crate::number;
use crate::reply::SimReply;
use crate::store::{Failure, Store, Value};

pub(super) fn get(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(store.text(words.at(1))?.map_or(SimReply::Nil, |text| SimReply::Text(text.clone())))
}

/// The options of `SET` that are supported.
#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_there: bool,
    keeps_lease: bool,
    /// The position of the lease.
    lease: Option<usize>,
}

impl SetOptions {
    /// As in Redis, an option may be repeated, and the last lease counts.
    fn parse(words: &Words<'_>) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut at = 3;
        while at < words.len() {
            if words.is(at, "nx") && !options.only_there {
                options.only_new = true;
            } else if words.is(at, "xx") && !options.only_new {
                options.only_there = true;
            } else if words.is(at, "keepttl") && options.lease.is_none() {
                options.keeps_lease = true;
            } else if words.is(at, "px") && !options.keeps_lease && at + 1 < words.len() {
                at += 1;
                options.lease = Some(at);
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Supports the options `NX`, `XX`, `PX` and `KEEPTTL`.
pub(super) fn set(store: &mut Store, words: &Words<'_>) -> Answer {
    let options = SetOptions::parse(words)?;
    let mut until = None;
    if let Some(at) = options.lease {
        if words.int(at)? <= 0 {
            return Err("ERR invalid expire time in 'set' command".into());
        }
        until = Some(deadline(words.at(at), "set", store.now_ms())?);
    }
    let old = store.entry(words.at(1)).map(|entry| entry.until);
    if options.only_new && old.is_some() || options.only_there && old.is_none() {
        return Ok(SimReply::Nil);
    }
    if options.keeps_lease {
        until = old.flatten();
    }
    store.put(words.at(1), Value::Text(words.bytes_at(2)), until);
    Ok(SimReply::ok())
}

pub(super) fn incr(store: &mut Store, words: &Words<'_>) -> Answer {
    add(store, words.at(1), 1)
}

pub(super) fn incrby(store: &mut Store, words: &Words<'_>) -> Answer {
    add(store, words.at(1), words.int(2)?)
}

pub(super) fn decrby(store: &mut Store, words: &Words<'_>) -> Answer {
    let step = words.int(2)?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(store, words.at(1), step)
}

fn add(store: &mut Store, key: &[u8], step: i64) -> Answer {
    let Some(text) = store.text(key)? else {
        store.put(key, Value::Text(number::int_text(step)), None);
        return Ok(SimReply::Int(step));
    };
    let sum = number::int(text).ok_or(NOT_AN_INTEGER)?.checked_add(step).ok_or(OVERFLOW)?;
    *text = number::int_text(sum);
    Ok(SimReply::Int(sum))
}

//! Strings and counters.

use super::keys::deadline;
use super::{Answer, NOT_AN_INTEGER, OVERFLOW, SYNTAX, Words};
use crate::number;
use crate::reply::SimReply;
use crate::store::{Store, Value};

pub(super) fn get(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(store.text(words.at(1))?.map_or(SimReply::Nil, |text| SimReply::Text(text.clone())))
}

pub(super) fn set(store: &mut Store, words: &Words<'_>) -> Answer {
    let (mut until, mut only_new, mut at) = (None, false, 3);
    while at < words.len() {
        if words.is(at, "nx") && !only_new {
            only_new = true;
            at += 1;
        } else if words.is(at, "px") && until.is_none() && at + 1 < words.len() {
            if words.int(at + 1)? <= 0 {
                return Err("ERR invalid expire time in 'set' command".into());
            }
            until = Some(deadline(words.at(at + 1), "set", store.now_ms())?);
            at += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if only_new && store.entry(words.at(1)).is_some() {
        return Ok(SimReply::Nil);
    }
    store.put(words.at(1), Value::Text(words.bytes_at(2)), until);
    Ok(SimReply::ok())
}

pub(super) fn incr(store: &mut Store, words: &Words<'_>) -> Answer {
    let key = words.at(1);
    let Some(text) = store.text(key)? else {
        store.put(key, Value::Text(number::int_text(1)), None);
        return Ok(SimReply::Int(1));
    };
    let sum = number::int(text).ok_or(NOT_AN_INTEGER)?.checked_add(1).ok_or(OVERFLOW)?;
    *text = number::int_text(sum);
    Ok(SimReply::Int(sum))
}

//! Strings and counters.

use bytes::Bytes;

use super::keys::deadline;
use super::{Answer, NOT_AN_INTEGER, OVERFLOW, SYNTAX, Words, flag};
use crate::number;
use crate::reply::SimReply;
use crate::store::{Store, Value};

pub(super) fn get(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(store.text(words.at(1))?.map_or(SimReply::Nil, |text| SimReply::Text(text.clone())))
}

pub(super) fn set(store: &mut Store, words: &Words<'_>) -> Answer {
    let (mut nx, mut xx, mut keep, mut fetch) = (false, false, false, false);
    let mut span: Option<(usize, i64)> = None;
    let mut i = 3;
    while i < words.len() {
        let timed = words.is(i, "px") || words.is(i, "ex");
        if timed && span.is_none() && !keep && i + 1 < words.len() {
            span = Some((i + 1, if words.is(i, "px") { 1 } else { 1000 }));
            i += 1;
        } else if words.is(i, "nx") && !xx {
            nx = true;
        } else if words.is(i, "xx") && !nx {
            xx = true;
        } else if words.is(i, "keepttl") && span.is_none() {
            keep = true;
        } else if words.is(i, "get") {
            fetch = true;
        } else {
            return Err(SYNTAX.into());
        }
        i += 1;
    }
    let now = store.now_ms();
    let mut until = None;
    if let Some((at, unit)) = span {
        if words.int(at)? <= 0 {
            return Err("ERR invalid expire time in 'set' command".into());
        }
        until = Some(deadline(words.at(at), "set", now, unit)?);
    }
    let before = if fetch { Some(get(store, words)?) } else { None };
    let entry = store.entry(words.at(1));
    if (nx && entry.is_some()) || (xx && entry.is_none()) {
        return Ok(before.unwrap_or(SimReply::Nil));
    }
    if keep {
        until = entry.and_then(|entry| entry.until);
    }
    store.put(words.at(1), Value::Text(words.bytes_at(2)), until);
    Ok(before.unwrap_or_else(SimReply::ok))
}

pub(super) fn setnx(store: &mut Store, words: &Words<'_>) -> Answer {
    let free = store.entry(words.at(1)).is_none();
    if free {
        store.put(words.at(1), Value::Text(words.bytes_at(2)), None);
    }
    Ok(flag(free))
}

pub(super) fn incr(store: &mut Store, words: &Words<'_>) -> Answer {
    add(store, words.at(1), 1)
}

pub(super) fn decr(store: &mut Store, words: &Words<'_>) -> Answer {
    add(store, words.at(1), -1)
}

pub(super) fn incrby(store: &mut Store, words: &Words<'_>) -> Answer {
    let step = words.int(2)?;
    add(store, words.at(1), step)
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
    *text = Bytes::from(sum.to_string());
    Ok(SimReply::Int(sum))
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn set_obeys_its_options() {
        let mut store = Store::default();
        assert_eq!(run(&mut store, &["set", "k", "1", "xx"]), SimReply::Nil);
        assert_eq!(run(&mut store, &["set", "k", "1", "PX", "50", "NX"]), SimReply::ok());
        assert_eq!(run(&mut store, &["set", "k", "2", "nx"]), SimReply::Nil);
        assert_eq!(run(&mut store, &["pttl", "k"]), SimReply::Int(50));
        assert_eq!(run(&mut store, &["set", "k", "2", "keepttl"]), SimReply::ok());
        assert_eq!(run(&mut store, &["pttl", "k"]), SimReply::Int(50));
        assert_eq!(run(&mut store, &["set", "k", "2"]), SimReply::ok());
        assert_eq!(run(&mut store, &["pttl", "k"]), SimReply::Int(-1));
        let zero = run(&mut store, &["set", "k", "2", "px", "0"]);
        assert_eq!(zero.error(), Some("ERR invalid expire time in 'set' command"));
    }

    #[test]
    fn counters_keep_their_lease_and_do_not_wrap() {
        let mut store = Store::default();
        run(&mut store, &["set", "k", "9223372036854775806", "px", "50"]);
        assert_eq!(run(&mut store, &["incr", "k"]), SimReply::Int(i64::MAX));
        assert_eq!(run(&mut store, &["incr", "k"]).error(), Some(OVERFLOW));
        assert_eq!(run(&mut store, &["pttl", "k"]), SimReply::Int(50));
    }
}

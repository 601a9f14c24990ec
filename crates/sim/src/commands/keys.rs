//! Keys of any type, expiry, publishing, the clock.

use super::{Answer, NOT_AN_INTEGER, SYNTAX, Words, count, flag};
use crate::number;
use crate::reply::SimReply;
use crate::store::{Failure, Store};

pub(super) fn exists(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(count(words.from(1).filter(|key| store.entry(key).is_some()).count()))
}

pub(super) fn del(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(count(words.from(1).filter(|key| store.remove(key)).count()))
}

/// Returns which of the options `NX`, `XX`, `GT` and `LT` are given.
fn terms(words: &Words<'_>) -> Result<[bool; 4], Failure> {
    let known = ["nx", "xx", "gt", "lt"];
    if let Some(at) = (3..words.len()).find(|at| !known.iter().any(|option| words.is(*at, option))) {
        return Err(format!("ERR Unsupported option {}", String::from_utf8_lossy(words.at(at))));
    }
    let given = known.map(|option| (3..words.len()).any(|at| words.is(at, option)));
    match given {
        [true, true, _, _] | [true, _, true, _] | [true, _, _, true] => {
            Err("ERR NX and XX, GT or LT options at the same time are not compatible".into())
        }
        [_, _, true, true] => Err("ERR GT and LT options at the same time are not compatible".into()),
        _ => Ok(given),
    }
}

pub(super) fn pexpire(store: &mut Store, words: &Words<'_>) -> Answer {
    let [without, with, longer, shorter] = terms(words)?;
    let now = store.now_ms();
    let until = deadline(words.at(2), "pexpire", now)?;
    let Some(entry) = store.entry(words.at(1)) else { return Ok(flag(false)) };
    // A key without a lease counts as one with an endless lease.
    let allowed = match entry.until {
        None => !with && !longer,
        Some(old) => !without && (!longer || until > old) && (!shorter || until < old),
    };
    if !allowed {
        return Ok(flag(false));
    }
    if until <= now {
        store.remove(words.at(1));
    } else {
        entry.until = Some(until);
    }
    Ok(flag(true))
}

/// Returns the end of a span of ms that begins at `now`, with Redis' checks.
pub(super) fn deadline(word: &[u8], name: &str, now: i64) -> Result<i64, Failure> {
    let span = number::int(word).ok_or(NOT_AN_INTEGER)?;
    span.checked_add(now).ok_or_else(|| format!("ERR invalid expire time in '{name}' command"))
}

pub(super) fn pttl(store: &mut Store, words: &Words<'_>) -> Answer {
    let now = store.now_ms();
    let left = store.entry(words.at(1)).map_or(-2, |entry| entry.until.map_or(-1, |until| until - now));
    Ok(SimReply::Int(left))
}

pub(super) fn persist(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(flag(store.entry(words.at(1)).is_some_and(|entry| entry.until.take().is_some())))
}

pub(super) fn kind(store: &mut Store, words: &Words<'_>) -> Answer {
    let kind = store.entry(words.at(1)).map_or("none", |entry| entry.value.kind());
    Ok(SimReply::Status(kind.into()))
}

pub(super) fn flush(store: &mut Store, _: &Words<'_>) -> Answer {
    store.clear();
    Ok(SimReply::ok())
}

pub(super) fn time(store: &mut Store, _: &Words<'_>) -> Answer {
    let micros = store.micros();
    let text = |n| SimReply::Text(number::int_text(n));
    Ok(SimReply::List(vec![text(micros.div_euclid(1_000_000)), text(micros.rem_euclid(1_000_000))]))
}

pub(super) fn publish(store: &mut Store, words: &Words<'_>) -> Answer {
    let listeners = store.audience.get(words.at(1)).copied().unwrap_or(0);
    if listeners > 0 {
        store.outbox.push((words.bytes_at(1), words.bytes_at(2)));
    }
    Ok(count(listeners))
}

/// Supports the form that the scripts use: the number of subscribers of each channel.
pub(super) fn pubsub(store: &mut Store, words: &Words<'_>) -> Answer {
    if !words.is(1, "numsub") && !words.is(1, "shardnumsub") {
        return Err(SYNTAX.into());
    }
    let listeners = |channel: &[u8]| store.audience.get(channel).copied().unwrap_or(0);
    let each = (2..words.len()).flat_map(|i| [SimReply::Text(words.bytes_at(i)), count(listeners(words.at(i)))]);
    Ok(SimReply::List(each.collect()))
}

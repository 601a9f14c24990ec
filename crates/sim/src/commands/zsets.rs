//! Sorted sets.

use std::cmp::Ordering;

use bytes::Bytes;

use super::{Answer, NOT_A_FLOAT, SYNTAX, Words, count, window};
use crate::number;
use crate::reply::SimReply;
use crate::store::{Failure, Store, Value, WRONG_TYPE};
use crate::zset::{Bound, Zset};

fn made<'s>(store: &'s mut Store, key: &[u8]) -> Result<&'s mut Zset, Failure> {
    match store.or_new(key, || Value::Zset(Zset::default())) {
        Value::Zset(zset) => Ok(zset),
        _ => Err(WRONG_TYPE.into()),
    }
}

fn score_text(score: f64) -> SimReply {
    let mut text = Vec::new();
    number::float_text(score, &mut text);
    SimReply::Text(Bytes::from(text))
}

/// Supports the options `XX` and `CH` only.
pub(super) fn zadd(store: &mut Store, words: &Words<'_>) -> Answer {
    let options = (2..words.len()).take_while(|at| words.is(*at, "xx") || words.is(*at, "ch")).count();
    let has = |option: &str| (2..2 + options).any(|at| words.is(at, option));
    let (only_there, changes, from) = (has("xx"), has("ch"), 2 + options);
    if from >= words.len() || !(words.len() - from).is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let scores = (from..words.len()).step_by(2).map(|i| words.float(i)).collect::<Result<Vec<f64>, _>>()?;
    if only_there && store.zset(words.at(1))?.is_none() {
        return Ok(count(0));
    }
    let zset = made(store, words.at(1))?;
    let mut counted = 0;
    for (at, score) in (from + 1..words.len()).step_by(2).zip(scores) {
        let member = words.at(at);
        let before = zset.score(member);
        if before.is_none() && only_there {
            continue;
        }
        counted +=
            usize::from(before.is_none_or(|before| changes && before.partial_cmp(&score) != Some(Ordering::Equal)));
        zset.set(member, score);
    }
    Ok(count(counted))
}

pub(super) fn zincrby(store: &mut Store, words: &Words<'_>) -> Answer {
    let step = number::float(words.at(2)).ok_or(NOT_A_FLOAT)?;
    let zset = made(store, words.at(1))?;
    let sum = zset.score(words.at(3)).unwrap_or(0.0) + step;
    if sum.is_nan() {
        return Err("ERR resulting score is not a number (NaN)".into());
    }
    zset.set(words.at(3), sum);
    Ok(score_text(sum))
}

pub(super) fn zscore(store: &mut Store, words: &Words<'_>) -> Answer {
    let score = store.zset(words.at(1))?.and_then(|zset| zset.score(words.at(2)));
    Ok(score.map_or(SimReply::Nil, score_text))
}

pub(super) fn zrem(store: &mut Store, words: &Words<'_>) -> Answer {
    let Some(zset) = store.zset(words.at(1))? else { return Ok(count(0)) };
    let removed = words.from(2).filter(|member| zset.remove(member)).count();
    store.tidy(words.at(1));
    Ok(count(removed))
}

pub(super) fn zcard(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(count(store.zset(words.at(1))?.map_or(0, |zset| zset.len())))
}

fn bounds(low: &[u8], high: &[u8]) -> Result<(Bound, Bound), Failure> {
    let text = "ERR min or max is not a float";
    Ok((Bound::parse(low).ok_or(text)?, Bound::parse(high).ok_or(text)?))
}

pub(super) fn zcount(store: &mut Store, words: &Words<'_>) -> Answer {
    let (min, max) = bounds(words.at(2), words.at(3))?;
    Ok(count(store.zset(words.at(1))?.map_or(0, |zset| zset.within(min, max).len())))
}

pub(super) fn zrange(store: &mut Store, words: &Words<'_>) -> Answer {
    let with_scores = match words.len() {
        4 => false,
        5 if words.is(4, "withscores") => true,
        _ => return Err(SYNTAX.into()),
    };
    let (start, stop) = (words.int(2)?, words.int(3)?);
    let all = store.zset(words.at(1))?.map_or(&[][..], |zset| zset.all());
    let mut out = Vec::new();
    for (score, member) in &all[window(start, stop, all.len())] {
        out.push(SimReply::Text(member.clone()));
        if with_scores {
            out.push(score_text(*score));
        }
    }
    Ok(SimReply::List(out))
}

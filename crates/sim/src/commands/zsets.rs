//! Sorted sets.

use std::cmp::Ordering;

use bytes::Bytes;

use super::{Answer, NOT_A_FLOAT, SYNTAX, Words, count, window};
use crate::number;
use crate::reply::SimReply;
use crate::store::{Failure, Store, Value, WRONG_TYPE};
use crate::zset::{Bound, Zset};

const LIMIT_OF_INDEXES: &str = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";

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
    let is_option = |at: &usize| ["xx", "nx", "ch"].iter().any(|option| words.is(*at, option));
    let options = (2..words.len()).take_while(is_option).count();
    let has = |option: &str| (2..2 + options).any(|at| words.is(at, option));
    let (only_there, only_new, changes, from) = (has("xx"), has("nx"), has("ch"), 2 + options);
    if from >= words.len() || !(words.len() - from).is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if only_there && only_new {
        return Err("ERR XX and NX options at the same time are not compatible".into());
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
        if before.is_none() && only_there || before.is_some() && only_new {
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

/// The options that follow a range.
struct Page {
    with_scores: bool,
    offset: i64,
    limit: i64,
}

impl Page {
    fn parse(words: &Words<'_>) -> Result<Self, Failure> {
        let mut page = Self { with_scores: false, offset: 0, limit: -1 };
        let mut at = 4;
        while at < words.len() {
            if words.is(at, "withscores") {
                page.with_scores = true;
            } else if words.is(at, "limit") && at + 2 < words.len() {
                (page.offset, page.limit) = (words.int(at + 1)?, words.int(at + 2)?);
                at += 2;
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        Ok(page)
    }

    /// Applies the limit. A negative offset selects nothing; a negative limit selects everything after the offset.
    fn cut<'z>(&self, found: &'z [(f64, Bytes)]) -> &'z [(f64, Bytes)] {
        let all = found.len();
        let rest = &found[usize::try_from(self.offset).map_or(all, |offset| offset.min(all))..];
        &rest[..usize::try_from(self.limit).map_or(rest.len(), |limit| limit.min(rest.len()))]
    }

    fn list(&self, members: &[(f64, Bytes)]) -> SimReply {
        let mut out = Vec::new();
        for (score, member) in members {
            out.push(SimReply::Text(member.clone()));
            if self.with_scores {
                out.push(score_text(*score));
            }
        }
        SimReply::List(out)
    }
}

/// Supports a range of indexes only.
pub(super) fn zrange(store: &mut Store, words: &Words<'_>) -> Answer {
    let page = Page::parse(words)?;
    if page.limit != -1 {
        return Err(LIMIT_OF_INDEXES.into());
    }
    let (start, stop) = (words.int(2)?, words.int(3)?);
    let all = store.zset(words.at(1))?.map_or(&[][..], |zset| zset.all());
    Ok(page.list(&all[window(start, stop, all.len())]))
}

pub(super) fn zrangebyscore(store: &mut Store, words: &Words<'_>) -> Answer {
    let page = Page::parse(words)?;
    let (min, max) = bounds(words.at(2), words.at(3))?;
    let found = store.zset(words.at(1))?.map_or(&[][..], |zset| zset.within(min, max));
    Ok(page.list(page.cut(found)))
}

//! Sorted sets.

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

pub(super) fn zadd(store: &mut Store, words: &Words<'_>) -> Answer {
    let (mut nx, mut xx, mut gt, mut lt, mut ch, mut incr) = (false, false, false, false, false, false);
    let mut first = 2;
    while first < words.len() {
        match words.at(first).to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            b"ch" => ch = true,
            b"incr" => incr = true,
            _ => break,
        }
        first += 1;
    }
    let pairs = words.len() - first;
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    if nx && xx {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    if u8::from(gt) + u8::from(lt) + u8::from(nx) > 1 {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if incr && pairs > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    let scores = (first..words.len()).step_by(2).map(|i| words.float(i)).collect::<Result<Vec<f64>, _>>()?;
    if xx && store.zset(words.at(1))?.is_none() {
        return Ok(if incr { SimReply::Nil } else { count(0) });
    }
    let zset = made(store, words.at(1))?;
    let (mut added, mut changed) = (0, 0);
    let mut last = None;
    for (at, score) in (first + 1..words.len()).step_by(2).zip(scores) {
        let member = words.at(at);
        match zset.score(member) {
            None if xx => {}
            None => {
                zset.set(member, score);
                added += 1;
                last = Some(score);
            }
            Some(_) if nx => {}
            Some(old) => {
                let new = if incr { old + score } else { score };
                if new.is_nan() {
                    return Err("ERR resulting score is not a number (NaN)".into());
                }
                if (gt && new <= old) || (lt && new >= old) {
                    continue;
                }
                last = Some(new);
                if new.to_bits() != old.to_bits() {
                    zset.set(member, new);
                    changed += 1;
                }
            }
        }
    }
    store.tidy(words.at(1));
    if incr {
        return Ok(last.map_or(SimReply::Nil, score_text));
    }
    Ok(count(if ch { added + changed } else { added }))
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

pub(super) fn zrank(store: &mut Store, words: &Words<'_>) -> Answer {
    let rank = store.zset(words.at(1))?.and_then(|zset| zset.rank(words.at(2)));
    Ok(rank.map_or(SimReply::Nil, count))
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

pub(super) fn zremrangebyscore(store: &mut Store, words: &Words<'_>) -> Answer {
    let (min, max) = bounds(words.at(2), words.at(3))?;
    let Some(zset) = store.zset(words.at(1))? else { return Ok(count(0)) };
    let gone: Vec<Bytes> = zset.within(min, max).iter().map(|(_, member)| member.clone()).collect();
    let removed = gone.iter().filter(|member| zset.remove(member)).count();
    store.tidy(words.at(1));
    Ok(count(removed))
}

#[derive(Default)]
struct Range {
    by_score: bool,
    reverse: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

impl Range {
    fn parse(words: &Words<'_>, by_score: bool) -> Result<Self, Failure> {
        let mut range = Self { by_score, ..Self::default() };
        let mut i = 4;
        while i < words.len() {
            if words.is(i, "withscores") {
                range.with_scores = true;
            } else if words.is(i, "limit") && i + 2 < words.len() {
                range.limit = Some((words.int(i + 1)?, words.int(i + 2)?));
                i += 2;
            } else if words.is(i, "rev") && !by_score {
                range.reverse = true;
            } else if words.is(i, "byscore") && !by_score {
                range.by_score = true;
            } else {
                return Err(SYNTAX.into());
            }
            i += 1;
        }
        if range.limit.is_some() && !range.by_score {
            return Err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX".into());
        }
        Ok(range)
    }

    fn run(&self, store: &mut Store, words: &Words<'_>) -> Answer {
        let mut picked: Vec<(f64, Bytes)> = if self.by_score {
            let (low, high) = if self.reverse { (3, 2) } else { (2, 3) };
            let (min, max) = bounds(words.at(low), words.at(high))?;
            let mut picked = store.zset(words.at(1))?.map_or_else(Vec::new, |zset| zset.within(min, max).to_vec());
            if self.reverse {
                picked.reverse();
            }
            picked
        } else {
            let (start, stop) = (words.int(2)?, words.int(3)?);
            let mut all = store.zset(words.at(1))?.map_or_else(Vec::new, |zset| zset.all().to_vec());
            if self.reverse {
                all.reverse();
            }
            all[window(start, stop, all.len())].to_vec()
        };
        if let Some((offset, most)) = self.limit {
            let skip = usize::try_from(offset).unwrap_or(usize::MAX).min(picked.len());
            picked.drain(..skip);
            picked.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        }
        let mut out = Vec::with_capacity(picked.len());
        for (score, member) in picked {
            out.push(SimReply::Text(member));
            if self.with_scores {
                out.push(score_text(score));
            }
        }
        Ok(SimReply::List(out))
    }
}

pub(super) fn zrange(store: &mut Store, words: &Words<'_>) -> Answer {
    Range::parse(words, false)?.run(store, words)
}

pub(super) fn zrangebyscore(store: &mut Store, words: &Words<'_>) -> Answer {
    Range::parse(words, true)?.run(store, words)
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn ranges_by_index_and_by_score() {
        let mut store = Store::default();
        run(&mut store, &["zadd", "z", "3", "c", "1", "a", "2", "b"]);
        let text =
            |list: &[&str]| SimReply::List(list.iter().map(|t| SimReply::Text((*t).to_owned().into())).collect());
        assert_eq!(run(&mut store, &["zrange", "z", "0", "0", "withscores"]), text(&["a", "1"]));
        assert_eq!(run(&mut store, &["zrange", "z", "0", "0", "rev"]), text(&["c"]));
        assert_eq!(run(&mut store, &["zrangebyscore", "z", "(1", "+inf", "limit", "0", "1"]), text(&["b"]));
        assert_eq!(run(&mut store, &["zcount", "z", "-inf", "2"]), SimReply::Int(2));
        assert_eq!(run(&mut store, &["zincrby", "z", "0.5", "a"]), SimReply::Text("1.5".into()));
        assert_eq!(run(&mut store, &["zremrangebyscore", "z", "0", "9"]), SimReply::Int(3));
        assert_eq!(run(&mut store, &["exists", "z"]), SimReply::Int(0));
    }
}

//! Hashes.

use bytes::Bytes;

use super::{Answer, OVERFLOW, SYNTAX, Words, count, flag, wrong_arity};
use crate::number;
use crate::random::Random;
use crate::reply::SimReply;
use crate::store::{Failure, Store, Value, WRONG_TYPE};

type Fields = Vec<(Bytes, Bytes)>;

fn made<'s>(store: &'s mut Store, key: &[u8]) -> Result<&'s mut Fields, Failure> {
    match store.or_new(key, || Value::Hash(Vec::new())) {
        Value::Hash(hash) => Ok(hash),
        _ => Err(WRONG_TYPE.into()),
    }
}

fn find<'h>(hash: &'h mut Fields, field: &[u8]) -> Option<&'h mut Bytes> {
    hash.iter_mut().find(|(name, _)| name == field).map(|(_, value)| value)
}

pub(super) fn hset(store: &mut Store, words: &Words<'_>) -> Answer {
    if !words.len().is_multiple_of(2) {
        return Err(wrong_arity("hset"));
    }
    let hash = made(store, words.at(1))?;
    let mut added = 0;
    for i in (2..words.len()).step_by(2) {
        let value = words.bytes_at(i + 1);
        if let Some(slot) = find(hash, words.at(i)) {
            *slot = value;
        } else {
            hash.push((words.bytes_at(i), value));
            added += 1;
        }
    }
    Ok(count(added))
}

pub(super) fn hget(store: &mut Store, words: &Words<'_>) -> Answer {
    let value = store.hash(words.at(1))?.and_then(|hash| find(hash, words.at(2)));
    Ok(value.map_or(SimReply::Nil, |value| SimReply::Text(value.clone())))
}

pub(super) fn hmget(store: &mut Store, words: &Words<'_>) -> Answer {
    let mut hash = store.hash(words.at(1))?;
    let mut value = |field| {
        let found = hash.as_mut().and_then(|hash| find(hash, field));
        found.map_or(SimReply::Nil, |value| SimReply::Text(value.clone()))
    };
    Ok(SimReply::List(words.from(2).map(&mut value).collect()))
}

pub(super) fn hdel(store: &mut Store, words: &Words<'_>) -> Answer {
    let Some(hash) = store.hash(words.at(1))? else { return Ok(count(0)) };
    let mut removed = 0;
    for field in words.from(2) {
        if let Some(at) = hash.iter().position(|(name, _)| name == field) {
            hash.remove(at);
            removed += 1;
        }
    }
    store.tidy(words.at(1));
    Ok(count(removed))
}

pub(super) fn hexists(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(flag(store.hash(words.at(1))?.is_some_and(|hash| find(hash, words.at(2)).is_some())))
}

pub(super) fn hincrby(store: &mut Store, words: &Words<'_>) -> Answer {
    let step = words.int(3)?;
    let hash = made(store, words.at(1))?;
    let Some(value) = find(hash, words.at(2)) else {
        hash.push((words.bytes_at(2), number::int_text(step)));
        return Ok(SimReply::Int(step));
    };
    let old = number::int(value).ok_or("ERR hash value is not an integer")?;
    let sum = old.checked_add(step).ok_or(OVERFLOW)?;
    *value = number::int_text(sum);
    Ok(SimReply::Int(sum))
}

pub(super) fn hkeys(store: &mut Store, words: &Words<'_>) -> Answer {
    let hash = store.hash(words.at(1))?;
    Ok(SimReply::List(hash.into_iter().flatten().map(|(name, _)| SimReply::Text(name.clone())).collect()))
}

pub(super) fn hlen(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(count(store.hash(words.at(1))?.map_or(0, |hash| hash.len())))
}

pub(super) fn hgetall(store: &mut Store, words: &Words<'_>) -> Answer {
    let mut all = Vec::new();
    for (name, value) in store.hash(words.at(1))?.into_iter().flatten() {
        all.push(SimReply::Text(name.clone()));
        all.push(SimReply::Text(value.clone()));
    }
    Ok(SimReply::List(all))
}

pub(super) fn hrandfield(store: &mut Store, words: &Words<'_>) -> Answer {
    let many = if words.len() > 2 { Some(words.int(2)?) } else { None };
    let values = words.len() > 3;
    if words.len() > 4 || values && !words.is(3, "withvalues") {
        return Err(SYNTAX.into());
    }
    let mut random = std::mem::take(&mut store.random);
    let hash = store.hash(words.at(1));
    let drawn = hash.map(|hash| match (hash, many) {
        (None, None) => SimReply::Nil,
        (None, Some(_)) => SimReply::List(Vec::new()),
        (Some(hash), None) => SimReply::Text(hash[random.below(hash.len())].0.clone()),
        (Some(hash), Some(many)) => {
            let told = |at: &usize| {
                let (name, value) = &hash[*at];
                std::iter::once(name).chain(values.then_some(value)).map(|word| SimReply::Text(word.clone()))
            };
            SimReply::List(draw(&mut random, hash.len(), many).iter().flat_map(told).collect())
        }
    });
    store.random = random;
    drawn
}

/// Returns the positions of random fields among `all`. If `many` is negative, fields may repeat; otherwise each field
/// is drawn at most once.
fn draw(random: &mut Random, all: usize, many: i64) -> Vec<usize> {
    let asked = usize::try_from(many.unsigned_abs()).unwrap_or(usize::MAX);
    if many < 0 {
        return (0..asked).map(|_| random.below(all)).collect();
    }
    let mut places: Vec<usize> = (0..all).collect();
    if asked < all {
        for at in 0..asked {
            places.swap(at, at + random.below(all - at));
        }
        places.truncate(asked);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn hrandfield_draws_distinct_fields_or_repeats_if_negative() {
        let mut store = Store::default();
        run(&mut store, &["hset", "h", "a", "1", "b", "2", "c", "3"]);
        let mut drawn = |words: &[&str]| match run(&mut store, words) {
            SimReply::List(mut items) => {
                items.sort_by_key(|item| format!("{item:?}"));
                items.into_iter().map(|item| format!("{item:?}")).collect::<Vec<_>>()
            }
            odd => vec![format!("{odd:?}")],
        };
        let two = drawn(&["hrandfield", "h", "2"]);
        assert!(two.len() == 2 && two[0] != two[1], "{two:?}");
        assert_eq!(drawn(&["hrandfield", "h", "9", "withvalues"]).len(), 6);
        assert_eq!(drawn(&["hrandfield", "h", "-9"]).len(), 9);
        assert_eq!(drawn(&["hrandfield", "h"]).len(), 1);
        assert_eq!(drawn(&["hrandfield", "none", "2"]).len(), 0);
        assert_eq!(run(&mut store, &["hrandfield", "none"]), SimReply::Nil);
        assert_eq!(run(&mut store, &["hrandfield", "h", "2", "x"]).error(), Some(SYNTAX));
        let met: std::collections::BTreeSet<_> =
            (0..100).map(|_| format!("{:?}", run(&mut store, &["hrandfield", "h"]))).collect();
        assert_eq!(met.len(), 3);
    }
}

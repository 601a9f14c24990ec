//! Lists.

use bytes::Bytes;

use super::{Answer, Words, count, window};
use crate::reply::SimReply;
use crate::store::{Failure, Store, Value, WRONG_TYPE};

fn made<'s>(store: &'s mut Store, key: &[u8]) -> Result<&'s mut Vec<Bytes>, Failure> {
    match store.or_new(key, || Value::List(Vec::new())) {
        Value::List(list) => Ok(list),
        _ => Err(WRONG_TYPE.into()),
    }
}

pub(super) fn rpush(store: &mut Store, words: &Words<'_>) -> Answer {
    let list = made(store, words.at(1))?;
    list.extend((2..words.len()).map(|i| words.bytes_at(i)));
    Ok(count(list.len()))
}

pub(super) fn lpush(store: &mut Store, words: &Words<'_>) -> Answer {
    let list = made(store, words.at(1))?;
    for i in 2..words.len() {
        list.insert(0, words.bytes_at(i));
    }
    Ok(count(list.len()))
}

pub(super) fn lpop(store: &mut Store, words: &Words<'_>) -> Answer {
    // A stored list is never empty.
    let Some(list) = store.list(words.at(1))? else { return Ok(SimReply::Nil) };
    let first = list.remove(0);
    store.tidy(words.at(1));
    Ok(SimReply::Text(first))
}

pub(super) fn llen(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(count(store.list(words.at(1))?.map_or(0, |list| list.len())))
}

pub(super) fn lset(store: &mut Store, words: &Words<'_>) -> Answer {
    let Some(list) = store.list(words.at(1))? else { return Err("ERR no such key".into()) };
    let (at, item) = (words.int(2)?, words.bytes_at(3));
    let at = place(at, list.len()).filter(|at| *at < list.len()).ok_or("ERR index out of range")?;
    list[at] = item;
    Ok(SimReply::Status("OK".into()))
}

/// Converts an index that may count from the end.
fn place(at: i64, len: usize) -> Option<usize> {
    if at < 0 {
        len.checked_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX))
    } else {
        usize::try_from(at).ok()
    }
}

pub(super) fn lindex(store: &mut Store, words: &Words<'_>) -> Answer {
    let Some(list) = store.list(words.at(1))? else { return Ok(SimReply::Nil) };
    let at = place(words.int(2)?, list.len());
    Ok(at.and_then(|at| list.get(at)).map_or(SimReply::Nil, |item| SimReply::Text(item.clone())))
}

pub(super) fn lrange(store: &mut Store, words: &Words<'_>) -> Answer {
    let (start, stop) = (words.int(2)?, words.int(3)?);
    let Some(list) = store.list(words.at(1))? else { return Ok(SimReply::List(Vec::new())) };
    let items = &list[window(start, stop, list.len())];
    Ok(SimReply::List(items.iter().cloned().map(SimReply::Text).collect()))
}

pub(super) fn lrem(store: &mut Store, words: &Words<'_>) -> Answer {
    let n = words.int(2)?;
    let Some(list) = store.list(words.at(1))? else { return Ok(count(0)) };
    let most = if n == 0 { usize::MAX } else { usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX) };
    let mut hits: Vec<usize> = (0..list.len()).filter(|i| list[*i] == words.at(3)).collect();
    if n < 0 {
        hits.drain(..hits.len().saturating_sub(most));
    } else {
        hits.truncate(most);
    }
    for at in hits.iter().rev() {
        list.remove(*at);
    }
    store.tidy(words.at(1));
    Ok(count(hits.len()))
}

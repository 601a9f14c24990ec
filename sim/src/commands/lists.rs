//! Lists.

use super::{Answer, Words, count, window};
use crate::number;
use crate::reply::SimReply;
use crate::store::{Store, Value, WRONG_TYPE};

pub(super) fn rpush(store: &mut Store, words: &Words<'_>) -> Answer {
    push(store, words, false)
}

pub(super) fn lpush(store: &mut Store, words: &Words<'_>) -> Answer {
    push(store, words, true)
}

fn push(store: &mut Store, words: &Words<'_>, front: bool) -> Answer {
    let Value::List(list) = store.or_new(words.at(1), || Value::List(Vec::new())) else {
        return Err(WRONG_TYPE.into());
    };
    for i in 2..words.len() {
        let at = if front { 0 } else { list.len() };
        list.insert(at, words.bytes_at(i));
    }
    Ok(count(list.len()))
}

pub(super) fn lpop(store: &mut Store, words: &Words<'_>) -> Answer {
    pop(store, words, "lpop", true)
}

pub(super) fn rpop(store: &mut Store, words: &Words<'_>) -> Answer {
    pop(store, words, "rpop", false)
}

fn pop(store: &mut Store, words: &Words<'_>, name: &str, front: bool) -> Answer {
    if words.len() > 3 {
        return Err(super::wrong_arity(name));
    }
    let many = match words.len() {
        2 => None,
        _ => {
            let n = number::int(words.at(2)).and_then(|n| usize::try_from(n).ok());
            Some(n.ok_or("ERR value is out of range, must be positive")?)
        }
    };
    let Some(list) = store.list(words.at(1))? else { return Ok(SimReply::Nil) };
    let take = many.unwrap_or(1).min(list.len());
    let mut taken: Vec<_> =
        if front { list.drain(..take).collect() } else { list.drain(list.len() - take..).collect() };
    if !front {
        taken.reverse();
    }
    store.tidy(words.at(1));
    let mut taken = taken.into_iter().map(SimReply::Text);
    Ok(match many {
        None => taken.next().unwrap_or(SimReply::Nil),
        Some(_) => SimReply::List(taken.collect()),
    })
}

pub(super) fn lindex(store: &mut Store, words: &Words<'_>) -> Answer {
    let Some(list) = store.list(words.at(1))? else { return Ok(SimReply::Nil) };
    let at = words.int(2)?;
    let at = if at < 0 {
        list.len().checked_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX))
    } else {
        usize::try_from(at).ok()
    };
    Ok(at.and_then(|at| list.get(at)).map_or(SimReply::Nil, |item| SimReply::Text(item.clone())))
}

pub(super) fn lrange(store: &mut Store, words: &Words<'_>) -> Answer {
    let (start, stop) = (words.int(2)?, words.int(3)?);
    let Some(list) = store.list(words.at(1))? else { return Ok(SimReply::List(Vec::new())) };
    let items = &list[window(start, stop, list.len())];
    Ok(SimReply::List(items.iter().cloned().map(SimReply::Text).collect()))
}

pub(super) fn llen(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(count(store.list(words.at(1))?.map_or(0, |list| list.len())))
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

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn lrem_counts_from_the_side_its_sign_says() {
        let mut store = Store::default();
        run(&mut store, &["rpush", "l", "a", "b", "a", "c", "a"]);
        assert_eq!(run(&mut store, &["lrem", "l", "-1", "a"]), SimReply::Int(1));
        assert_eq!(run(&mut store, &["lindex", "l", "-1"]), SimReply::Text("c".into()));
        assert_eq!(run(&mut store, &["lrem", "l", "1", "a"]), SimReply::Int(1));
        assert_eq!(run(&mut store, &["lindex", "l", "0"]), SimReply::Text("b".into()));
        assert_eq!(run(&mut store, &["lindex", "l", "-9"]), SimReply::Nil);
    }
}

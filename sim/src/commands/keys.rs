//! Keys of any type, expiry, publishing, the clock.

use bytes::Bytes;

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

pub(super) fn pexpire(store: &mut Store, words: &Words<'_>) -> Answer {
    let base = store.now_ms();
    expire_at(store, words, "pexpire", base, 1)
}

pub(super) fn expire(store: &mut Store, words: &Words<'_>) -> Answer {
    let base = store.now_ms();
    expire_at(store, words, "expire", base, 1000)
}

pub(super) fn pexpireat(store: &mut Store, words: &Words<'_>) -> Answer {
    expire_at(store, words, "pexpireat", 0, 1)
}

fn expire_at(store: &mut Store, words: &Words<'_>, name: &str, base: i64, unit: i64) -> Answer {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for i in 3..words.len() {
        match words.at(i).to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            other => return Err(format!("ERR Unsupported option {}", String::from_utf8_lossy(other))),
        }
    }
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let when = deadline(words.at(2), name, base, unit)?;
    let now = store.now_ms();
    let Some(entry) = store.entry(words.at(1)) else { return Ok(flag(false)) };
    let refused = match entry.until {
        Some(current) => nx || (gt && when <= current) || (lt && when >= current),
        // No end counts as later than any.
        None => xx || gt,
    };
    if refused {
        return Ok(flag(false));
    }
    if when <= now {
        store.remove(words.at(1));
    } else {
        entry.until = Some(when);
    }
    Ok(flag(true))
}

/// When something ends, as Redis computes and checks it.
pub(super) fn deadline(word: &[u8], name: &str, base: i64, unit: i64) -> Result<i64, Failure> {
    let span = number::int(word).ok_or(NOT_AN_INTEGER)?;
    let invalid = || format!("ERR invalid expire time in '{name}' command");
    span.checked_mul(unit).and_then(|span| span.checked_add(base)).ok_or_else(invalid)
}

pub(super) fn pttl(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(SimReply::Int(left(store, words.at(1))))
}

pub(super) fn ttl(store: &mut Store, words: &Words<'_>) -> Answer {
    let ms = left(store, words.at(1));
    Ok(SimReply::Int(if ms < 0 { ms } else { (ms + 500) / 1000 }))
}

fn left(store: &mut Store, key: &[u8]) -> i64 {
    let now = store.now_ms();
    store.entry(key).map_or(-2, |entry| entry.until.map_or(-1, |until| until - now))
}

pub(super) fn persist(store: &mut Store, words: &Words<'_>) -> Answer {
    Ok(flag(store.entry(words.at(1)).is_some_and(|entry| entry.until.take().is_some())))
}

pub(super) fn kind(store: &mut Store, words: &Words<'_>) -> Answer {
    let kind = store.entry(words.at(1)).map_or("none", |entry| entry.value.kind());
    Ok(SimReply::Status(kind.into()))
}

pub(super) fn keys(store: &mut Store, words: &Words<'_>) -> Answer {
    let matching = store.keys().into_iter().filter(|key| glob(words.at(1), key));
    Ok(SimReply::List(matching.map(SimReply::Text).collect()))
}

/// Everything at once: the cursor is always 0 afterwards.
pub(super) fn scan(store: &mut Store, words: &Words<'_>) -> Answer {
    number::int(words.at(1)).ok_or("ERR invalid cursor")?;
    let mut pattern: &[u8] = b"*";
    let mut kind = None;
    let mut i = 2;
    while i < words.len() {
        if i + 1 == words.len() {
            return Err(SYNTAX.into());
        }
        if words.is(i, "match") {
            pattern = words.at(i + 1);
        } else if words.is(i, "type") {
            kind = Some(words.at(i + 1).to_ascii_lowercase());
        } else if words.is(i, "count") {
            words.int(i + 1)?;
        } else {
            return Err(SYNTAX.into());
        }
        i += 2;
    }
    let mut found = Vec::new();
    for key in store.keys() {
        let same_kind = match (&kind, store.entry(&key)) {
            (Some(kind), Some(entry)) => entry.value.kind().as_bytes() == kind.as_slice(),
            _ => true,
        };
        if same_kind && glob(pattern, &key) {
            found.push(SimReply::Text(key));
        }
    }
    Ok(SimReply::List(vec![SimReply::Text(Bytes::from_static(b"0")), SimReply::List(found)]))
}

pub(super) fn dbsize(store: &mut Store, _: &Words<'_>) -> Answer {
    Ok(count(store.keys().len()))
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

pub(super) fn ping(_: &mut Store, words: &Words<'_>) -> Answer {
    match words.len() {
        1 => Ok(SimReply::Status("PONG".into())),
        2 => Ok(SimReply::Text(words.bytes_at(1))),
        _ => Err(super::wrong_arity("ping")),
    }
}

/// Redis' patterns: `*`, `?`, `[a-c]`, `[^x]`, `\`.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skip| glob(rest, &text[skip..])),
        [b'?', rest @ ..] => !text.is_empty() && glob(rest, &text[1..]),
        [b'[', rest @ ..] => {
            let Some(first) = text.first() else { return false };
            let (negated, mut set) = match rest {
                [b'^', set @ ..] => (true, set),
                set => (false, set),
            };
            let mut hit = false;
            loop {
                set = match set {
                    [] => break,
                    [b']', after @ ..] => {
                        set = after;
                        break;
                    }
                    [b'\\', c, after @ ..] => {
                        hit |= c == first;
                        after
                    }
                    [low, b'-', high, after @ ..] => {
                        hit |= (low.min(high)..=low.max(high)).contains(&first);
                        after
                    }
                    [c, after @ ..] => {
                        hit |= c == first;
                        after
                    }
                };
            }
            hit != negated && glob(set, &text[1..])
        }
        [b'\\', c, rest @ ..] | [c, rest @ ..] => text.first() == Some(c) && glob(rest, &text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn pttl_can_be_zero_and_a_lease_of_nothing_deletes() {
        let mut store = Store::default();
        store.set_clock(1_000_000_000);
        run(&mut store, &["set", "k", "v"]);
        assert_eq!(run(&mut store, &["pexpire", "k", "10"]), SimReply::Int(1));
        store.set_clock(1_000_010_999);
        assert_eq!(run(&mut store, &["pttl", "k"]), SimReply::Int(0));
        store.set_clock(1_000_011_000);
        assert_eq!(run(&mut store, &["pttl", "k"]), SimReply::Int(-2));
        run(&mut store, &["set", "k", "v"]);
        assert_eq!(run(&mut store, &["pttl", "k"]), SimReply::Int(-1));
        assert_eq!(run(&mut store, &["pexpire", "k", "0"]), SimReply::Int(1));
        assert_eq!(run(&mut store, &["exists", "k"]), SimReply::Int(0));
    }

    #[test]
    fn absurd_leases_are_refused_in_redis_words() {
        let mut store = Store::default();
        store.set_clock(1_000_000_000);
        let said = |reply: SimReply| reply.error().map(str::to_owned).unwrap();
        let refused = run(&mut store, &["pexpire", "k", "9223372036854775807"]);
        assert_eq!(said(refused), "ERR invalid expire time in 'pexpire' command");
        assert_eq!(said(run(&mut store, &["expire", "k", "x"])), NOT_AN_INTEGER);
        assert_eq!(said(run(&mut store, &["expire", "k", "1", "foo"])), "ERR Unsupported option foo");
    }

    #[test]
    fn patterns() {
        assert!(glob(b"a*c", b"abbc"));
        assert!(!glob(b"a*c", b"abb"));
        assert!(glob(b"h[ae]llo", b"hallo"));
        assert!(!glob(b"h[^a]llo", b"hallo"));
        assert!(glob(b"\\*", b"*"));
        assert!(!glob(b"\\*", b"x"));
    }
}

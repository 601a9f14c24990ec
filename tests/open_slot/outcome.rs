//! Judges whether a call was all or nothing.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use super::slot::{Kept, Said, Seen};

/// Leases that differ by more ms count as different. All different leases in the cases do.
const APART: i64 = 2_400;
/// Maximum difference of two readings of the same time, in ms.
const READ_TWICE: i64 = 1_000;
/// Larger numbers are times, smaller numbers are durations.
const MOMENT: f64 = 1e12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every step failed, and nothing was written.
    Refused,
    /// Some steps failed without any effect, and the other steps had their normal effect.
    InPart,
    Whole,
}

pub fn failed(said: &Said, steps: usize) -> BTreeSet<usize> {
    match said {
        Err(_) => (0..steps).collect(),
        Ok(answers) => (0..steps).filter(|step| answers[*step].is_err()).collect(),
    }
}

/// Returns a difference between both states, if any.
pub fn changed(before: &[Seen; 2], after: &[Seen; 2]) -> Option<String> {
    for (before, after) in before.iter().zip(after) {
        let names: BTreeSet<&String> = before.keys.keys().chain(after.keys.keys()).collect();
        for name in names {
            let is_kept = match (before.keys.get(name), after.keys.get(name)) {
                (Some(was), Some(is)) => was.value == is.value && ends_at(was.end, is.end, READ_TWICE),
                _ => false,
            };
            if !is_kept {
                return Some(format!("{name}: {:?} was {:?}", after.keys.get(name), before.keys.get(name)));
            }
        }
    }
    None
}

fn ends_at(one: Option<i64>, other: Option<i64>, apart: i64) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => (one - other).abs() <= apart,
        _ => false,
    }
}

/// Returns a difference between the union of both sides and a single server, if any.
fn differs(expected: &Seen, [here, there]: &[Seen; 2]) -> Option<String> {
    if let Some(twice) = here.keys.keys().find(|key| there.keys.contains_key(*key)) {
        return Some(format!("{twice} is at both sides"));
    }
    let both: BTreeMap<&String, (&Kept, i64)> =
        [here, there].iter().flat_map(|seen| seen.keys.iter().map(|(key, kept)| (key, (kept, seen.at)))).collect();
    let names: BTreeSet<&String> = both.keys().copied().chain(expected.keys.keys()).collect();
    names.into_iter().find_map(|name| {
        let (is, should) = (both.get(name), expected.keys.get(name));
        let is_same = match (is, should) {
            (Some((is, at)), Some(should)) => same(is, *at, should, expected.at),
            _ => false,
        };
        (!is_same).then(|| format!("{name}: {is:?}, and elsewhere {should:?}"))
    })
}

fn same(is: &Kept, at: i64, should: &Kept, then: i64) -> bool {
    let left = |end: Option<i64>, at: i64| end.map(|end| end - at);
    is.value.len() == should.value.len()
        && is.value.iter().zip(&should.value).all(|(is, should)| same_text(is, at, should, then))
        && ends_at(left(is.end, at), left(should.end, then), APART)
}

fn same_text(is: &str, at: i64, should: &str, then: i64) -> bool {
    let moment = |text: &str| text.parse::<f64>().ok().filter(|number| *number > MOMENT);
    match (moment(is), moment(should)) {
        (Some(is), Some(should)) => ((is - at as f64) - (should - then as f64)).abs() <= APART as f64,
        _ => is == should,
    }
}

/// Judges a call by the effect that its successful steps have on a single server.
///
/// # Errors
/// A partial or different effect.
pub fn judge(said: &Said, before: &[Seen; 2], after: &[Seen; 2], elsewhere: &(Said, Seen)) -> Result<Outcome, String> {
    let (should, seen) = elsewhere;
    let answers = match said {
        Ok(answers) if answers.iter().any(Result::is_ok) => answers,
        _ => return changed(before, after).map_or(Ok(Outcome::Refused), Err),
    };
    let should = should.as_ref().map_err(|error| format!("elsewhere it fails: {error}"))?;
    let is = answers.iter().filter_map(|answer| answer.as_ref().ok());
    for (is, should) in is.zip(should) {
        let should = should.as_ref().map_err(|error| format!("elsewhere it fails: {error}"))?;
        if !answers_alike(is, after[0].at, should, seen.at) {
            return Err(format!("elsewhere it is answered {should:?}"));
        }
    }
    match differs(seen, after) {
        Some(why) => Err(why),
        None if answers.iter().any(Result::is_err) => Ok(Outcome::InPart),
        None => Ok(Outcome::Whole),
    }
}

/// Returns true if two servers gave the same answer, one at time `at` and one at time `then`.
fn answers_alike(is: &Value, at: i64, should: &Value, then: i64) -> bool {
    match (is, should) {
        (Value::Int(is), Value::Int(should)) => {
            let is_moment = (*is as f64) > MOMENT && (*should as f64) > MOMENT;
            let (is, should) = if is_moment { (is - at, should - then) } else { (*is, *should) };
            is == should || (is_moment || is > 100 && should > 100) && (is - should).abs() <= APART
        }
        (Value::BulkString(is), Value::BulkString(should)) => {
            same_text(&String::from_utf8_lossy(is), at, &String::from_utf8_lossy(should), then)
        }
        (Value::Array(is), Value::Array(should)) => {
            is.len() == should.len() && is.iter().zip(should).all(|(is, should)| answers_alike(is, at, should, then))
        }
        _ => is == should,
    }
}

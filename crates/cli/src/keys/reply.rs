//! Reads replies of raw commands.

use bytes::Bytes;
use fred::types::Value;

/// The text of a reply, `None` for a missing key or another type.
pub fn bytes(value: &Value) -> Option<Bytes> {
    value.as_bytes().map(Bytes::copy_from_slice)
}

/// As [`bytes`], with a replacement for bytes that are not UTF-8.
pub fn text(value: &Value) -> Option<String> {
    value.as_bytes().map(|text| String::from_utf8_lossy(text).into_owned())
}

/// A whole number, also if the server sends it as text.
pub fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        other => std::str::from_utf8(other.as_bytes()?).ok()?.parse().ok(),
    }
}

/// The elements of a list; empty for any other reply.
pub fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        _ => &[],
    }
}

/// Element `n` of a list; `Null` if it does not exist.
pub fn nth(value: &Value, n: usize) -> &Value {
    list(value).get(n).unwrap_or(&Value::Null)
}

/// The fields and values of a hash.
pub fn pairs(value: &Value) -> Vec<(String, String)> {
    let pair = |pair: &[Value]| Some((text(pair.first()?)?, text(pair.get(1)?)?));
    list(value).chunks(2).filter_map(pair).collect()
}

/// The members of a sorted set with their scores.
pub fn scores(value: &Value) -> Vec<(Bytes, f64)> {
    let pair = |pair: &[Value]| Some((bytes(pair.first()?)?, text(pair.get(1)?)?.parse::<f64>().ok()?));
    list(value).chunks(2).filter_map(pair).collect()
}

/// The server's time in ms, from the reply of `TIME`.
pub fn time(value: &Value) -> Option<i64> {
    Some(int(nth(value, 0))? * 1000 + int(nth(value, 1))? / 1000)
}

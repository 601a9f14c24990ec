//! Numbers as Redis and Lua 5.1 read and write them.

use std::fmt::Write as _;

use bytes::Bytes;

/// Parses an integer like Redis' `string2ll`: the only sign is `-`, and blanks and leading zeros are refused.
pub(super) fn int(word: &[u8]) -> Option<i64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let plain = match digits {
        [] => false,
        [b'0'] => digits.len() == word.len(),
        [first, ..] => *first != b'0' && digits.iter().all(u8::is_ascii_digit),
    };
    if !plain {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Parses any text that `strtod` accepts, except NaN.
pub(super) fn float(word: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(word).ok()?;
    let value: f64 = text.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

pub(super) fn int_text(value: i64) -> Bytes {
    // Most numbers are small counts, and need no allocation.
    const DIGITS: &[u8; 10] = b"0123456789";
    match usize::try_from(value) {
        Ok(digit @ 0..10) => Bytes::from_static(&DIGITS[digit..=digit]),
        _ => Bytes::from(value.to_string()),
    }
}

/// Writes a number like C's `%.17g`.
pub(super) fn float_text(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
        return;
    }
    let mut text = String::new();
    // Writing to a String cannot fail.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number below 10^17 is one of i64")]
    if value.fract() == 0.0 && value.abs() < 1e17 && !(value == 0.0 && value.is_sign_negative()) {
        let _ = write!(text, "{}", value as i64);
    } else {
        general(value, &mut text);
    }
    out.extend_from_slice(text.as_bytes());
}

fn general(value: f64, text: &mut String) {
    let scientific = format!("{value:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |number: &str| match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number.to_owned(),
    };
    if (-4..17).contains(&exponent) {
        let places = usize::try_from(16 - exponent).unwrap_or(0);
        text.push_str(&trim(&format!("{value:.places$}")));
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(text, "{}e{sign}{:02}", trim(digits), exponent.abs());
    }
}

/// Converts like a C compiler's `(long long)` on x86-64: rounds towards zero, and yields the least number if the
/// value does not fit.
#[expect(clippy::cast_possible_truncation, reason = "checked")]
pub(super) fn truncate(value: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&value) { value as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_parsed_as_strictly_as_in_redis() {
        assert_eq!(int(b"0"), Some(0));
        assert_eq!(int(b"-12"), Some(-12));
        assert_eq!(int(b"9223372036854775807"), Some(i64::MAX));
        for bad in [&b""[..], b"-", b"-0", b"01", b"+1", b" 1", b"1 ", b"1.0", b"9223372036854775808"] {
            assert_eq!(int(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn floats_are_written_like_percent_17_g() {
        let text = |value| {
            let mut out = Vec::new();
            float_text(value, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(3.0), "3");
        assert_eq!(text(-0.0), "-0");
        assert_eq!(text(1.1), "1.1000000000000001");
        assert_eq!(text(1e17), "1e+17");
        assert_eq!(text(1.5e-7), "1.4999999999999999e-07");
        assert_eq!(text(0.5), "0.5");
        assert_eq!(text(1_700_000_000_123.0), "1700000000123");
    }

    #[test]
    fn doubles_are_truncated_as_in_c() {
        assert_eq!(truncate(3.99), 3);
        assert_eq!(truncate(-3.99), -3);
        assert_eq!(truncate(f64::NAN), i64::MIN);
        assert_eq!(truncate(1e300), i64::MIN);
    }
}

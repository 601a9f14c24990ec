//! Scalars of YAML 1.1, as Redisson's YAML readers parse them.

use std::time::Duration;

use super::tree::{Kind, Node};

/// None if the value is null or missing.
pub(super) fn text(node: &Node) -> Result<Option<&str>, &'static str> {
    match &node.kind {
        Kind::Scalar { text, is_plain: true } if is_null(text) => Ok(None),
        Kind::Scalar { text, .. } => Ok(Some(text)),
        _ => Err("one value is expected here, not a list or a map"),
    }
}

pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Whole numbers, also in the forms `0x1F`, `017` (octal) and `10_000`.
pub(super) fn integer(node: &Node) -> Result<i64, &'static str> {
    const WANTED: &str = "a whole number is expected here";
    let text = text(node)?.ok_or(WANTED)?.replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (base, digits) = match digits {
        digits if digits.starts_with("0x") => (16, &digits[2..]),
        digits if digits.starts_with("0b") => (2, &digits[2..]),
        digits if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        digits => (10, digits),
    };
    if !digits.chars().all(|digit| digit.is_digit(base)) {
        return Err(WANTED);
    }
    i64::from_str_radix(digits, base).map(|number| sign * number).map_err(|_| WANTED)
}

pub(super) fn millis(node: &Node) -> Result<Duration, &'static str> {
    let number = integer(node)?;
    u64::try_from(number).map(Duration::from_millis).map_err(|_| "a number of milliseconds is expected here, 0 or more")
}

pub(super) fn truth(node: &Node) -> Result<bool, &'static str> {
    match text(node)?.unwrap_or_default().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err("true or false is expected here"),
    }
}

/// An ISO 8601 duration, as `java.time.Duration` writes it: `PT1.5S`, `PT2M`, `P1DT1H`.
pub(super) fn iso_duration(node: &Node) -> Result<Duration, &'static str> {
    const WANTED: &str = "a duration such as PT1.5S is expected here";
    let text = text(node)?.ok_or(WANTED)?.to_ascii_uppercase();
    let (days, time) = text.strip_prefix('P').ok_or(WANTED)?.split_once('T').unwrap_or((&text[1..], ""));
    let mut seconds = match days.strip_suffix('D') {
        Some(days) => 86_400.0 * days.parse::<u32>().map(f64::from).map_err(|_| WANTED)?,
        None if days.is_empty() && !time.is_empty() => 0.0,
        None => return Err(WANTED),
    };
    let mut rest = time;
    for (unit, length) in [('H', 3_600.0), ('M', 60.0), ('S', 1.0)] {
        let Some((number, behind)) = rest.split_once(unit) else { continue };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' && unit == 'S') {
            return Err(WANTED);
        }
        seconds += length * number.parse::<f64>().map_err(|_| WANTED)?;
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(WANTED);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| WANTED)
}

/// A map from text to text.
pub(super) fn texts(node: &Node) -> Result<Vec<(&str, &str)>, &'static str> {
    let Kind::Map(pairs) = &node.kind else { return Err("a map is expected here") };
    pairs
        .iter()
        .map(|pair| Ok((pair.key.as_str(), text(&pair.value)?.ok_or("a value is missing in this map")?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        super::super::tree::read(text).unwrap_or_else(|fault| panic!("{text}: {}", fault.what))
    }

    /// Redisson 4.7 reads all of these in the same way.
    #[test]
    fn numbers_and_truths_are_those_of_yaml_1_1() {
        for (text, number) in [
            ("3000", 3000),
            ("'500'", 500),
            ("0x10", 16),
            ("010", 8),
            ("10_000", 10_000),
            ("-5", -5),
            ("0", 0),
            ("+7", 7),
        ] {
            assert_eq!(integer(&node(text)), Ok(number), "{text}");
        }
        for text in
            ["abc", "2.7", "1e3", "null", "~", "''", "[1]", "{a: 1}", "99999999999999999999", "0x", "-", "--1", "0b2"]
        {
            assert!(integer(&node(text)).is_err(), "{text}");
        }
        for (text, is) in
            [("true", true), ("no", false), ("'no'", false), ("FALSE", false), ("On", true), ("off", false)]
        {
            assert_eq!(truth(&node(text)), Ok(is), "{text}");
        }
        assert!(["1", "null", "maybe", "[true]"].iter().all(|text| truth(&node(text)).is_err()));
        assert!(millis(&node("-1")).is_err());
    }

    #[test]
    fn durations_are_javas() {
        for (text, ms) in [
            ("PT1S", 1_000),
            ("PT1.5S", 1_500),
            ("PT0.25S", 250),
            ("PT2M", 120_000),
            ("P1DT1H1M1S", 90_061_000),
            ("pt1s", 1_000),
        ] {
            assert_eq!(iso_duration(&node(text)), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "P",
            "PT",
            "1S",
            "PT1",
            "PT1S1M",
            "PTS",
            "PT-1S",
            "PT1.5M",
            "PT..S",
            "PT99999999999999999999999999S",
            "P1Y",
            "null",
        ] {
            assert!(iso_duration(&node(text)).is_err(), "{text}");
        }
    }
}

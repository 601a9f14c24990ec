//! Scalars of YAML 1.1, as Redisson's YAML readers parse them.

use std::time::Duration;

use crate::tree::{Kind, Node};

impl Node {
    /// True if the value is null or missing, and has no tag.
    pub(crate) fn is_null(&self) -> bool {
        self.tag.is_none() && matches!(self.text(), Ok(None))
    }

    /// True if the value is null, or its tag is a class of this name in any package of Redisson.
    pub(crate) fn is_class(&self, name: &str) -> bool {
        let is_tag = |tag: &String| tag.rsplit('.').next() == Some(name) && tag.starts_with("org.redisson.");
        self.is_null() || self.tag.as_ref().is_some_and(is_tag)
    }

    /// The text of a scalar, or `None` if the value is null or missing.
    pub(crate) fn text(&self) -> Result<Option<&str>, &'static str> {
        match &self.kind {
            Kind::Scalar(text, true) if matches!(&**text, "" | "~" | "null" | "Null" | "NULL") => Ok(None),
            Kind::Scalar(text, _) => Ok(Some(text)),
            _ => Err("one value is expected here, not a list or a map"),
        }
    }

    /// Whole numbers, also in the forms `0x1F`, `017` (octal) and `10_000`.
    pub(crate) fn integer(&self) -> Result<i64, &'static str> {
        const WANTED: &str = "a whole number is expected here";
        let text = self.text()?.ok_or(WANTED)?.replace('_', "");
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(&text)),
        };
        let (base, digits) = match digits.as_bytes() {
            [b'0', b'x', ..] => (16, &digits[2..]),
            [b'0', b'b', ..] => (2, &digits[2..]),
            [b'0', _, ..] => (8, &digits[1..]),
            _ => (10, digits),
        };
        // `from_str_radix` alone would accept a second sign.
        let is_number = digits.chars().all(|digit| digit.is_digit(base));
        let number = i64::from_str_radix(digits, base).ok().filter(|_| is_number);
        number.map(|number| sign * number).ok_or(WANTED)
    }

    pub(crate) fn millis(&self) -> Result<Duration, &'static str> {
        let number = u64::try_from(self.integer()?);
        number.map(Duration::from_millis).map_err(|_| "a number of milliseconds is expected here, 0 or more")
    }

    pub(crate) fn truth(&self) -> Result<bool, &'static str> {
        match self.text()?.unwrap_or_default().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err("true or false is expected here"),
        }
    }

    /// An ISO 8601 duration, as `java.time.Duration` writes it: `PT1.5S`, `PT2M`, `P1DT1H`.
    pub(crate) fn iso_duration(&self) -> Result<Duration, &'static str> {
        const WANTED: &str = "a duration such as PT1.5S is expected here";
        let text = self.text()?.ok_or(WANTED)?.to_ascii_uppercase();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        crate::tree::tests::tree(text).unwrap()
    }

    /// Redisson 4.7 reads all of these in the same way.
    #[test]
    fn numbers_and_booleans_follow_yaml_1_1() {
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
            assert_eq!(node(text).integer(), Ok(number), "{text}");
        }
        for text in
            ["abc", "2.7", "1e3", "null", "~", "''", "[1]", "{a: 1}", "99999999999999999999", "0x", "-", "--1", "0b2"]
        {
            assert!(node(text).integer().is_err(), "{text}");
        }
        for (text, is) in
            [("true", true), ("no", false), ("'no'", false), ("FALSE", false), ("On", true), ("off", false)]
        {
            assert_eq!(node(text).truth(), Ok(is), "{text}");
        }
        assert!(["1", "null", "maybe", "[true]"].iter().all(|text| node(text).truth().is_err()));
        assert!(node("-1").millis().is_err());
    }

    #[test]
    fn iso_durations_are_parsed_as_in_java() {
        for (text, ms) in [
            ("PT1S", 1_000),
            ("PT1.5S", 1_500),
            ("PT0.25S", 250),
            ("PT2M", 120_000),
            ("P1DT1H1M1S", 90_061_000),
            ("pt1s", 1_000),
        ] {
            assert_eq!(node(text).iso_duration(), Ok(Duration::from_millis(ms)), "{text}");
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
            assert!(node(text).iso_duration().is_err(), "{text}");
        }
    }
}

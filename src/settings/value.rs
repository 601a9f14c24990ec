//! Reads and writes single values, for `with` and `deserialize_with` of serde. Each can be read from text, because
//! the environment has nothing else. A null is a missing value.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::{Acks, Secret};

/// A single value of a file or of the environment. Its text is what is parsed.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a number without a fraction, is expected")]
enum Scalar {
    Flag(bool),
    Signed(i64),
    Unsigned(u64),
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

/// Reads a value from its text. Errors never repeat the text.
fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl Fn(&str) -> Option<T>,
    wrong: &str,
) -> Result<Option<T>, D::Error> {
    let Some(scalar) = Option::<Scalar>::deserialize(deserializer)? else { return Ok(None) };
    parse(&scalar.to_string()).map(Some).ok_or_else(|| D::Error::custom(wrong))
}

/// Reads a number or a boolean.
pub(super) fn plain<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Option<T>, D::Error> {
    const WRONG: &str = "not the kind of value that is expected, or out of its bounds";
    parsed(deserializer, |text| text.trim().parse().ok(), WRONG)
}

/// Reads a text, or a value that looks like a number.
pub(super) fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<Scalar>::deserialize(deserializer)?.map(|scalar| Secret(scalar.to_string())))
}

/// Reads a table, or `a=b,c=d`.
pub(super) fn map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HashMap<String, String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a map, or a text such as \"10.0.0.1:6379=localhost:7000,..\", is expected")]
    enum Map {
        Table(HashMap<String, String>),
        Text(String),
    }
    let text = match Option::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Map::Table(table)) => return Ok(Some(table)),
        Some(Map::Text(text)) => text,
    };
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned())));
    pairs
        .collect::<Option<_>>()
        .map(Some)
        .ok_or_else(|| D::Error::custom("pairs with an = between them, and commas between the pairs, are expected"))
}

const NO_TIME: &str = "no time: \"30s\", \"250ms\" or a number of milliseconds is expected";

fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    text.parse().map(Duration::from_millis).or_else(|_| humantime::parse_duration(text)).ok()
}

fn format_time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

/// A time: `"30s"`, `"1m 30s"`, or milliseconds.
pub(super) mod time {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        parsed(deserializer, parse_time, NO_TIME)
    }

    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(format_time).serialize(serializer)
    }
}

/// The shortest and the longest pause: two times, or one time for both.
pub(super) mod times {
    use super::*;

    type Times = (Duration, Duration);

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "two times are expected, the shortest and the longest, or one for both")]
    enum Given {
        Two(Scalar, Scalar),
        One(Scalar),
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Times>, D::Error> {
        let text = match Option::deserialize(deserializer)? {
            None => return Ok(None),
            Some(Given::Two(first, last)) => format!("{first},{last}"),
            Some(Given::One(text)) => text.to_string(),
        };
        let (first, last) = text.split_once(',').unwrap_or((&text, &text));
        parse_time(first).zip(parse_time(last)).map(Some).ok_or_else(|| D::Error::custom(NO_TIME))
    }

    pub fn serialize<S: Serializer>(times: &Option<Times>, serializer: S) -> Result<S::Ok, S::Error> {
        times.map(|(first, last)| [format_time(first), format_time(last)]).serialize(serializer)
    }
}

/// Acknowledgements: `"off"`, `"redisson"`, `"all"`, or a number, which is the minimum of replicas. Also reads the
/// serde form of [`Acks`].
pub(super) mod acks {
    use super::*;

    const WRONG: &str = "off, redisson, all, or a number of replicas is expected";

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "off, redisson, all, or a number of replicas is expected")]
    enum Given {
        Mode(Acks),
        Other(Scalar),
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Acks>, D::Error> {
        let number = match Option::deserialize(deserializer)? {
            None => return Ok(None),
            Some(Given::Mode(acks)) => return Ok(Some(acks)),
            // `off` without quotes is a boolean in YAML.
            Some(Given::Other(Scalar::Flag(false))) => return Ok(Some(Acks::Off)),
            Some(Given::Other(number)) => number.to_string(),
        };
        number.trim().parse().map(|replicas| Some(Acks::AtLeast(replicas))).map_err(|_| D::Error::custom(WRONG))
    }

    pub fn serialize<S: Serializer>(acks: &Option<Acks>, serializer: S) -> Result<S::Ok, S::Error> {
        match acks {
            Some(Acks::AtLeast(replicas)) => replicas.serialize(serializer),
            acks => acks.serialize(serializer),
        }
    }
}

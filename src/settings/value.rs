//! Reads and writes single values, for `with` and `deserialize_with` of serde. Each value can be read from text,
//! because environment variables are text. A null is a missing value.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::{Acks, Secret};

/// A single value of a file or of the environment, which is parsed from its text.
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

/// Reads a value from the form that it has in a file. A parser's errors never repeat the text.
fn read<'de, D: Deserializer<'de>, F: Deserialize<'de>, T>(
    deserializer: D,
    parse: impl Fn(F) -> Result<T, &'static str>,
) -> Result<Option<T>, D::Error> {
    Option::<F>::deserialize(deserializer)?.map(parse).transpose().map_err(D::Error::custom)
}

/// Reads a number or a boolean.
pub(super) fn plain<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Option<T>, D::Error> {
    const WRONG: &str = "not the kind of value that is expected, or out of its bounds";
    read(deserializer, |scalar: Scalar| scalar.to_string().trim().parse().map_err(|_| WRONG))
}

/// Reads a text. A number or a boolean is converted to text.
pub(super) fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    read(deserializer, |scalar: Scalar| Ok(Secret(scalar.to_string())))
}

/// Reads a table, or `a=b,c=d`.
pub(super) fn map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HashMap<String, String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a map, or a text such as \"10.0.0.1:6379=localhost:7000,..\", is expected")]
    enum Form {
        Table(HashMap<String, String>),
        Text(String),
    }
    const WRONG: &str = "pairs with an = between them, and commas between the pairs, are expected";
    let pair = |pair: &str| pair.split_once('=').map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned()));
    read(deserializer, |form| match form {
        Form::Table(table) => Ok(table),
        Form::Text(text) => {
            text.split(',').filter(|pair| !pair.trim().is_empty()).map(pair).collect::<Option<_>>().ok_or(WRONG)
        }
    })
}

fn parse_time(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "no time: \"30s\", \"250ms\" or a number of milliseconds is expected";
    let text = text.trim();
    text.parse().map(Duration::from_millis).or_else(|_| humantime::parse_duration(text)).map_err(|_| WRONG)
}

fn format_time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

/// A time: `"30s"`, `"1m 30s"`, or milliseconds.
pub(super) mod time {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        read(deserializer, |scalar: Scalar| parse_time(&scalar.to_string()))
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
    enum Form {
        Two(Scalar, Scalar),
        One(Scalar),
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Times>, D::Error> {
        read(deserializer, |form| {
            let text = match form {
                Form::Two(first, last) => format!("{first},{last}"),
                Form::One(text) => text.to_string(),
            };
            let (first, last) = text.split_once(',').unwrap_or((&text, &text));
            Ok((parse_time(first)?, parse_time(last)?))
        })
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
    enum Form {
        Mode(Acks),
        Other(Scalar),
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Acks>, D::Error> {
        read(deserializer, |form| match form {
            Form::Mode(acks) => Ok(acks),
            // `off` without quotes is a boolean in YAML.
            Form::Other(Scalar::Flag(false)) => Ok(Acks::Off),
            Form::Other(number) => number.to_string().trim().parse().map(Acks::AtLeast).map_err(|_| WRONG),
        })
    }

    pub fn serialize<S: Serializer>(acks: &Option<Acks>, serializer: S) -> Result<S::Ok, S::Error> {
        match acks {
            Some(Acks::AtLeast(replicas)) => replicas.serialize(serializer),
            acks => acks.serialize(serializer),
        }
    }
}

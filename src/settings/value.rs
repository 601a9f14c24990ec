//! Types of single values in files and the environment. Each can be read from text, because the environment has
//! nothing else.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::{Acks, Secret};

/// A value in a file that represents an option of another type.
pub(super) trait Field {
    type Of;
    fn value(self) -> Self::Of;
    fn of(value: &Self::Of) -> Self;
}

/// A value that is read and written unchanged.
macro_rules! plain {
    ($($type:ty),*) => { $(impl Field for $type {
        type Of = Self;
        fn value(self) -> Self {
            self
        }
        fn of(value: &Self) -> Self {
            value.clone()
        }
    })* };
}

plain!(String, crate::config::Prefer, crate::config::Sharded);

/// A time: `"30s"`, `"1m 30s"`, or milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Span(Duration);

impl Field for Span {
    type Of = Duration;
    fn value(self) -> Duration {
        self.0
    }
    fn of(value: &Duration) -> Self {
        Self(*value)
    }
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "no time: \"30s\", \"250ms\" or a number of milliseconds is expected";
        let text = text.trim();
        match text.parse() {
            Ok(ms) => Ok(Self(Duration::from_millis(ms))),
            Err(_) => humantime::parse_duration(text).map(Self).map_err(|_| WANTED),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text::new("a time such as \"30s\", or a number of milliseconds"))
    }
}

/// The shortest and the longest pause: two times, or one time for both.
#[derive(Clone, Copy)]
pub(super) struct Spans(Span, Span);

impl Field for Spans {
    type Of = (Duration, Duration);
    fn value(self) -> (Duration, Duration) {
        (self.0.0, self.1.0)
    }
    fn of(value: &(Duration, Duration)) -> Self {
        Self(Span(value.0), Span(value.1))
    }
}

impl FromStr for Spans {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once(',').unwrap_or((text, text));
        Ok(Self(first.parse()?, last.parse()?))
    }
}

impl Serialize for Spans {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0, self.1).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Spans {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Spans;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two times, the shortest and the longest, or one for both")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Spans, A::Error> {
                let wrong = || A::Error::custom("two times are expected, the shortest and the longest");
                let first = list.next_element()?.ok_or_else(wrong)?;
                let last = list.next_element()?.ok_or_else(wrong)?;
                if list.next_element::<serde::de::IgnoredAny>()?.is_some() {
                    return Err(wrong());
                }
                Ok(Spans(first, last))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Spans, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, ms: u64) -> Result<Spans, E> {
                self.visit_str(&ms.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, ms: i64) -> Result<Spans, E> {
                self.visit_str(&ms.to_string())
            }
        }
        deserializer.deserialize_any(Pair)
    }
}

/// A number or a boolean, also as text.
#[derive(Clone, Copy)]
pub(super) struct Plain<T>(T);

impl<T: Copy> Field for Plain<T> {
    type Of = T;
    fn value(self) -> T {
        self.0
    }
    fn of(value: &T) -> Self {
        Self(*value)
    }
}

impl<T: FromStr> FromStr for Plain<T> {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim().parse().map(Self).map_err(|_| "not the kind of value that is expected, or out of its bounds")
    }
}

impl<T: Serialize> Serialize for Plain<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: FromStr> Deserialize<'de> for Plain<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text::new("one value"))
    }
}

/// A secret: text, or a value that looks like a number. No error repeats it.
pub(super) struct Hidden(pub(super) Secret);

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text::<Word>::new("a text")).map(|word| Self(Secret(word.0)))
    }
}

struct Word(String);

impl FromStr for Word {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

/// Parses a `T` from text, or from any single value of the format.
struct Text<T> {
    expected: &'static str,
    of: PhantomData<T>,
}

impl<T> Text<T> {
    const fn new(expected: &'static str) -> Self {
        Self { expected, of: PhantomData }
    }
}

impl<T: FromStr<Err = &'static str>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_bool<E: serde::de::Error>(self, is: bool) -> Result<T, E> {
        self.visit_str(if is { "true" } else { "false" })
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<T, E> {
        Err(E::custom(format_args!("a number with a fraction, expected {}", self.expected)))
    }
}

/// Acknowledgements: `"off"`, `"redisson"`, `"all"`, or a number, which is the minimum of replicas. Also reads the
/// serde form of `Acks`.
#[derive(Clone, Copy)]
pub(super) struct Replicas(Acks);

impl Field for Replicas {
    type Of = Acks;
    fn value(self) -> Acks {
        self.0
    }
    fn of(value: &Acks) -> Self {
        Self(*value)
    }
}

impl Serialize for Replicas {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Acks::AtLeast(n) => n.serialize(serializer),
            acks => acks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Replicas;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("off, redisson, all, or a number of replicas")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Replicas, E> {
                match text.trim() {
                    "off" => Ok(Replicas(Acks::Off)),
                    "redisson" => Ok(Replicas(Acks::Redisson)),
                    "all" => Ok(Replicas(Acks::All)),
                    text => text
                        .parse()
                        .map(|n| Replicas(Acks::AtLeast(n)))
                        .map_err(|_| E::custom("off, redisson, all, or a number of replicas is expected")),
                }
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Replicas, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Replicas, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Replicas, A::Error> {
                Acks::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Replicas)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A map from text to text: a table, or `a=b,c=d`.
#[derive(Clone, Default)]
pub(super) struct Map(pub(super) HashMap<String, String>);

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Map;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map, or a text such as \"10.0.0.1:6379=localhost:7000,..\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Map, A::Error> {
                let mut pairs = HashMap::new();
                while let Some((from, to)) = map.next_entry()? {
                    pairs.insert(from, to);
                }
                Ok(Map(pairs))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Map, E> {
                let pair =
                    |pair: &str| pair.split_once('=').map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned()));
                let pairs: Option<_> = text.split(',').filter(|pair| !pair.trim().is_empty()).map(pair).collect();
                pairs.map(Map).ok_or_else(|| {
                    E::custom("pairs with an = between them, and commas between the pairs, are expected")
                })
            }
        }
        deserializer.deserialize_any(Pairs)
    }
}

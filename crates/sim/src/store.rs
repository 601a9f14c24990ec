//! The simulated server's memory: values with expiry, a clock that is set from outside, and published messages.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;

use super::place::{Place, Refusal};
use super::random::Random;
use super::zset::Zset;

/// The text of an error reply.
pub(super) type Failure = String;

pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(Bytes),
    /// Fields are in the order of insertion, as in Redis' small hashes.
    Hash(Vec<(Bytes, Bytes)>),
    List(Vec<Bytes>),
    Zset(Zset),
}

impl Value {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Zset(_) => "zset",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Zset(zset) => zset.len() == 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The last server time, in ms, at which the entry exists.
    pub(super) until: Option<i64>,
}

/// A hasher without a random key: equal runs iterate in equal order on every machine.
#[derive(Clone, Copy, Default)]
pub(super) struct Fx(u64);

impl Fx {
    const fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Fx {
    fn finish(&self) -> u64 {
        // The map uses the top and the bottom bits. With short keys, the bottom bits alone are poor.
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0_u8; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }

    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }
}

pub(super) type FxMap<K, V> = HashMap<K, V, BuildHasherDefault<Fx>>;

/// The whole data set. It has to be cheap to move, because it is moved into the Lua interpreter while a script runs.
#[derive(Default)]
pub(super) struct Store {
    map: FxMap<Bytes, Entry>,
    /// Server time in microseconds since 1970. Does not change while a script runs.
    micros: i64,
    /// The number of subscribers of each channel.
    pub(super) audience: FxMap<Bytes, usize>,
    /// The server's own source of random numbers.
    pub(super) random: Random,
    /// Published messages that have not been sent to the subscribers' connections yet.
    pub(super) outbox: Vec<(Bytes, Bytes)>,
    /// The server's view of its cluster; None for a server without a cluster.
    pub(super) place: Option<Box<Place>>,
}

impl Store {
    pub(super) fn with(random: Random) -> Self {
        Self { random, ..Self::default() }
    }

    pub(super) const fn set_clock(&mut self, micros: i64) {
        self.micros = micros;
    }

    pub(super) const fn micros(&self) -> i64 {
        self.micros
    }

    pub(super) const fn now_ms(&self) -> i64 {
        self.micros.div_euclid(1000)
    }

    /// Returns the entry. Removes it instead if it has expired, as Redis does on access.
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now_ms();
        if self.map.get(key)?.until.is_some_and(|until| now > until) {
            self.map.remove(key);
            return None;
        }
        self.map.get_mut(key)
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let now = self.now_ms();
        self.map.remove(key).is_some_and(|entry| entry.until.is_none_or(|until| now <= until))
    }

    pub(super) fn put(&mut self, key: &[u8], value: Value, until: Option<i64>) {
        self.map.insert(Bytes::copy_from_slice(key), Entry { value, until });
    }

    /// Removes a collection that has lost its last element, as Redis does.
    pub(super) fn tidy(&mut self, key: &[u8]) {
        if self.map.get(key).is_some_and(|entry| entry.value.is_empty()) {
            self.map.remove(key);
        }
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        let now = self.now_ms();
        self.map.get(key).is_some_and(|entry| entry.until.is_none_or(|until| now <= until))
    }

    /// Checks whether a command with these keys, or a publish on this sharded channel, runs here.
    pub(super) fn route<'a>(
        &self,
        channel: Option<&[u8]>,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Refusal> {
        match (self.place.as_deref(), channel) {
            (None, _) => Ok(()),
            (Some(place), Some(channel)) => place.route_channel(channel),
            (Some(place), None) => place.route(keys, |key| self.has(key)),
        }
    }

    /// Returns all entries, to be copied to a replica.
    pub(super) const fn all(&self) -> &FxMap<Bytes, Entry> {
        &self.map
    }

    pub(super) fn replace(&mut self, all: FxMap<Bytes, Entry>) {
        self.map = all;
    }

    /// Removes a key. Returns its value and the rest of its lease.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<(Value, Option<i64>)> {
        let now = self.now_ms();
        let Entry { value, until } = self.map.remove(key)?;
        Some((value, until.map(|until| until - now)))
    }

    pub(super) fn clear(&mut self) {
        self.map.clear();
    }

    pub(super) fn keys(&self) -> Vec<Bytes> {
        let now = self.now_ms();
        let live = self.map.iter().filter(|(_, entry)| entry.until.is_none_or(|until| now <= until));
        let mut keys: Vec<Bytes> = live.map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    pub(super) fn text(&mut self, key: &[u8]) -> Result<Option<&mut Bytes>, Failure> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    pub(super) fn hash(&mut self, key: &[u8]) -> Result<Option<&mut Vec<(Bytes, Bytes)>>, Failure> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { value: Value::Hash(hash), .. }) => Ok(Some(hash)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    pub(super) fn list(&mut self, key: &[u8]) -> Result<Option<&mut Vec<Bytes>>, Failure> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { value: Value::List(list), .. }) => Ok(Some(list)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    pub(super) fn zset(&mut self, key: &[u8]) -> Result<Option<&mut Zset>, Failure> {
        match self.entry(key) {
            None => Ok(None),
            Some(Entry { value: Value::Zset(zset), .. }) => Ok(Some(zset)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    /// Returns the value at `key`. Inserts `fresh()` if there is none.
    pub(super) fn or_new(&mut self, key: &[u8], fresh: fn() -> Value) -> &mut Value {
        let now = self.now_ms();
        let entry =
            self.map.entry(Bytes::copy_from_slice(key)).or_insert_with(|| Entry { value: fresh(), until: None });
        if entry.until.is_some_and(|until| now > until) {
            *entry = Entry { value: fresh(), until: None };
        }
        &mut entry.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_exists_until_its_last_millisecond_is_over() {
        let mut store = Store::default();
        store.set_clock(1_000_000);
        store.put(b"k", Value::Text(Bytes::from_static(b"v")), Some(1_010));
        store.set_clock(1_010_999);
        assert!(store.entry(b"k").is_some());
        assert_eq!(store.keys().len(), 1);
        store.set_clock(1_011_000);
        assert_eq!(store.keys().len(), 0);
        assert!(store.entry(b"k").is_none());
        assert!(!store.remove(b"k"));
    }

    #[test]
    fn expired_value_of_another_type_is_replaced() {
        let mut store = Store::default();
        store.put(b"k", Value::Text(Bytes::from_static(b"v")), Some(1));
        store.set_clock(5_000);
        assert!(matches!(store.or_new(b"k", || Value::List(Vec::new())), Value::List(_)));
    }
}

//! Hashes of names and owners for tables. Each hash is computed once, and differs between processes.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// The seed of all hashes. None in a simulation, so that every run has the same hashes.
static SEED: OnceLock<Option<RandomState>> = OnceLock::new();

/// Hashes a name or an owner; tables use this value without hashing it again. Each process has its own seed. With a
/// known seed, an attacker could choose thousands of names that share a bucket.
pub(crate) fn seeded(bytes: &[u8]) -> u64 {
    match SEED.get_or_init(|| Some(RandomState::new())) {
        Some(seed) => finished(seed.build_hasher(), bytes),
        None => finished(DefaultHasher::new(), bytes),
    }
}

fn finished(mut hasher: DefaultHasher, bytes: &[u8]) -> u64 {
    hasher.write(bytes);
    hasher.finish()
}

/// Makes hashes the same in every run of this program, unless a hash was computed before.
#[cfg(feature = "unstable-transport")]
pub(crate) fn unseeded() {
    let _ = SEED.set(None);
}

/// A hasher for keys that store their hash.
#[derive(Default)]
pub(crate) struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(5) ^ seeded(bytes);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The hash builder of tables whose keys store their hash.
pub(crate) type ReadyHash = BuildHasherDefault<Ready>;

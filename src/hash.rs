//! How names and owners are hashed for tables: once each, and unlike in any other process.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// The hash of tables. None in a simulation, which must be the same in every run.
static SEED: OnceLock<Option<RandomState>> = OnceLock::new();

/// What names and owners are hashed by for tables: once each; tables then take the value as it is. Unlike in every other
/// process, because names come from the outside world: by a hash that is known, thousands could be made to share a bucket.
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

/// Has tables keep one order in every run of this program, unless something was hashed before.
#[cfg(feature = "unstable-transport")]
pub(crate) fn unseeded() {
    let _ = SEED.set(None);
}

/// A hasher for keys that bring their hash along.
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

/// What tables are built with whose keys bring their hash along.
pub(crate) type ReadyHash = BuildHasherDefault<Ready>;

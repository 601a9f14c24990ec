//! Shrinks hash tables that have become mostly empty.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// A table of this capacity or less is never shrunk.
const SMALL: usize = 64;

/// A table is shrunk if its capacity is more than this many times its length.
const EMPTY: usize = 8;

/// The capacity that a table is shrunk to, or `None` if the table is not too large. It leaves room to grow.
const fn slimmer(len: usize, capacity: usize) -> Option<usize> {
    if capacity > SMALL && len < capacity / EMPTY { Some(len * 2) } else { None }
}

/// Shrinks a table that is too large. Call this after each removal from a table whose size depends on outside input.
/// The amortised cost is O(1).
pub fn slim<K: Eq + Hash, V, S: BuildHasher>(table: &mut HashMap<K, V, S>) {
    if let Some(size) = slimmer(table.len(), table.capacity()) {
        table.shrink_to(size);
    }
}

/// [`slim`] for a set.
pub fn slim_set<K: Eq + Hash, S: BuildHasher>(set: &mut HashSet<K, S>) {
    if let Some(size) = slimmer(set.len(), set.capacity()) {
        set.shrink_to(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptied_table_shrinks_and_moves_its_entries_rarely() {
        let mut table: HashMap<usize, ()> = (0..100_000).map(|key| (key, ())).collect();
        let (mut moves, mut before) = (0, table.capacity());
        for key in 0..100_000 {
            table.remove(&key);
            slim(&mut table);
            // The reported capacity also drops slightly by itself, if the place of a removed entry cannot be reused.
            if table.capacity() < before / 2 {
                (moves, before) = (moves + table.len(), table.capacity());
            }
        }
        assert!(table.capacity() <= 2 * SMALL, "{}", table.capacity());
        assert!(moves < 100_000, "{moves}");
        // A full table at the limit does not shrink and grow with each entry.
        table.extend((0..1_000).map(|key| (key, ())));
        let capacity = table.capacity();
        for key in 0..1_000 {
            table.remove(&key);
            slim(&mut table);
            table.insert(key, ());
        }
        assert_eq!(table.capacity(), capacity);
        let mut set: HashSet<usize> = (0..10_000).collect();
        set.clear();
        slim_set(&mut set);
        assert!(set.capacity() <= SMALL);
    }
}

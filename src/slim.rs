//! Tables that were much fuller once give their memory back.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// A table of so many places is small whatever is in it.
const SMALL: usize = 64;

/// A table is too large once so many of its places are empty for each that is not.
const EMPTY: usize = 8;

/// The size to make a table, where it is too large. It has room to grow then, so that each entry is moved a few times at the most.
const fn slimmer(len: usize, capacity: usize) -> Option<usize> {
    if capacity > SMALL && len < capacity / EMPTY { Some(len * 2) } else { None }
}

/// To be called after an entry was taken out of a table whose size others decide: in the mean it costs nothing.
pub(crate) fn slim<K: Eq + Hash, V, S: BuildHasher>(table: &mut HashMap<K, V, S>) {
    if let Some(size) = slimmer(table.len(), table.capacity()) {
        table.shrink_to(size);
    }
}

/// As [`slim`], for a set.
pub(crate) fn slim_set<K: Eq + Hash, S: BuildHasher>(set: &mut HashSet<K, S>) {
    if let Some(size) = slimmer(set.len(), set.capacity()) {
        set.shrink_to(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_full_once_becomes_small_and_moves_its_entries_rarely() {
        let mut table: HashMap<usize, ()> = (0..100_000).map(|key| (key, ())).collect();
        let (mut moves, mut before) = (0, table.capacity());
        for key in 0..100_000 {
            table.remove(&key);
            slim(&mut table);
            // Smaller by a little it also becomes by itself, where an entry's place is not used again.
            if table.capacity() < before / 2 {
                (moves, before) = (moves + table.len(), table.capacity());
            }
        }
        assert!(table.capacity() <= 2 * SMALL, "{}", table.capacity());
        assert!(moves < 100_000, "{moves}");
        // Full again, and on the edge: it does not go up and down with each entry.
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

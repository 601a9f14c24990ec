//! All holds of a client, in shards.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::super::sync::{Mutex, MutexGuard};
use super::Book;
use crate::slim::slim;

/// A hold as the table sees it.
pub(crate) trait Entry {
    /// Its book.
    fn book(&self) -> MutexGuard<'_, Book>;
}

/// A part of a table, under a lock of its own.
type Shard<K, E, S> = Mutex<HashMap<K, Arc<E>, S>>;

/// All holds of a client, by name and owner.
pub(crate) struct Table<K, E, S> {
    shards: Box<[Shard<K, E, S>]>,
    hash: S,
}

impl<K: Hash + Eq + Clone, E: Entry, S: BuildHasher + Default + Clone> Table<K, E, S> {
    pub(crate) fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| Mutex::new(HashMap::with_hasher(S::default()))).collect();
        Self { shards, hash: S::default() }
    }

    fn shard(&self, key: &K) -> &Shard<K, E, S> {
        let hash = self.hash.hash_one(key);
        &self.shards[(hash >> 48) as usize % self.shards.len()]
    }

    /// The hold of `key`, made from `fresh` if there is none, kept in the table until [`Table::unreserve`] although it
    /// may hold nothing.
    pub(crate) fn reserve(&self, key: K, fresh: Arc<E>) -> Arc<E> {
        let mut shard = self.shard(&key).lock();
        let entry = shard.entry(key).or_insert(fresh);
        entry.book().reserved += 1;
        Arc::clone(entry)
    }

    /// How many holds of a key there are, as far as is known here.
    pub(crate) fn count(&self, key: &K) -> u32 {
        self.shard(key).lock().get(key).map_or(0, |entry| entry.book().count())
    }

    /// The hold of a key, if there is one.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<E>> {
        self.shard(key).lock().get(key).map(Arc::clone)
    }

    /// True when somebody here relies on a hold of a key.
    pub(crate) fn is_relied_on(&self, key: &K) -> bool {
        let shard = self.shard(key).lock();
        shard.get(key).is_some_and(|entry| {
            let book = entry.book();
            book.end().is_none() && !book.is_idle()
        })
    }

    /// Ends a reservation.
    pub(crate) fn unreserve(&self, key: &K, entry: &Arc<E>) {
        let mut shard = self.shard(key).lock();
        let mut book = entry.book();
        book.reserved = book.reserved.saturating_sub(1);
        // One that has ended and was cleaned up after may still have guards, which do not know yet.
        if book.count == 0 && book.reserved == 0 && (book.is_idle() || book.end.is_some()) {
            Self::drop_out(&mut shard, key, entry, book);
        }
    }

    /// Registers a guard of a hold, and the hold if it is new, in one step, so that held means registered. Returns the
    /// guard's id.
    pub(crate) fn open(&self, key: K, entry: &Arc<E>, open: impl FnOnce(&mut Book) -> u32) -> u32 {
        let mut shard = self.shard(&key).lock();
        let id = open(&mut entry.book());
        shard.entry(key).or_insert_with(|| Arc::clone(entry));
        id
    }

    /// The server has nothing for this hold any more: takes it out, so that released means not registered. A hold that
    /// others are about to acquire stays, empty, unless it has ended.
    pub(crate) fn released(&self, key: &K, entry: &Arc<E>) {
        let mut shard = self.shard(key).lock();
        let mut book = entry.book();
        book.count = 0;
        if book.end.is_some() || (book.is_idle() && book.reserved == 0) {
            Self::drop_out(&mut shard, key, entry, book);
        }
    }

    fn drop_out(shard: &mut HashMap<K, Arc<E>, S>, key: &K, entry: &Arc<E>, mut book: MutexGuard<'_, Book>) {
        book.closed = true;
        drop(book);
        if shard.get(key).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            shard.remove(key);
            slim(shard);
        }
    }

    /// Every hold for which `wanted` is true.
    pub(crate) fn collect(&self, wanted: impl Fn(&Book) -> bool) -> Vec<Arc<E>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            found.extend(shard.values().filter(|entry| wanted(&entry.book())).cloned());
        }
        found
    }

    /// True when `wanted` is true for any hold.
    pub(crate) fn any(&self, wanted: impl Fn(&Book) -> bool) -> bool {
        self.shards.iter().any(|shard| shard.lock().values().any(|entry| wanted(&entry.book())))
    }

    /// How many holds there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

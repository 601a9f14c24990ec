//! The table of a client's holds, by name and owner.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::super::sync::{Mutex, MutexGuard};
use super::Book;
use crate::slim::slim;

pub(crate) trait Entry {
    fn book(&self) -> MutexGuard<'_, Book>;
}

type Shard<K, E, S> = Mutex<HashMap<K, Arc<E>, S>>;

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

    /// Returns the hold of `key`, or inserts `fresh`. The entry stays in the table until [`Table::unreserve`], even if
    /// it has no holds.
    pub(crate) fn reserve(&self, key: K, fresh: Arc<E>) -> Arc<E> {
        let mut shard = self.shard(&key).lock();
        let entry = shard.entry(key).or_insert(fresh);
        entry.book().reserved += 1;
        Arc::clone(entry)
    }

    pub(crate) fn count(&self, key: &K) -> u32 {
        self.shard(key).lock().get(key).map_or(0, |entry| entry.book().count())
    }

    pub(crate) fn get(&self, key: &K) -> Option<Arc<E>> {
        self.shard(key).lock().get(key).map(Arc::clone)
    }

    /// True if a guard of this client relies on a hold of this key.
    pub(crate) fn is_relied_on(&self, key: &K) -> bool {
        let shard = self.shard(key).lock();
        shard.get(key).is_some_and(|entry| {
            let book = entry.book();
            book.end().is_none() && !book.is_idle()
        })
    }

    pub(crate) fn unreserve(&self, key: &K, entry: &Arc<E>) {
        let mut shard = self.shard(key).lock();
        let mut book = entry.book();
        book.reserved = book.reserved.saturating_sub(1);
        // The book of an ended hold may still list guards. They do not keep the entry in the table.
        if book.count == 0 && book.reserved == 0 && (book.is_idle() || book.end.is_some()) {
            Self::remove_if_unused(&mut shard, key, entry, book);
        }
    }

    /// Adds a guard to a hold, and the hold to the table if it is new. Both happen under the shard's lock, so a held
    /// lock is always in the table. Returns the guard's id.
    pub(crate) fn open(&self, key: K, entry: &Arc<E>, open: impl FnOnce(&mut Book) -> u32) -> u32 {
        let mut shard = self.shard(&key).lock();
        let id = open(&mut entry.book());
        shard.entry(key).or_insert_with(|| Arc::clone(entry));
        id
    }

    /// Removes a hold that the server no longer has, so that a released lock is not in the table. An entry that another
    /// acquire has reserved stays without holds, unless it has ended.
    pub(crate) fn released(&self, key: &K, entry: &Arc<E>) {
        let mut shard = self.shard(key).lock();
        let mut book = entry.book();
        book.count = 0;
        if book.end.is_some() || (book.is_idle() && book.reserved == 0) {
            Self::remove_if_unused(&mut shard, key, entry, book);
        }
    }

    fn remove_if_unused(shard: &mut HashMap<K, Arc<E>, S>, key: &K, entry: &Arc<E>, mut book: MutexGuard<'_, Book>) {
        book.closed = true;
        drop(book);
        if shard.get(key).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            shard.remove(key);
            slim(shard);
        }
    }

    pub(crate) fn collect(&self, wanted: impl Fn(&Book) -> bool) -> Vec<Arc<E>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            found.extend(shard.values().filter(|entry| wanted(&entry.book())).cloned());
        }
        found
    }

    pub(crate) fn any(&self, wanted: impl Fn(&Book) -> bool) -> bool {
        self.shards.iter().any(|shard| shard.lock().values().any(|entry| wanted(&entry.book())))
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

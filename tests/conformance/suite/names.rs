//! Names: any text is a name, of a lock of its own.

use std::time::Instant;

use crate::subject::Subject;
use bed::{eventually, secs};

/// Names that look like something else.
const ODD: [&str; 24] = [
    "{}",
    "a{b",
    "x}y",
    "}{",
    "a{}b",
    "{a}",
    "pre{tag}suf",
    "{{a}}",
    ":",
    "a:b:c",
    "::",
    " ",
    "  a ",
    "schloß",
    "☃",
    "\u{1f512}",
    "line\nbreak",
    "\r\n",
    "nul\u{0}nul",
    "\u{0}",
    "*",
    "a?[b]*",
    "redisson_lock__channel:{x}",
    "\"quoted\" 'too' \\",
];

/// Those that there can be: a cluster refuses names whose keys would be in two slots.
fn odd() -> Vec<&'static str> {
    const SPLIT: [&str; 5] = ["{}", "a{b", "x}y", "}{", "a{}b"];
    ODD.into_iter().filter(|name| !bed::is_cluster() || !SPLIT.contains(name)).collect()
}

pub async fn odd_names_are_locks_of_their_own(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let mut guards = Vec::new();
    // All at once: no two of them are one.
    for name in odd() {
        let lock = bed.lock(&ours, name);
        let (lock_name, guard_name) = (bed.kind().called)(name);
        assert_eq!(lock.name(), lock_name);
        let guard = lock.try_lock().await.unwrap().unwrap_or_else(|| panic!("{name:?} is taken"));
        assert_eq!(guard.name(), guard_name);
        guards.push(guard);
    }
    let keys = bed.admin.keys().await;
    for name in odd() {
        for key in bed.keys_of(name) {
            assert!(keys.contains(&key), "{key:?} is not among {keys:?}");
        }
    }
    let each = bed.keys_of("job").len();
    assert_eq!(ours.renew_now().await.renewed, odd().len() * each);
    for (name, guard) in odd().into_iter().zip(guards) {
        let other = bed.lock(&theirs, name);
        assert!(bed.rival(&theirs, name).try_lock().await.unwrap().is_none(), "{name:?}");
        assert!(other.is_held_by(guard.owner()).await.unwrap(), "{name:?}");
        guard.unlock().await.unwrap();
        assert!(!other.is_locked().await.unwrap(), "{name:?}");
    }
}

/// How many channels somebody listens to.
async fn listened_to(bed: &Subject<'_>) -> usize {
    bed.admin.channels().await.len()
}

// Each has a channel of its own, which it listens to
pub async fn waiters_on_odd_names_are_woken(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let mut guards = Vec::new();
    let mut waiters = Vec::new();
    for name in odd() {
        guards.push(bed.lock(&ours, name).lock().await.unwrap());
        let other = bed.rival(&theirs, name);
        waiters.push(tokio::spawn(async move { other.lock().await.unwrap() }));
    }
    eventually("all listen", async || listened_to(bed).await == odd().len()).await;
    for ((name, guard), waiter) in odd().into_iter().zip(guards).zip(waiters) {
        assert!(!waiter.is_finished(), "{name:?}");
        let start = Instant::now();
        guard.unlock().await.unwrap();
        let guard = waiter.await.unwrap();
        // On its own it would look after 5 s.
        assert!(start.elapsed() < secs(2), "{name:?}: {:?}", start.elapsed());
        guard.unlock().await.unwrap();
    }
}

// Names with a brace that is not closed, or an empty tag, have two slots for Redisson too
pub async fn odd_names_stay_in_one_slot(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.quick().await, bed.quick().await);
    let split = ["{}", "a{b", "x}y", "}{", "a{}b", "{{a}}"];
    for name in ODD.into_iter().filter(|name| !split.contains(name)) {
        let lock = bed.lock(&ours, name);
        let guard = lock.lock().await.unwrap();
        let other = bed.rival(&theirs, name);
        let waiter = tokio::spawn(async move { other.lock().await.unwrap().unlock().await.unwrap() });
        eventually("it waits", async || theirs.stats().waiting == 1).await;
        assert_eq!(ours.renew_now().await.renewed, bed.keys_of(name).len(), "{name:?}");
        guard.unlock().await.unwrap();
        waiter.await.unwrap();
    }
}

pub async fn a_prefix_is_part_of_the_key_and_not_of_the_name(bed: &Subject<'_>) {
    let plain = bed.client().await;
    for prefix in ["app:", "{app}:", "ünï ", "\u{0}"] {
        let client = bed.connect(bed.builder().name_prefix(prefix)).await;
        assert_eq!(client.options().name_prefix, prefix);
        let lock = bed.lock(&client, "job");
        let guard = lock.lock().await.unwrap();
        assert_eq!((lock.name().to_owned(), guard.name().to_owned()), (bed.kind().called)("job"));
        assert_eq!(bed.main_keys().await, bed.keys_of(&format!("{prefix}job")));
        // The same lock by its full name, another one by its short one; woken across.
        let full = bed.lock(&plain, &format!("{prefix}job"));
        assert!(full.is_held_by(guard.owner()).await.unwrap());
        bed.lock(&plain, "job").try_lock().await.unwrap().expect("another lock").unlock().await.unwrap();
        let rival = bed.rival(&plain, &format!("{prefix}job"));
        let waiter = tokio::spawn(async move { rival.lock().await.unwrap().unlock().await.unwrap() });
        eventually("it waits", async || plain.stats().waiting == 1).await;
        let start = Instant::now();
        guard.unlock().await.unwrap();
        waiter.await.unwrap();
        assert!(start.elapsed() < secs(2), "{prefix:?}: {:?}", start.elapsed());
    }
    // Only the whole is too long.
    let client = bed.connect(bed.builder().name_prefix("p".repeat(2_000))).await;
    let longest = 2_096 - bed.added_to_names();
    assert!(bed.lock(&client, &"x".repeat(longest)).try_lock().await.unwrap().is_some());
    assert!(bed.lock(&client, &"x".repeat(longest + 1)).try_lock().await.is_err());
}

//! Any text is a name, and each name is its own lock.

use crate::subject::{Subject, passer, waiter, waiting};
use bed::ends;

/// Names that look like other syntax.
const SHORT: [&str; 13] =
    ["{a}", "{{a}}", ":", "a:b:c", "::", " ", "  a ", "schloß", "☃", "\r\n", "\u{0}", "*", "a?[b]*"];
const LONG: [&str; 6] =
    ["pre{tag}suf", "\u{1f512}", "line\nbreak", "nul\u{0}nul", "redisson_lock__channel:{x}", "\"quoted\" 'too' \\"];

/// Names whose keys are in two slots. A cluster refuses such names, as with Redisson.
const SPLIT: [&str; 5] = ["{}", "a{b", "x}y", "}{", "a{}b"];

pub async fn odd_names_are_separate_locks(bed: &Subject<'_>) {
    each_is_a_lock(bed, bed::is_cluster()).await;
}

pub async fn odd_names_stay_in_one_slot(bed: &Subject<'_>) {
    each_is_a_lock(bed, true).await;
}

async fn each_is_a_lock(bed: &Subject<'_>, is_cluster: bool) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let split: &[&str] = if is_cluster { &[] } else { &SPLIT };
    let names = [split, &SHORT, &LONG].concat();
    bed.prepare(&names).await;
    let mut guards = Vec::new();
    // All locks are held at once, so no two names are the same lock.
    for name in &names {
        let lock = bed.mutex(&ours, name);
        let (lock_name, guard_name) = (bed.kind().called)(name);
        assert_eq!(lock.name(), lock_name);
        let guard = lock.try_lock().await.unwrap().unwrap_or_else(|| panic!("{name:?} is taken"));
        assert_eq!(guard.name(), guard_name);
        guards.push(guard);
    }
    let keys = bed.admin.keys().await;
    for key in names.iter().flat_map(|name| bed.keys_of(name)) {
        assert!(keys.contains(&key), "{key:?} is not among {keys:?}");
    }
    let round = ours.renew_now().await;
    assert_eq!((round.renewed, round.failed, round.lost), (names.len() * bed.keys_of("job").len(), 0, 0));
    // Each name has its own channel.
    let waiters: Vec<_> = names.iter().map(|name| waiter(bed.rival(&theirs, name))).collect();
    waiting(&theirs, names.len()).await;
    for ((name, guard), waiter) in names.into_iter().zip(guards).zip(waiters) {
        assert!(!waiter.is_finished(), "{name:?}: two holders, or a waiter that failed");
        let other = bed.mutex(&theirs, name);
        assert!(other.is_held_by(&guard).await.unwrap(), "{name:?}");
        guard.unlock().await.unwrap();
        let guard = ends(&format!("the waiter for {name:?}, which only the release wakes"), waiter).await.unwrap();
        guard.unlock().await.unwrap();
        assert!(!other.is_locked().await.unwrap(), "{name:?}");
    }
}

pub async fn prefix_is_part_of_the_key_and_not_of_the_name(bed: &Subject<'_>) {
    let plain = bed.still_client().await;
    for prefix in ["app:", "{app}:", "ünï ", "\u{0}"] {
        let client = bed.connect(bed.still_builder().name_prefix(prefix)).await;
        assert_eq!(client.options().name_prefix, prefix);
        let name = format!("{prefix}job");
        bed.prepare(&[&name]).await;
        let lock = bed.mutex(&client, "job");
        let guard = lock.lock().await.unwrap();
        assert_eq!((lock.name().to_owned(), guard.name().to_owned()), (bed.kind().called)("job"));
        assert_eq!(bed.main_keys().await, bed.keys_of(&name));
        // For the client without a prefix, the full name is the same lock and the short name is another lock. Each
        // client wakes the other's waiters.
        let full = bed.mutex(&plain, &name);
        assert!(full.is_held_by(&guard).await.unwrap());
        bed.mutex(&plain, "job").try_lock().await.unwrap().expect("another lock").unlock().await.unwrap();
        let waiter = passer(bed.rival(&plain, &name));
        waiting(&plain, 1).await;
        guard.unlock().await.unwrap();
        ends(&format!("the waiter for the full name, prefix {prefix:?}"), waiter).await.unwrap();
    }
    // The limit applies to the whole key.
    let prefix = "p".repeat(2_000);
    let client = bed.connect(bed.still_builder().name_prefix(prefix.clone())).await;
    let longest = "x".repeat(2_096 - bed.added_to_names());
    bed.prepare(&[prefix + &longest]).await;
    assert!(bed.mutex(&client, &longest).try_lock().await.unwrap().is_some());
    assert!(bed.mutex(&client, &(longest + "x")).try_lock().await.is_err());
}

//! Differences between Redisson's fenced lock and its documentation. Our lock does what the documentation says.

use bed::in_vain;
use distlock::Flavour;
use distlock_support::agent::Kind;
use serde_json::json;

use crate::fenced::{counter, forget, java_fenced};
use crate::multi::{java_multi, named};
use crate::rig::{NEVER, Rig, channel, lasting, ms, replied, until_is};
use crate::several::take;

/// Redisson ignores the lease of `lockAndGetToken` and uses the watchdog's. Our lock uses the requested lease.
pub async fn fenced_acquire_uses_the_requested_lease_and_wait(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let client = rig.client().await;
    let (a, b) = ("java:x", "rust:x");
    let java = java_fenced(&rig, a, 1);
    assert_eq!(replied(java.start("lock_token", json!({"lease_ms": 1_000_000}))).await.value, 1);
    let guard = client.fenced(b).lock_leased(ms(1_000_000)).await.expect("lock_leased");
    assert_eq!(guard.fencing_token().ok(), Some(1));
    let (in_java, with_us) = (rig.admin.pttl(a).await, rig.admin.pttl(b).await);
    assert!(in_java > 1_000_000, "Redisson has learnt it: {in_java} ms");
    assert!((0..=1_000_000).contains(&with_us), "{version}: we set {with_us} ms");
    replied(java.unlock()).await;
    guard.unlock().await.expect("unlock");

    // Without a time, Redisson's `tryLockAndGetToken` waits without a limit. Our `try_lock` does not wait.
    let guard = take(&client.fenced(a)).await;
    let mut theirs = java.start("lock_token", json!({"try": true}));
    rig.listeners(&channel(a), 1).await;
    assert_eq!(theirs.within(ms(0)).await, None, "Redisson does not wait any more");
    assert!(client.fenced(a).try_lock().await.expect("try_lock").is_none());
    let token = guard.fencing_token().expect("a token");
    guard.unlock().await.expect("unlock");
    assert_eq!(replied(theirs).await.value, token + 1);
    replied(java.unlock()).await;
    forget(&rig, &[a, b]).await;
    rig.end([client]).await;
}

/// An unknown owner holds the lock without a TTL. Redisson treats the refusal as a grant with the token -1. Our client
/// waits.
pub async fn fenced_refusal_returns_no_token(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let name = "endless";
    rig.admin.cmd::<()>(&["HSET", name, "71b96ce8-2746-4c3a-9d0e-0123456789ab:1", "1"]).await;
    let java = java_fenced(&rig, name, 1);
    assert_eq!(replied(java.start("lock_token", json!({}))).await.value, -1);
    assert_eq!(java.is_held().await, Ok(false));
    let lock = client.fenced(name);
    assert!(lock.try_lock().await.expect("try_lock").is_none());
    let outcome = lock.lock_for(ms(150)).await;
    assert!(in_vain(&outcome), "lock_for: {outcome:?}");
    assert_eq!(lock.last_token().await.expect("last_token"), 0);
    rig.admin.cmd::<()>(&["DEL", name]).await;
    rig.end([client]).await;
}

/// Redisson's `delete()` deletes the counter, and the next section has number 1 again. A `force_unlock` of Java's leaves
/// the counter. Java's locks of other flavours exclude our fenced lock, and do not count.
pub async fn fenced_counter_survives_java_force_and_other_flavours(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let name = "section";
    let (java, lock) = (java_fenced(&rig, name, 1), client.fenced(name));
    for token in 1..=2 {
        assert_eq!(java.lock_token().await, Ok(token));
        replied(java.unlock()).await;
    }
    assert_eq!(java.lock_token().await, Ok(3));
    assert_eq!(replied(java.start("delete", json!({}))).await.value, true);
    assert_eq!(java.token().await, Ok(0));
    let first = take(&lock).await;
    assert_eq!(first.fencing_token().ok(), Some(1), "the storage would refuse this one for long");
    assert_eq!(java.force_unlock().await, Ok(true));
    drop(first);
    for (kind, flavour) in [(Kind::Reentrant, Flavour::Reentrant), (Kind::Spin, Flavour::Spin)] {
        let other = rig.agents[0].at(kind, name, 2);
        replied(other.lock()).await;
        assert!(lock.try_lock().await.expect("try_lock").is_none());
        replied(other.unlock()).await;
        let other = take(&*client.lock(flavour, name)).await;
        assert_eq!(java.try_lock().await, Ok(false));
        other.unlock().await.expect("unlock");
    }
    assert_eq!(java.lock_token().await, Ok(2));
    replied(java.unlock()).await;
    forget(&rig, &[name]).await;
    rig.end([client]).await;
}

/// Redisson's multi lock sets its lease as TTL on the counter of a fenced member. Our next acquire removes the TTL. If
/// the counter expires earlier, tokens restart at 1.
pub async fn fenced_acquire_removes_the_ttl_of_javas_multi_lock(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for (letter, lease, next) in [("a", NEVER, 3), ("b", ms(300), 1)] {
        let names = named("member", letter);
        let (name, java) = (names[0].as_str(), java_multi(&rig, 0, Kind::Fenced, &names, 1));
        let section = async |token: u64| {
            let guard = take(&client.fenced(name)).await;
            assert_eq!(guard.fencing_token().ok(), Some(token), "{name}");
            guard.unlock().await.expect("unlock");
        };
        section(1).await;
        assert_eq!(java.try_lock_for(ms(0), lease).await, Ok(true));
        if next == 1 {
            for key in [name.to_owned(), counter(name)] {
                until_is(&format!("{key} lapsed"), async || rig.admin.exists(&key).await, |there| !there).await;
            }
        } else {
            let end = rig.admin.pttl(&counter(name)).await;
            assert!(end >= 0, "{version}: Redisson has learnt it: the counter of {name} has {end} ms");
            replied(java.unlock()).await;
        }
        section(next).await;
        assert_eq!(rig.admin.pttl(&counter(name)).await, -1, "the counter of {name} was not mended");
        forget(&rig, &[name]).await;
    }
    rig.end([client]).await;
}

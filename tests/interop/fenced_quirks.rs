//! Differences between Redisson's fenced lock and its documentation. Our lock does what the documentation says.

use bed::in_vain;
use distlock::{Acquire, DistLock as _, Flavour, MultiLock};
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
    assert_eq!(guard.token(), Some(1));
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
    let token = guard.token().expect("a token");
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

/// Redisson's `delete()` deletes the counter, and the next section has number 1 again. In this crate nothing deletes
/// the counter: neither `force_unlock`, nor the end of a lease, nor a lock of another flavour under the same name.
/// Locks of other flavours do not count.
pub async fn fenced_counter_survives_force_expiry_and_other_flavours(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (a, b) = ("java:x", "rust:x");
    let java = java_fenced(&rig, a, 1);
    for token in 1..=3 {
        assert_eq!(java.lock_token().await, Ok(token));
        replied(java.unlock()).await;
    }
    assert_eq!(java.lock_token().await, Ok(4));
    assert_eq!(replied(java.start("delete", json!({}))).await.value, true);
    assert_eq!(java.token().await, Ok(0));
    let after = take(&client.fenced(a)).await;
    assert_eq!(after.token(), Some(1), "the storage would refuse this one for long");
    after.unlock().await.expect("unlock");

    let lock = client.fenced(b);
    let first = take(&lock).await;
    assert_eq!(first.token(), Some(1));
    assert!(lock.force_unlock().await.expect("force_unlock"));
    assert!(first.unlock().await.is_err());
    assert_eq!(lock.last_token().await.expect("last_token"), 1);
    let second = take(&lock).await;
    assert_eq!(second.token(), Some(2));
    assert_eq!(java_fenced(&rig, b, 1).force_unlock().await, Ok(true));
    drop(second);
    let third = lock.acquire(Acquire::new().lease(NEVER)).await.expect("acquire").expect("a free lock");
    assert_eq!(third.token(), Some(3));
    assert!(rig.admin.cmd::<bool>(&["PEXPIRE", b, "80"]).await, "the lock is not there");
    until_is("a lapsed lease", async || rig.admin.exists(b).await, |there| !there).await;
    drop(third);
    // Other flavours exclude the fenced lock, and do not change the counter.
    for (kind, flavour) in [(Kind::Reentrant, Flavour::Reentrant), (Kind::Spin, Flavour::Spin)] {
        let other = rig.agents[0].at(kind, b, 2);
        replied(other.lock()).await;
        assert!(lock.try_lock().await.expect("try_lock").is_none());
        replied(other.unlock()).await;
        let other = take(&*client.lock(flavour, b)).await;
        assert_eq!(java_fenced(&rig, b, 1).try_lock().await, Ok(false));
        other.unlock().await.expect("unlock");
    }
    assert_eq!(java_fenced(&rig, b, 1).lock_token().await, Ok(4));
    replied(java_fenced(&rig, b, 1).unlock()).await;
    forget(&rig, &[a, b]).await;
    rig.end([client]).await;
}

/// Redisson's multi lock sets its lease as TTL on the counter of a fenced member. Our next acquire removes the TTL,
/// unless the counter has expired. Then tokens restart at 1. Our multi lock sets no TTL.
pub async fn fenced_counter_gets_no_ttl_from_our_multi_lock(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (a, b, c) = ("java:a:x", "java:b:x", "rust:a:x");
    let sections = async |name: &str, from: u64| {
        for token in from..from + 3 {
            let guard = take(&client.fenced(name)).await;
            assert_eq!(guard.token(), Some(token));
            guard.unlock().await.expect("unlock");
        }
    };
    for name in [a, b, c] {
        sections(name, 1).await;
    }
    // One counter ends within an hour, the other soon.
    let lock_of = |letter: &str| java_multi(&rig, 0, Kind::Fenced, &named("java", letter), 1);
    let java = lock_of("a");
    assert_eq!(java.try_lock_for(ms(0), NEVER).await, Ok(true));
    assert_eq!(lock_of("b").try_lock_for(ms(0), ms(300)).await, Ok(true));
    let multi = MultiLock::of(vec![client.lock(Flavour::Fenced, c)]);
    let guard = multi.acquire(Acquire::new().wait(NEVER).lease(NEVER)).await.expect("acquire").expect("the lock");
    assert_eq!(guard.members()[0].token, Some(4));
    let end = rig.admin.pttl(&counter(a)).await;
    assert!(end >= 0, "{version}: Redisson has learnt it: the counter of {a} has {end} ms");
    assert_eq!(rig.admin.pttl(&counter(c)).await, -1, "the counter of {c} has an end");
    guard.unlock().await.expect("unlock");
    replied(java.unlock()).await;

    sections(a, 5).await;
    assert_eq!(rig.admin.pttl(&counter(a)).await, -1, "the counter of {a} was not mended");
    for key in [b.to_owned(), counter(b)] {
        until_is(&format!("{key} lapsed"), async || rig.admin.exists(&key).await, |there| !there).await;
    }
    sections(b, 1).await;
    sections(a, 8).await;
    sections(c, 5).await;
    forget(&rig, &[a, b, c]).await;
    rig.end([client]).await;
}

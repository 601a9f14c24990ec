//! Our multi lock and Redisson's under the same names.

use std::sync::Arc;

use bed::in_vain;
use distlock::{Acquire, Client, DistLock, Error};
use distlock_support::agent::{AgentOptions, JavaLock, Kind};

use crate::counter::count_together;
use crate::listener::Listener;
use crate::reentry::Step::{self, Leased, Lock, Try, TryLeased, Unlock};
use crate::reentry::{Left, Ours, Theirs};
use crate::rig::{LATCH, NEVER, Rig, had, lasting, ms, replied, soon, until, until_is};
use crate::rw_rig::STALL;
use crate::several::{hang_up, is_javas, is_ours, may_have_retried, take};

const ROWS: [&[Step]; 4] = [
    &[Lock, Unlock],
    &[Lock, Lock, Unlock, Unlock],
    &[Leased(8_000), Unlock],
    &[Try, Unlock, TryLeased(7_000), Unlock],
];

pub fn java_multi(rig: &Rig, agent: usize, member: Kind, names: &[String], thread: i64) -> JavaLock {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rig.agents[agent].at_all(false, member, &names, thread)
}

pub fn multi(client: &Client, names: &[String]) -> Arc<dyn DistLock> {
    Arc::new(client.multi(names))
}

/// `<prefix>:a:x` and so on, in this order.
pub fn named(prefix: &str, letters: &str) -> Vec<String> {
    letters.chars().map(|letter| format!("{prefix}:{letter}:x")).collect()
}

/// After every step each member has the same fields, counts and leases as with Redisson, and as many messages were
/// sent.
pub async fn multi_state_after_each_step_matches_redisson(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let (client, listener) = (rig.client().await, Listener::open(rig.server.addr()).await);
    let mut compared = 0;
    for (number, steps) in ROWS.iter().enumerate() {
        let (a, b) = (named(&format!("java:{number}"), "acb"), named(&format!("rust:{number}"), "acb"));
        let theirs = Theirs::of(&rig, &listener, "", java_multi(&rig, 0, Kind::Reentrant, &a, 7));
        let mut ours = Ours::of(&rig, &listener, "", multi(&client, &b), client.owner());
        for (at, step) in steps.iter().enumerate() {
            let took = theirs.act(*step).await;
            if may_have_retried(*step, took) {
                listener.take(&rig.admin).await;
            }
            rig.latches_gone().await;
            let messages = listener.take(&rig.admin).await.len();
            ours.act(*step).await;
            assert_eq!(listener.take(&rig.admin).await.len(), messages, "{version}, step {at} of {steps:?}");
            for (a, b) in a.iter().zip(&b) {
                let what = format!("{version}, {b}, step {at} of {steps:?}");
                let mut left = [Left::look(&rig.admin, a, &listener).await, Left::look(&rig.admin, b, &listener).await];
                left.iter_mut().for_each(|left| left.others.retain(|key| !key.starts_with(LATCH)));
                left[1].assert_like(&what, &left[0]);
                compared += 1;
            }
        }
    }
    println!("{version}: {compared} states compared");
    drop(listener);
    rig.end([client]).await;
}

/// Two clients of Java's list the names in one order, and four of our tasks in other orders. The count is exact, and no
/// deadlock is permanent. If Java uses our order (sorted keys), there are no long waits either.
pub async fn multi_counter_is_exact_with_reversed_lists(version: &str) {
    let rig = Rig::start(vec![AgentOptions::version(version); 2]).await;
    let clients = [rig.client().await, rig.client().await];
    let (straight, mixed, reversed) = (named("m", "abc"), named("m", "bca"), named("m", "cba"));
    // With different orders, Redisson's own clients would wait for each other until their time runs out.
    let java = |names| [0, 1].map(|agent| java_multi(&rig, agent, Kind::Reentrant, names, 5));
    let ours = || {
        let lists = [(0, &reversed), (0, &mixed), (1, &straight), (1, &reversed)];
        lists.map(|(at, names)| multi(&clients[at], names)).to_vec()
    };
    let what = format!("{version}, multi locks, Java's list in our order");
    count_together(&what, &rig, &java(&straight), ours(), (40, 40)).await;
    if version == "4.7.0" {
        // Each side may hold what the other waits for, until one side gives up. Our side gives up after a second or
        // two.
        let what = format!("{version}, multi locks, Java's list against our order");
        count_together(&what, &rig, &java(&reversed)[..1], ours()[1..3].to_vec(), (2, 8)).await;
    }
    rig.end(clients).await;
}

/// A third client holds one member. Neither side acquires, and neither leaves another member held.
pub async fn multi_acquire_holds_all_members_or_none(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let names = named("all", "abc");
    let (java, ours) = (java_multi(&rig, 0, Kind::Reentrant, &names, 1), multi(&client, &names));
    let only = async |held: &[&String], is_it: fn(&str) -> bool| {
        for name in &names {
            let there = held.contains(&name);
            let fine = |held: &Vec<String>| held.len() == usize::from(there) && held.iter().all(|one| is_it(one));
            until_is(name, async || rig.admin.hgetall(name).await.into_keys().collect::<Vec<_>>(), fine).await;
        }
    };
    for held in &names {
        let third = rig.java(held, 9);
        replied(third.lock()).await;
        for wait in [0, 120] {
            let outcome = ours.lock_for(ms(wait)).await;
            assert!(in_vain(&outcome), "lock_for, while {held} is held: {outcome:?}");
            only(&[held], is_javas).await;
        }
        replied(third.unlock()).await;
        let third = take(&client.reentrant(held)).await;
        assert_eq!(java.try_lock().await, Ok(false));
        assert_eq!(had(java.start_try_lock(ms(120), None).await), None);
        only(&[held], is_ours).await;
        third.unlock().await.expect("unlock");
    }
    let guard = ours.lock().await.expect("lock");
    only(&names.iter().collect::<Vec<_>>(), is_ours).await;
    assert_eq!(had(java.start_try_lock(ms(50), None).await), None);
    guard.unlock().await.expect("unlock");
    replied(java.lock()).await;
    only(&names.iter().collect::<Vec<_>>(), is_javas).await;
    let outcome = ours.lock_for(ms(50)).await;
    assert!(in_vain(&outcome), "lock_for, while all are held: {outcome:?}");
    replied(java.unlock()).await;
    hang_up(&rig).await;
    rig.end([client]).await;
}

/// Redisson's unlock stops at the first failed member, and the later members stay held. Our unlock releases all members
/// and then reports the error.
pub async fn multi_release_continues_after_a_failed_member(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (a, b) = (named("java", "abc"), named("rust", "abc"));
    let java = java_multi(&rig, 0, Kind::Reentrant, &a, 1);
    replied(java.lock()).await;
    let guard = multi(&client, &b).lock().await.expect("lock");
    for names in [&a, &b] {
        assert!(rig.admin.cmd::<bool>(&["DEL", &names[1]]).await);
    }
    assert_eq!(java.unlock().await.expect_err("a member is gone").error, "IllegalMonitorStateException");
    let error = guard.unlock().await.expect_err("a member is gone");
    assert!(matches!(error, Error::NotHeld { .. } | Error::Lost { .. }), "{error:?}");
    until_is("what is left", async || rig.keys().await, |left| *left == [a[2].clone()]).await;
    replied(rig.java(&a[2], 1).unlock()).await;
    rig.end([client]).await;
}

/// Redisson's `lock(lease, unit)` converts the lease to milliseconds again at every attempt. With a lease of one
/// second, the second attempt holds for a quarter of an hour. Our lock uses the requested lease.
pub async fn multi_lease_is_set_as_requested(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (a, b) = (named("java", "ab"), named("rust", "ab"));
    let third = take(&client.reentrant(&a[0])).await;
    let java = java_multi(&rig, 0, Kind::Reentrant, &a, 1);
    // One attempt sends two or three commands, and waits for half a second to one second.
    let before = rig.scripts().await;
    let theirs = java.start("lock", serde_json::json!({"lease_s": 1}));
    rig.scripts_since(before, 4).await;
    third.unlock().await.expect("unlock");
    replied(theirs).await;
    for name in &a {
        let left = rig.admin.pttl(name).await;
        assert!(left > 100_000, "{version}: Redisson has learnt it: {name} has {left} ms");
    }
    replied(java.unlock()).await;

    let third = take(&client.reentrant(&b[0])).await;
    let lock = multi(&client, &b);
    let ours = tokio::spawn(async move { lock.lock_leased(ms(100_000)).await });
    rig.waiting(&client, 1).await;
    third.unlock().await.expect("unlock");
    let guard = soon(ours).await.expect("our task").expect("lock_leased");
    for name in &b {
        let left = rig.admin.pttl(name).await;
        assert!((0..=100_000).contains(&left), "{version}: {name} has {left} ms");
    }
    let _ = guard.unlock().await;
    rig.end([client]).await;
}

/// A member is a read lock. With a wait, Redisson first acquires the member with a lease of twice the wait. Later it
/// sets the requested lease on the hash, but not on the hold's cover (see `rw_rig.rs`). Our lock sets the lease on
/// both.
pub async fn multi_read_member_has_the_same_lease_on_hash_and_cover(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let java = java_multi(&rig, 0, Kind::Read, &named("java", "a"), 1);
    let (wait, lease) = (2 * NEVER, NEVER);
    assert_eq!(java.try_lock_for(wait, lease).await, Ok(true));
    let ours = distlock::MultiLock::of(vec![client.lock(distlock::Flavour::Read, "rust:a:x")]);
    let guard = ours.acquire(Acquire::new().wait(wait).lease(lease)).await.expect("acquire").expect("the lock");
    let cover = async |name: &str| {
        let keys = rig.keys().await;
        let key = keys.iter().find(|key| key.starts_with(&format!("{{{name}}}:"))).expect("a cover");
        // Reads both leases at the same time.
        let both = "return {redis.call('pttl', KEYS[1]), redis.call('pttl', KEYS[2])}";
        rig.admin.cmd::<(i64, i64)>(&["EVAL", both, "2", name, key]).await
    };
    let ((hash, covered), (our_hash, we_covered)) = (cover("java:a:x").await, cover("rust:a:x").await);
    let ms = lease.as_millis() as i64;
    assert!(hash <= ms && covered > ms, "Redisson has learnt it: {hash} ms, {covered} ms");
    assert!(our_hash <= ms && (our_hash - we_covered).abs() < STALL, "ours: {our_hash} ms, {we_covered} ms");
    guard.unlock().await.expect("unlock");
    replied(java.unlock()).await;
    rig.end([client]).await;
}

/// A fair member: Redisson also sets the lease as TTL of the queue and its deadlines, so that waiters lose their
/// places. Our lock does not.
pub async fn multi_fair_member_sets_no_ttl_on_the_queue(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let lease = NEVER;
    let java = java_multi(&rig, 0, Kind::Fair, &named("java", "a"), 1);
    let theirs = queued(&rig, "java:a:x", 4, || java.start_try_lock(NEVER, Some(lease))).await;
    assert_eq!(replied(theirs).await.value, true);
    let ours = distlock::MultiLock::of(vec![client.lock(distlock::Flavour::Fair, "rust:a:x")]);
    let guard =
        queued(&rig, "rust:a:x", 5, || tokio::spawn(async move { ours.acquire(Acquire::new().lease(lease)).await }))
            .await;
    let guard = soon(guard).await.expect("our task").expect("acquire").expect("the lock");
    for key in ["redisson_lock_queue", "redisson_lock_timeout"] {
        let in_java = rig.admin.pttl(&format!("{key}:{{java:a:x}}")).await;
        assert!(in_java >= 0, "{version}: Redisson has learnt it: {key} has {in_java} ms");
        assert_eq!(rig.admin.pttl(&format!("{key}:{{rust:a:x}}")).await, -1, "{key}");
    }
    guard.unlock().await.expect("unlock");
    replied(java.unlock()).await;
    // Releases the lock for the second waiter of each queue.
    for (name, thread) in [("java:a:x", 4), ("rust:a:x", 5)] {
        // Runs on the waiter's thread, so it completes after the waiter's lock call.
        replied(rig.agents[0].at(Kind::Fair, name, thread).unlock()).await;
    }
    rig.end([client]).await;
}

/// Queues a head and a Java thread behind it, then releases the lock.
async fn queued<T>(rig: &Rig, name: &str, second: i64, head: impl FnOnce() -> T) -> T {
    let in_queue = async |count: u64| {
        let key = format!("redisson_lock_queue:{{{name}}}");
        until(name, async || rig.admin.cmd::<u64>(&["LLEN", &key]).await == count).await;
    };
    let held = rig.agents[0].at(Kind::Fair, name, 3);
    replied(held.lock()).await;
    let head = head();
    in_queue(1).await;
    drop(rig.agents[0].at(Kind::Fair, name, second).start_lock());
    in_queue(2).await;
    replied(held.unlock()).await;
    head
}

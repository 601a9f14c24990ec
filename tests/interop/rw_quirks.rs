//! Shows bugs with leases of Redisson's read-write lock, and that our lock does not have them.

use std::cell::Cell;
use std::time::Duration;

use bed::with_longer_waits;
use distlock::Client;
use distlock_support::agent::{AgentOptions, Kind};

use crate::rig::{NEVER, Rig, WATCHDOG, ms, renewed, replied, soon, until};
use crate::rw_rig::{Doc, HALVES, Seen, enter, half_of, refused, sits, wait_for_half};

const WATCHDOG_MS: i64 = WATCHDOG.as_millis() as i64;

/// Asserts that the state stays fine until the event, and for one more interval of the watchdog.
async fn stays_until(doc: &Doc<'_>, fine: impl Fn(&Seen) -> bool, event: impl Future<Output = ()>) {
    let event = async {
        event.await;
        tokio::time::sleep(WATCHDOG / 3).await;
    };
    let mut event = std::pin::pin!(event);
    loop {
        let seen = doc.look().await;
        assert!(fine(&seen), "{}: {seen:?}", doc.name);
        tokio::select! {
            () = &mut event => return,
            () = tokio::time::sleep(ms(15)) => {}
        }
    }
}

async fn lapses(doc: &Doc<'_>, what: &str) {
    let gone = async || doc.look().await.fields.is_empty();
    until(&format!("{} to lapse: Redisson has learnt to {what}", doc.name), gone).await;
}

/// Redisson's watchdog cuts the lease of the whole lock to the watchdog's lease. When the reader that it renews dies, a
/// reader with a long lease loses the lock, too. Our reader restores the lock's lease, and our watchdog cuts no other
/// reader's lease.
pub async fn rw_long_read_leases_outlive_javas_watchdog(version: &str) {
    let options = || AgentOptions::version(version);
    let rig = Rig::start(vec![options(), options().in_own_process()]).await;
    let client = rig.watched_client().await;
    let [theirs, ours, beside] = ["theirs", "ours", "beside"].map(|name| Doc::new(&rig, name));
    let long = 2 * WATCHDOG_MS;

    replied(theirs.java(0, Kind::Read, 1).lock_for(NEVER)).await;
    let guard = enter(&client, Kind::Read, ours.name, &client.owner(), Some(NEVER)).await;
    replied(beside.java(0, Kind::Read, 1).lock_for(NEVER)).await;
    for doc in [theirs, ours] {
        replied(doc.java(1, Kind::Read, 1).lock()).await;
    }
    let watching = enter(&client, Kind::Read, beside.name, &client.owner(), None).await;

    // Java cuts both leases. Our client restores the lease of our lock again and again.
    let last = Cell::new((i64::MAX, 0));
    let mended_twice = async || {
        let (left, mended) = last.get();
        let ttl = ours.look().await.ttl;
        assert!(ttl > 0, "the lock lapsed under a reader with a long lease");
        last.set((ttl, mended + u32::from(ttl > long && left <= WATCHDOG_MS)));
        assert!(beside.look().await.ttl > long, "we cut the lease of a reader of Java's");
        refused(&client, Kind::Write, ours.name).await;
        last.get().1 >= 2
    };
    until("a lease that Java cuts and we mend, twice", mended_twice).await;
    assert!(theirs.look().await.ttl <= WATCHDOG_MS, "Redisson cuts no lease any more");

    rig.agents[1].kill9().await;
    let lapsed = async {
        lapses(&theirs, "keep up long leases").await;
        let covers: Vec<_> = theirs.look().await.covers.values().copied().collect();
        assert!(covers.iter().any(|left| *left > long), "the reader's own lease was over: {covers:?}");
        // The Java reader still believes that it holds, but a writer acquires.
        let writer = half_of(&client, Kind::Write, theirs.name).try_lock().await.expect("try_lock");
        writer.expect("the lock lapsed").unlock().await.expect("unlock");
        rig.admin.cmd::<()>(&["DEL", &theirs.cover(&theirs.java_owner(0, 1), 1)]).await;
    };
    stays_until(&ours, |seen| seen.mode() == Some("read") && seen.ttl > 0, lapsed).await;
    assert!(ours.look().await.ttl > long);
    assert_eq!(ours.java(0, Kind::Write, 2).try_lock().await, Ok(false));
    assert!(guard.is_held());
    guard.unlock().await.expect("unlock");
    watching.unlock().await.expect("unlock");
    replied(beside.java(0, Kind::Read, 1).unlock()).await;
    rig.end([client]).await;
}

/// An owner writes under the watchdog, reads with a long lease, and releases the write. In Redisson, the lock then ends
/// with the lease of the write's last renewal.
pub async fn rw_leased_read_keeps_its_lease_after_a_downgrade(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let (theirs, ours) = (Doc::new(&rig, "theirs"), Doc::new(&rig, "ours"));
    let [read, write] = HALVES.map(|half| theirs.java(0, half, 1));
    replied(write.lock()).await;
    replied(read.lock_for(NEVER)).await;
    let owner = client.owner();
    let writing = enter(&client, Kind::Write, ours.name, &owner, None).await;
    let reading = enter(&client, Kind::Read, ours.name, &owner, Some(NEVER)).await;
    theirs.until("a renewal that cuts", |seen| seen.ttl <= WATCHDOG_MS).await;
    assert_eq!(client.renew_now().await.lost, 0);
    replied(write.unlock()).await;
    writing.unlock().await.expect("unlock");
    assert_eq!(theirs.look().await.mode(), Some("read"));
    let fine = |seen: &Seen| seen.mode() == Some("read") && seen.ttl > WATCHDOG_MS;
    stays_until(&ours, fine, lapses(&theirs, "keep a lease that it gave")).await;
    let covers = theirs.look().await.covers;
    assert!(covers.values().all(|left| *left > 50_000) && covers.len() == 1, "{covers:?}");
    assert!(reading.is_held());
    reading.unlock().await.expect("unlock");
    rig.admin.cmd::<()>(&["DEL", &theirs.cover(&theirs.java_owner(0, 1), 1)]).await;
    rig.end([client]).await;
}

/// An owner downgrades to a short lease and dies. The hash keeps the writer's longer lease, and Java's writers wait for
/// its end. Our writers see that no reader has a cover, and both halves report the lock as free.
pub async fn rw_our_writer_acquires_after_dead_readers_cover_expires(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    for java_dies in [true, false] {
        with_longer_waits(ms(500), async |lease| dead_reader(&rig, &client, java_dies, lease).await).await;
    }
    rig.end([client]).await;
}

/// Returns `None` if the dead reader's lease ended before a writer arrived, because the machine was too slow.
async fn dead_reader(rig: &Rig, client: &Client, java_dies: bool, lease: Duration) -> Option<()> {
    let name = format!("dead:{java_dies}");
    let doc = Doc::new(rig, &name);
    if java_dies {
        replied(doc.java(0, Kind::Write, 1).lock_for(NEVER)).await;
        replied(doc.java(0, Kind::Read, 1).lock_for(lease)).await;
        replied(doc.java(0, Kind::Write, 1).unlock()).await;
    } else {
        let owner = client.owner();
        let writing = enter(client, Kind::Write, &name, &owner, Some(NEVER)).await;
        let _dead = enter(client, Kind::Read, &name, &owner, Some(lease)).await.into_owner();
        writing.unlock().await.expect("unlock");
    }
    let waiter = wait_for_half(client, Kind::Write, &name);
    until("our writer waits", async || waiter.is_finished() || client.stats().waiting == 1).await;
    let seen = doc.look().await;
    let in_time = !seen.covers.is_empty();
    doc.until("the cover over", |seen| seen.covers.is_empty()).await;
    if in_time {
        assert!(seen.mode() == Some("read") && seen.ttl > WATCHDOG_MS, "{seen:?}");
        assert_eq!(doc.java(0, Kind::Write, 2).try_lock().await, Ok(false), "Redisson looks at covers");
    }
    let guard = soon(waiter).await.expect("the waiter");
    assert_eq!(doc.look().await.mode(), Some("write"));
    assert!(guard.is_held());
    assert_eq!(doc.java(0, Kind::Read, 3).try_lock().await, Ok(false));
    guard.unlock().await.expect("unlock");
    doc.is_gone().await;
    in_time.then_some(())
}

/// Holds are ended by `force_unlock`. Redisson still tries to renew them first, so later holds expire although they are
/// watched.
pub async fn rw_forced_holds_do_not_stop_renewal_of_later_holds(version: &str) {
    const DEEP: usize = 6;
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let other = rig.client().await;
    let (theirs, ours) = (Doc::new(&rig, "theirs"), Doc::new(&rig, "ours"));
    let owner = client.owner();
    let mut stale = Vec::new();
    for _ in 0..DEEP {
        replied(theirs.java(0, Kind::Write, 1).lock()).await;
        stale.push(enter(&client, Kind::Write, ours.name, &owner, None).await);
    }
    assert!(half_of(&other, Kind::Write, theirs.name).force_unlock().await.expect("force_unlock"));
    assert_eq!(ours.java(0, Kind::Write, 9).force_unlock().await, Ok(true));
    replied(theirs.java(0, Kind::Write, 2).lock()).await;
    let guard = enter(&client, Kind::Write, ours.name, &client.owner(), None).await;
    let fine = |seen: &Seen| seen.count(&format!("{}:write", guard.owner())) == 1;
    stays_until(&ours, fine, lapses(&theirs, "renew who holds")).await;
    assert!(guard.is_held() && !stale.iter().any(distlock::Guard::is_held));
    drop(stale);
    guard.unlock().await.expect("unlock");
    rig.end([client, other]).await;
}

/// A reader without a cover (see `rw_rig.rs`) counts as dead on both sides: the release of the last live reader admits
/// the other side's writer. Therefore our client renews covers.
pub async fn rw_reader_without_cover_counts_as_dead(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    for java_is_bare in [true, false] {
        let name = format!("bare:{java_is_bare}");
        let doc = Doc::new(&rig, &name);
        let (java, owner) = (doc.java(0, Kind::Read, 1), client.owner());
        replied(java.lock()).await;
        let guard = enter(&client, Kind::Read, &name, &owner, None).await;
        if java_is_bare {
            let writer = doc.java_waits(0, Kind::Write, 2).await;
            rig.admin.cmd::<()>(&["DEL", &doc.cover(&doc.java_owner(0, 1), 1)]).await;
            guard.unlock().await.expect("unlock");
            replied(writer).await;
            replied(doc.java(0, Kind::Write, 2).unlock()).await;
            doc.is_gone().await;
            assert!(java.unlock().await.is_err());
        } else {
            let writer = doc.we_wait(&client, Kind::Write, 2).await;
            rig.admin.cmd::<()>(&["DEL", &doc.cover(owner.as_str(), 1)]).await;
            replied(java.unlock()).await;
            soon(writer).await.expect("the writer").unlock().await.expect("unlock");
            doc.is_gone().await;
            // A renewal may have reported the loss already.
            client.renew_now().await;
            assert!(!guard.is_held());
        }
    }
    rig.end([client]).await;
}

/// Before 4.0.0, Redisson's watchdog fails if any reader has re-entered. Redisson loses its own holds. Ours stay.
pub async fn rw_old_redisson_loses_only_its_own_holds(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let doc = Doc::new(&rig, "old");
    let owner = client.owner();
    let guard = enter(&client, Kind::Read, doc.name, &owner, None).await;
    let again = enter(&client, Kind::Read, doc.name, &owner, None).await;
    let java = doc.java(0, Kind::Read, 1);
    replied(java.lock()).await;
    let theirs = doc.java_owner(0, 1);
    doc.until("Java's cover over: it has learnt to renew", |seen| seen.covers_of(&theirs).count() == 0).await;
    let mut writer = doc.java(0, Kind::Write, 2).start_lock();
    renewed(&rig.admin, doc.name).await;
    assert_eq!(writer.within(ms(0)).await, None, "our reader was lost with Java's");
    assert!(guard.is_held() && doc.look().await.covers_of(owner.as_str()).count() == 2);
    again.unlock().await.expect("unlock");
    sits(&rig.agents[0], 2).await;
    guard.unlock().await.expect("unlock");
    replied(writer).await;
    assert!(java.unlock().await.is_err());
    replied(doc.java(0, Kind::Write, 2).unlock()).await;
    rig.end([client]).await;
}

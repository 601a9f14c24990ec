//! A lease that ends on one side lets the other in: right after its end, never before.

use std::io::Write as _;
use std::time::Duration;

use distlock::{Client, Error, Lost, NotHeld};
use distlock_support::agent::{AgentOptions, monotonic_ns};
use distlock_support::child::{self, Child};

use crate::rig::{BUSY, Rig, Times, channel, ms, replied, soon, wait_for};

const ROUNDS: usize = 12;
const LEASE: Duration = ms(150);
/// From the end of the lease to the lock in other hands: about 1 ms on a quiet machine.
const AFTER: Duration = ms(60);
/// Redis reckons in whole milliseconds.
const GRAIN: Duration = ms(1);

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Leases that nobody gives back.
pub async fn leases_that_lapse(version: &str) {
    let rig = Rig::alone_with(version).await;
    let client = rig.client().await;
    let (in_rust, in_java) = (java_lapses(&rig, &client).await, ours_lapses(&rig, &client).await);
    for (times, what) in [(in_rust, "a Java lease lapsed, taken in Rust"), (in_java, "our lease lapsed, taken in Java")]
    {
        times.tell(&format!("{version}: {what}"));
        assert!(times.median() <= AFTER && times.worst() <= BUSY, "{what}: late");
    }
    rig.end([client]).await;
}

async fn java_lapses(rig: &Rig, client: &Client) -> Times {
    let (name, java) = ("lapse:java", rig.java("lapse:java", 1));
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        let held = replied(java.start("lock", serde_json::json!({"lease_ms": LEASE.as_millis() as u64}))).await;
        let (had, guard) = soon(wait_for(client, name)).await.expect("the waiter");
        assert!(had + nanos(GRAIN) >= held.t0 + nanos(LEASE), "before the end of the lease");
        times.note(held.t1 + nanos(LEASE), had);
        let error = java.unlock().await.expect_err("it is ours now");
        assert_eq!(error.error, "IllegalMonitorStateException");
        assert!(guard.is_held());
        guard.unlock().await.expect("a lock held");
    }
    times
}

async fn ours_lapses(rig: &Rig, client: &Client) -> Times {
    let (name, java) = ("lapse:ours", rig.java("lapse:ours", 1));
    let (mut times, mut known_first) = (Times::default(), 0);
    for _ in 0..ROUNDS {
        let from = monotonic_ns();
        let guard = client.reentrant(name).lock_leased(LEASE).await.expect("a free lock");
        let sent = monotonic_ns();
        let lost = guard.lost();
        let taken = java.start_lock();
        // We know it before anybody else can have the lock.
        assert!(matches!(soon(lost).await, Error::Lost { why: Lost::Expired, .. }));
        let ended = monotonic_ns();
        assert!(!guard.is_held());
        let taken = replied(taken).await;
        assert!(taken.t1 + nanos(GRAIN) >= from + nanos(LEASE), "before the end of the lease");
        assert!(ended < taken.t1 + nanos(BUSY), "lost() is late");
        known_first += usize::from(ended <= taken.t1);
        times.note(sent + nanos(LEASE), taken.t1);
        match guard.unlock().await {
            Err(Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }) => assert_eq!(owner, rig.java_holder(1)),
            other => panic!("{other:?}"),
        }
        replied(java.unlock()).await;
    }
    // A busy machine may run either of them late in a round, but not us in most.
    println!("lost() came before the next holder had the lock in {known_first} of {ROUNDS} rounds");
    assert!(known_first > ROUNDS / 2, "lost() is late: before the next holder in {known_first} of {ROUNDS} rounds");
    times
}

const WATCHDOG: Duration = Duration::from_secs(1);
const TO_TAKE: &str = "INTEROP_LOCK";
const AT: &str = "INTEROP_URL";

/// Holders killed while the watchdog keeps their lock.
pub async fn the_killed_are_succeeded(version: &str) {
    let options = || AgentOptions { watchdog: Some(WATCHDOG), ..AgentOptions::version(version) };
    let rig = Rig::start(vec![options(), options()]).await;
    let client = rig.client().await;

    let name = "killed:ours";
    let mut holder = Child::spawn("expiry::a_holder_to_be_killed", &[(AT, &rig.server.url()), (TO_TAKE, name)]);
    holder.expect("held").await;
    let java = rig.java(name, 1);
    let mut taken = java.start_lock();
    assert_eq!(taken.within(2 * WATCHDOG).await, None, "it was not renewed");
    holder.kill9();
    let killed = monotonic_ns();
    let taken = replied(taken).await;
    in_the_last_lease(&format!("{version}: Rust killed, taken in Java"), killed, taken.t1);
    replied(java.unlock()).await;

    let name = "killed:java";
    let other = &rig.agents[1];
    let java = other.at(distlock_support::agent::Kind::Reentrant, name, 1);
    replied(java.lock()).await;
    let mut ours = wait_for(&client, name);
    rig.listeners(&channel(name), 1).await;
    assert!(tokio::time::timeout(2 * WATCHDOG, &mut ours).await.is_err(), "it was not renewed");
    other.kill9().await;
    let killed = monotonic_ns();
    let (had, guard) = soon(ours).await.expect("the waiter");
    in_the_last_lease(&format!("{version}: Java killed, taken in Rust"), killed, had);
    guard.unlock().await.expect("a lock held");
    rig.end([client]).await;
}

/// The lock was renewed at most a third of the watchdog (and somewhat for a late timer) before the end of its holder.
fn in_the_last_lease(what: &str, killed: u64, taken: u64) {
    let after = Duration::from_nanos(taken.saturating_sub(killed));
    println!("{what}: after {after:?}, with a watchdog of {WATCHDOG:?}");
    assert!(after >= WATCHDOG / 3, "{what}: too early for a lock that was renewed");
    assert!(after <= WATCHDOG + BUSY, "{what}: later than the lease");
}

/// The process that [`the_killed_are_succeeded`] kills; passes over in an ordinary run.
#[tokio::test]
async fn a_holder_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let builder = Client::builder(&set(AT)).watchdog(WATCHDOG).command_timeout(WATCHDOG / 3);
    let client = builder.connect().await.expect("the parent's server");
    let guard = client.reentrant(&set(TO_TAKE)).lock().await.expect("a free lock");
    child::say("held");
    let _ = std::io::stdout().flush();
    let lost = guard.lost().await;
    panic!("held until killed: {lost}");
}

//! A lease that ends on one side lets the other in, and not before its end.

use std::io::Write as _;
use std::time::Duration;

use distlock::{Client, Error, Lost, NotHeld};
use distlock_support::agent::{AgentOptions, Kind, monotonic_ns};
use distlock_support::child::{self, Child};

use crate::rig::{Rig, channel, ms, renewed, replied, soon, wait_for};

const ROUNDS: usize = 4;
const LEASE: Duration = ms(150);
/// Redis reckons in whole milliseconds.
const GRAIN: Duration = ms(1);

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Leases that nobody gives back.
pub async fn leases_that_lapse(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    java_lapses(&rig, &client).await;
    ours_lapses(&rig, &client).await;
    rig.end([client]).await;
}

async fn java_lapses(rig: &Rig, client: &Client) {
    let (name, java) = ("lapse:java", rig.java("lapse:java", 1));
    for _ in 0..ROUNDS {
        let held = replied(java.lock_for(LEASE)).await;
        let (had, guard) = soon(wait_for(client, name)).await.expect("the waiter");
        assert!(had + nanos(GRAIN) >= held.t0 + nanos(LEASE), "we are in before the end of Java's lease");
        let error = java.unlock().await.expect_err("it is ours now");
        assert_eq!(error.error, "IllegalMonitorStateException");
        assert!(guard.is_held());
        guard.unlock().await.expect("a lock held");
    }
}

async fn ours_lapses(rig: &Rig, client: &Client) {
    let (name, java) = ("lapse:ours", rig.java("lapse:ours", 1));
    for _ in 0..ROUNDS {
        let from = monotonic_ns();
        let guard = client.reentrant(name).lock_leased(LEASE).await.expect("a free lock");
        let lost = guard.lost();
        let taken = java.start_lock();
        assert!(matches!(soon(lost).await, Error::Lost { why: Lost::Expired, .. }));
        assert!(!guard.is_held());
        let taken = replied(taken).await;
        assert!(taken.t1 + nanos(GRAIN) >= from + nanos(LEASE), "Java is in before the end of our lease");
        match guard.unlock().await {
            Err(Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }) => assert_eq!(owner, rig.java_holder(1)),
            other => panic!("{other:?}"),
        }
        replied(java.unlock()).await;
    }
}

/// A holder renews every third of it.
const WATCHDOG: Duration = Duration::from_secs(6);
const TO_TAKE: &str = "INTEROP_LOCK";
const AT: &str = "INTEROP_URL";

/// Holders killed while the watchdog keeps their lock.
pub async fn the_killed_are_succeeded(version: &str) {
    let options = || AgentOptions { watchdog: Some(WATCHDOG), ..AgentOptions::version(version) };
    let rig = Rig::start(vec![options(), options().in_own_process()]).await;
    let client = rig.client().await;

    let name = "killed:ours";
    let mut holder = Child::spawn("expiry::a_holder_to_be_killed", &[(AT, &rig.server.url()), (TO_TAKE, name)]);
    holder.expect("held").await;
    let java = rig.java(name, 1);
    let mut taken = java.start_lock();
    renewed(&rig.admin, name).await;
    assert_eq!(taken.within(ms(0)).await, None, "Java is in beside us");
    holder.kill9();
    replied(taken).await;
    replied(java.unlock()).await;

    let name = "killed:java";
    let other = &rig.agents[1];
    replied(other.at(Kind::Reentrant, name, 1).lock()).await;
    let ours = wait_for(&client, name);
    rig.listeners(&channel(name), 1).await;
    renewed(&rig.admin, name).await;
    assert!(!ours.is_finished(), "we are in beside Java");
    other.kill9().await;
    let (_, guard) = soon(ours).await.expect("the waiter");
    guard.unlock().await.expect("a lock held");
    rig.end([client]).await;
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

//! A waiter in the other language acquires when a lease ends, and not earlier.

use std::io::Write as _;
use std::time::Duration;

use distlock::{Client, Error, Lost};
use distlock_support::agent::{AgentOptions, Kind};
use distlock_support::child::{self, Child};

use crate::rig::{NEVER, Rig, channel, connect, lasting, ms, renewed, replied, soon, wait_for};

const ROUNDS: usize = 4;
const LEASE: Duration = ms(150);

pub async fn expired_lease_admits_the_other_side(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let client = rig.client().await;
    java_lapses(&rig, &client).await;
    ours_lapses(&rig, &client).await;
    rig.end([client]).await;
}

async fn java_lapses(rig: &Rig, client: &Client) {
    let (name, java) = ("lapse:java", rig.java("lapse:java", 1));
    for _ in 0..ROUNDS {
        let from = rig.now().await;
        replied(java.lock_for(LEASE)).await;
        let guard = soon(wait_for(client, name)).await.expect("the waiter");
        let held_for = rig.lease_end(name).await - NEVER.as_millis() as i64 - from;
        assert!(held_for >= LEASE.as_millis() as i64, "we are in after {held_for} ms, before the end of Java's lease");
        let error = java.unlock().await.expect_err("it is ours now");
        assert_eq!(error.error, "IllegalMonitorStateException");
        assert!(guard.is_held());
        guard.unlock().await.expect("unlock");
    }
}

async fn ours_lapses(rig: &Rig, client: &Client) {
    let (name, java) = ("lapse:ours", rig.java("lapse:ours", 1));
    for _ in 0..ROUNDS {
        let from = rig.now().await;
        let guard = client.reentrant(name).lock_leased(LEASE).await.expect("lock_leased");
        let lost = guard.lost();
        let taken = java.start_lock();
        assert!(matches!(soon(lost).await, Error::Lost { why: Lost::Expired, .. }));
        assert!(!guard.is_held());
        replied(taken).await;
        let held_for = rig.lease_end(name).await - NEVER.as_millis() as i64 - from;
        assert!(held_for >= LEASE.as_millis() as i64, "Java is in after {held_for} ms, before the end of our lease");
        match guard.unlock().await {
            Err(Error::Lost { why: Lost::Expired, .. }) => {}
            other => panic!("{other:?}"),
        }
        replied(java.unlock()).await;
    }
}

const TO_TAKE: &str = "INTEROP_LOCK";
const AT: &str = "INTEROP_URL";

pub async fn waiter_acquires_after_holder_of_other_side_is_killed(version: &str) {
    let options = || AgentOptions::version(version);
    let rig = Rig::start(vec![options(), options().in_own_process()]).await;
    let client = rig.client().await;
    tokio::join!(ours_is_killed(&rig), java_is_killed(&rig, &client));
    rig.end([client]).await;
}

async fn ours_is_killed(rig: &Rig) {
    let name = "killed:ours";
    let mut holder = Child::spawn("expiry::holder_to_be_killed", &[(AT, &rig.server.url()), (TO_TAKE, name)]);
    holder.expect("held").await;
    let java = rig.java(name, 1);
    let mut taken = java.start_lock();
    renewed(&rig.admin, name).await;
    assert_eq!(taken.within(ms(0)).await, None, "Java is in beside us");
    holder.kill9();
    replied(taken).await;
    replied(java.unlock()).await;
}

async fn java_is_killed(rig: &Rig, client: &Client) {
    let (name, other) = ("killed:java", &rig.agents[1]);
    replied(other.at(Kind::Reentrant, name, 1).lock()).await;
    let ours = wait_for(client, name);
    rig.listeners(&channel(name), 1).await;
    renewed(&rig.admin, name).await;
    assert!(!ours.is_finished(), "we are in beside Java");
    other.kill9().await;
    let guard = soon(ours).await.expect("the waiter");
    guard.unlock().await.expect("unlock");
}

/// The process that [`waiter_acquires_after_holder_of_other_side_is_killed`] kills.
#[tokio::test]
async fn holder_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let client = connect(bed::builder(&set(AT))).await;
    let guard = client.reentrant(&set(TO_TAKE)).lock().await.expect("lock");
    child::say("held");
    let _ = std::io::stdout().flush();
    let lost = guard.lost().await;
    panic!("held until killed: {lost}");
}

//! A waiter in the other language acquires when a lease ends, and not earlier.

use std::time::Duration;

use distlock::{Client, Error, Lost};

use crate::rig::{NEVER, Rig, lasting, ms, replied, soon, wait_for};

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

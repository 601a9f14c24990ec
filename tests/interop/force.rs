//! One language frees the other's lock by `force_unlock`. Waiters acquire, and holders learn of the loss.

use distlock::{DistLock as _, Error, Lost};

use crate::rig::{Rig, channel, lasting, replied, soon, wait_for};

/// Java forces our lock and acquires it. Our guard learns of the loss at its next renewal, which leaves Java's lock
/// unchanged.
pub async fn our_guard_reports_loss_after_java_force_unlock(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let client = rig.client().await;
    let name = "forced:ours";
    let guard = client.reentrant(name).lock().await.expect("lock");
    let waiter = rig.java(name, 1).start_lock();
    rig.listeners(&channel(name), 1).await;
    assert_eq!(rig.java(name, 2).force_unlock().await, Ok(true));
    replied(waiter).await;
    assert_eq!(client.renew_now().await.lost, 1);
    let error = soon(guard.lost()).await;
    assert!(matches!(error, Error::Lost { why: Lost::Gone, .. }), "{error:?}");
    assert!(!guard.is_held());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    let held = rig.admin.hgetall(name).await;
    assert_eq!(held.into_iter().collect::<Vec<_>>(), [(rig.java_holder(1), "1".to_owned())]);
    replied(rig.java(name, 1).unlock()).await;
    rig.end([client]).await;
}

pub async fn force_unlock_admits_waiters_of_both_languages(version: &str) {
    let rig = Rig::start(vec![lasting(version)]).await;
    let client = rig.client().await;

    let (holder, waiter) = (rig.java("a", 1), rig.java("a", 2));
    replied(holder.lock()).await;
    let before = rig.scripts().await;
    let waiting = waiter.start_lock();
    rig.scripts_since(before, 2).await;
    assert!(client.reentrant("a").force_unlock().await.expect("force_unlock"));
    replied(waiting).await;
    assert_eq!(holder.unlock().await.expect_err("forced open").error, "IllegalMonitorStateException");
    replied(waiter.unlock()).await;
    assert!(!client.reentrant("a").force_unlock().await.expect("force_unlock"), "it was free");

    let holder = rig.java("b", 1);
    replied(holder.lock()).await;
    let waiting = wait_for(&client, "b");
    rig.listeners(&channel("b"), 1).await;
    assert!(client.reentrant("b").force_unlock().await.expect("force_unlock"));
    let guard = soon(waiting).await.expect("the waiter");
    assert_eq!(holder.unlock().await.expect_err("forced open").error, "IllegalMonitorStateException");
    assert_eq!(holder.is_held().await, Ok(false));
    guard.unlock().await.expect("unlock");

    replied(rig.java("c", 1).lock()).await;
    let waiting = wait_for(&client, "c");
    rig.listeners(&channel("c"), 1).await;
    assert_eq!(rig.java("c", 2).force_unlock().await, Ok(true));
    let guard = soon(waiting).await.expect("the waiter");
    guard.unlock().await.expect("unlock");

    let other = rig.client().await;
    let held = other.reentrant("d").lock().await.expect("lock");
    let waiting = wait_for(&client, "d");
    rig.listeners(&channel("d"), 1).await;
    assert_eq!(rig.java("d", 1).force_unlock().await, Ok(true));
    let guard = soon(waiting).await.expect("the waiter");
    assert_eq!(other.renew_now().await.lost, 1);
    assert!(!held.is_held() && guard.is_held());
    drop(held);
    guard.unlock().await.expect("unlock");
    assert_eq!(rig.java("d", 1).force_unlock().await, Ok(false));
    rig.end([client, other]).await;
}

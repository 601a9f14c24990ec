//! Owners across languages: the text of a Java holder is an owner in this crate.

use distlock::{Acquire, Error, NotHeld, Owner, Released};

use crate::rig::{Rig, channel, replied, soon, wait_for};

/// Our client releases a hold of Java's. It knows only the text of the holder.
pub async fn java_hold_is_released_by_our_client(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (name, lock) = ("theirs", client.reentrant("theirs"));
    let (java, other) = (rig.java(name, 7), rig.java(name, 8));
    let owner: Owner = rig.java_holder(7).parse().expect("an owner");
    replied(java.lock()).await;
    replied(java.lock()).await;
    assert_eq!(lock.hold_count(&owner).await.expect("hold_count"), 2);

    let before = rig.scripts().await;
    let waiter = other.start_lock();
    rig.scripts_since(before, 2).await;
    rig.listeners(&channel(name), 1).await;
    assert_eq!(lock.release(&owner).await.expect("release"), Released::StillHeld(1));
    assert_eq!(java.hold_count().await, Ok(1));
    assert_eq!(lock.release(&owner).await.expect("release"), Released::Free);
    replied(waiter).await;
    match lock.release(&owner).await {
        Err(Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }) => assert_eq!(owner, rig.java_holder(8)),
        other => panic!("{other:?}"),
    }
    assert_eq!(java.unlock().await.expect_err("given back").error, "IllegalMonitorStateException");
    replied(other.unlock()).await;
    assert!(matches!(lock.release(&owner).await, Err(Error::NotHeld { why: NotHeld::Never, .. })));
    rig.end([client]).await;
}

/// We re-enter as a Java thread that holds the lock: one holder with a count of two. The last release frees the lock.
pub async fn java_hold_is_re_entered_by_our_client(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let (name, lock) = ("joined", client.reentrant("joined"));
    let java = rig.java(name, 7);
    let owner: Owner = rig.java_holder(7).parse().expect("an owner");
    let count = async |count: &str| {
        let held: Vec<_> = rig.admin.hgetall(name).await.into_iter().collect();
        assert_eq!(held, [(rig.java_holder(7), count.to_owned())]);
    };
    for ours_first in [true, false] {
        replied(java.lock()).await;
        let guard = lock.acquire(Acquire::new().owner(&owner)).await.expect("acquire").expect("the lock");
        count("2").await;
        assert_eq!((java.hold_count().await, guard.is_held()), (Ok(2), true));
        let waiter = wait_for(&client, name);
        rig.waiting(&client, 1).await;
        if ours_first {
            assert_eq!(guard.unlock().await.expect("unlock"), Released::StillHeld(1));
            count("1").await;
            replied(java.unlock()).await;
        } else {
            replied(java.unlock()).await;
            count("1").await;
            assert_eq!(guard.unlock().await.expect("unlock"), Released::Free);
        }
        soon(waiter).await.expect("the waiter").unlock().await.expect("unlock");
    }
    rig.end([client]).await;
}

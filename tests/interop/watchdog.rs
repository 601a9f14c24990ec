//! Each side's watchdog keeps the lock, so the other side is excluded until the release.

use distlock_support::TtlSampler;

use crate::rig::{Rig, channel, ms, renewed, replied, soon, wait_for};

pub async fn watchdogs_of_both_sides_keep_their_holds(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.watched_client().await;
    let sampler = TtlSampler::start(&rig.server.url()).await;

    let guard = client.reentrant("ours").lock().await.expect("lock");
    let (java, keeper, asker) = (rig.java("ours", 1), rig.java("theirs", 2), rig.java("ours", 3));
    replied(keeper.lock()).await;
    let (mut theirs, mut ours) = (java.start_lock(), wait_for(&client, "theirs"));
    rig.listeners(&channel("ours"), 1).await;
    rig.listeners(&channel("theirs"), 1).await;
    // Three renewals take as long as the lease.
    for _ in 0..3 {
        futures::join!(renewed(&rig.admin, "ours"), renewed(&rig.admin, "theirs"));
        assert_eq!(asker.try_lock().await, Ok(false), "Java is in beside us");
        assert!(client.reentrant("theirs").try_lock().await.expect("try_lock").is_none(), "we are in beside Java");
        assert!(guard.is_held());
    }
    assert_eq!(theirs.within(ms(0)).await, None, "Java is in beside us");
    assert!(!ours.is_finished(), "we are in beside Java");

    guard.unlock().await.expect("unlock");
    replied(theirs).await;
    replied(keeper.unlock()).await;
    let guard = soon(&mut ours).await.expect("the waiter");

    // The sides are swapped. The former waiters' holds are renewed as well.
    for _ in 0..3 {
        futures::join!(renewed(&rig.admin, "ours"), renewed(&rig.admin, "theirs"));
    }
    assert!(guard.is_held());
    assert_eq!((java.is_held().await, keeper.is_locked().await), (Ok(true), Ok(true)));
    guard.unlock().await.expect("unlock");
    replied(java.unlock()).await;
    assert_eq!(sampler.stop().await, [], "a lock without an end");
    rig.end([client]).await;
}

//! Our spin lock and Redisson's spin lock beside reentrant locks of the same name.

use distlock_support::agent::Kind;

use crate::rig::{NEVER, Rig, channel, connect, ms, replied, soon, wait_for};
use crate::several::take;

/// A waiter for a reentrant lock is not woken by the release of a spin lock of the same name. Redisson's waiter sleeps
/// until the last known lease ends. Our waiter retries after its poll cap.
pub async fn spin_release_wakes_no_reentrant_waiter(version: &str) {
    let rig = Rig::with(version).await;
    let client = connect(rig.builder().configure(|options| options.poll_cap = ms(300))).await;
    let name = "mixed";
    // Loads the script, so that each attempt is one command.
    replied(rig.java(name, 1).lock()).await;
    replied(rig.java(name, 1).unlock()).await;
    for ours_holds in [true, false] {
        let java = rig.agents[0].at(Kind::Spin, name, 7);
        let guard = if ours_holds {
            Some(client.spin(name).lock_leased(NEVER).await.expect("lock_leased"))
        } else {
            replied(java.lock_for(NEVER)).await;
            None
        };
        let before = rig.scripts().await;
        let mut theirs = rig.java(name, 1).start_lock();
        rig.scripts_since(before, 2).await;
        match guard {
            Some(guard) => drop(guard.unlock().await.expect("unlock")),
            None => drop(replied(java.unlock()).await),
        }
        assert_eq!(theirs.within(ms(600)).await, None, "Redisson was woken");
        // We acquire at once and release without a message, while Redisson sleeps on.
        let between = client.reentrant(name).try_lock().await.expect("try_lock").expect("a free lock");
        let _owner = between.into_owner();
        rig.admin.cmd::<()>(&["DEL", name]).await;
        assert_eq!(theirs.within(ms(0)).await, None, "Redisson was woken");
        rig.admin.publish(&channel(name), b"0").await;
        replied(theirs).await;
        replied(rig.java(name, 1).unlock()).await;
    }
    let guard = take(&client.spin(name)).await;
    let waiter = wait_for(&client, name);
    rig.waiting(&client, 1).await;
    guard.unlock().await.expect("unlock");
    let guard = soon(waiter).await.expect("the waiter");
    guard.unlock().await.expect("unlock");
    rig.end([client]).await;
}

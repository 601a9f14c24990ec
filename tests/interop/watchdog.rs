//! Each side's watchdog keeps what it holds from the other, for as long as it is held.

use std::time::{Duration, Instant};

use distlock_support::TtlSampler;
use distlock_support::agent::AgentOptions;

use crate::rig::{Rig, channel, ms, replied, soon, wait_for};

const WATCHDOG: Duration = ms(1200);

/// Both hold for three watchdogs while the other side waits and asks.
pub async fn both_keep_what_they_hold(version: &str) {
    let options = AgentOptions { watchdog: Some(WATCHDOG), ..AgentOptions::version(version) };
    let rig = Rig::start(vec![options]).await;
    let client = rig.watched_client(WATCHDOG).await;
    let sampler = TtlSampler::start(&rig.server.url()).await;

    let guard = client.reentrant("ours").lock().await.expect("a free lock");
    let (java, keeper, asker) = (rig.java("ours", 1), rig.java("theirs", 2), rig.java("ours", 3));
    replied(keeper.lock()).await;
    let (mut theirs, mut ours) = (java.start_lock(), wait_for(&client, "theirs"));
    rig.listeners(&channel("ours"), 1).await;
    rig.listeners(&channel("theirs"), 1).await;

    let (mut least, mut risen, mut last) = ([i64::MAX; 2], [0; 2], [i64::MAX; 2]);
    let began = Instant::now();
    while began.elapsed() < 3 * WATCHDOG {
        for (at, name) in ["ours", "theirs"].into_iter().enumerate() {
            let ttl = rig.admin.pttl(name).await;
            risen[at] += u32::from(ttl > last[at]);
            (least[at], last[at]) = (least[at].min(ttl), ttl);
        }
        assert_eq!(asker.try_lock().await, Ok(false));
        assert!(client.reentrant("theirs").try_lock().await.expect("an answer").is_none());
        assert!(guard.is_held());
        tokio::time::sleep(ms(20)).await;
    }
    println!(
        "{version}: renewed {risen:?} times in three watchdogs, never below {least:?} ms of {WATCHDOG:?}: ours, Java's"
    );
    assert!(least.iter().all(|ttl| *ttl > 0), "lapsed while held: {least:?}");
    assert!(risen.iter().all(|times| *times >= 3), "hardly renewed: {risen:?}");
    assert_eq!(theirs.within(ms(0)).await, None);
    assert!(!ours.is_finished());

    guard.unlock().await.expect("a lock held");
    replied(theirs).await;
    replied(keeper.unlock()).await;
    let (_, guard) = soon(&mut ours).await.expect("the waiter");

    // The other way round now: what was waited for is kept as well.
    tokio::time::sleep(2 * WATCHDOG).await;
    assert!(guard.is_held());
    assert_eq!((java.is_held().await, keeper.is_locked().await), (Ok(true), Ok(true)));
    guard.unlock().await.expect("a lock held");
    replied(java.unlock()).await;
    assert_eq!(sampler.stop().await, [], "a lock without an end");
    rig.end([client]).await;
}

//! A Java process with a fenced lock of an election's name.

use crate::fenced::{forget, java_fenced};
use crate::rig::{Rig, channel, replied, soon};

/// Java waits behind our leader, whose hash has an announcement. Then Java leads without a payload, and our candidate
/// waits behind Java.
pub async fn lead_java_takes_part_as_a_plain_contender(version: &str) {
    let rig = Rig::with(version).await;
    let client = rig.client().await;
    let name = "election";
    let (java, observer) = (java_fenced(&rig, name, 1), client.observe(name));
    let term = client.lead(name).payload("ours").next().await.expect("next");
    assert_eq!(java.try_lock().await, Ok(false));
    let theirs = java.start_lock();
    rig.listeners(&channel(name), 1).await;
    let ours = term.epoch();
    term.resign().await.expect("resign");
    replied(theirs).await;
    let leader = observer.current().await.expect("current").expect("a leader");
    assert!(leader.epoch > ours && leader.payload.is_none(), "{leader:?} after {ours}");
    let candidate = client.lead(name).payload("ours again");
    let next = tokio::spawn(async move { candidate.next().await.expect("next") });
    rig.waiting(&client, 1).await;
    replied(java.unlock()).await;
    let term = soon(next).await.expect("no panic");
    assert!(term.epoch() > leader.epoch, "{term:?} after {leader:?}");
    let leader = observer.current().await.expect("current").expect("a leader");
    assert_eq!((leader.epoch, leader.text()), (term.epoch(), Some("ours again")));
    term.resign().await.expect("resign");
    forget(&rig, &[name]).await;
    rig.end([client]).await;
}

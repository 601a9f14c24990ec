//! A cluster that serves no commands for a while.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{ACQUIRE, Rig, name};

/// No command asks twice, and all run as soon as the cluster serves again.
#[tokio::test(start_paused = true)]
async fn who_is_told_that_the_cluster_is_down_waits_and_does_not_go_on_asking() {
    let (rig, name) = (Rig::start().await, name());
    rig.servers[0].is_down.store(true, Ordering::Relaxed);
    let all = futures::future::join_all((0..50).map(|_| rig.run(&name, &ACQUIRE)));
    let serving = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // These are the first command, and commands that were sent before its reply.
        let asked = rig.log(0).len();
        assert!((1..=50).contains(&asked), "{asked}");
        assert!((2..=15).contains(&*rig.servers[0].infos.lock()), "{}", rig.servers[0].infos.lock());
        // A later command is not sent at all.
        let late = tokio::time::timeout(Duration::from_millis(100), rig.run(&name, &ACQUIRE)).await;
        assert!(late.is_err() && rig.log(0).is_empty());
        rig.servers[0].is_down.store(false, Ordering::Relaxed);
    };
    tokio::join!(all, serving);
    assert_eq!(rig.log(0).len(), 50);
}

/// One slot without a primary says nothing about the server's other slots.
#[tokio::test(start_paused = true)]
async fn a_slot_that_nobody_serves_keeps_no_other_one_waiting() {
    let (rig, name) = (Rig::start().await, name());
    rig.says(0, "CLUSTERDOWN Hash slot not served".to_owned());
    let waits = tokio::time::timeout(Duration::from_millis(200), rig.run(&name, &ACQUIRE)).await;
    assert!(waits.is_err());
    assert!(rig.log(0).len() > 2, "it goes on asking");
    assert_eq!(*rig.servers[0].infos.lock(), 0);
}

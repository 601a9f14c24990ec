//! A cluster that serves no commands for a while.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{ACQUIRE, Rig, name, sleep};

/// Each command is refused at most once, and all commands run as soon as the cluster serves again.
#[tokio::test(start_paused = true)]
async fn commands_wait_without_retries_while_cluster_is_down() {
    let (rig, name) = (Rig::start().await, name());
    rig.servers[0].is_down.store(true, Ordering::Relaxed);
    let all = futures::future::join_all((0..50).map(|_| rig.run(&name, &ACQUIRE)));
    let serving = async {
        sleep(300).await;
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
async fn unserved_slot_is_retried_without_closing_gate() {
    let (rig, name) = (Rig::start().await, name());
    rig.says(0, "CLUSTERDOWN Hash slot not served".to_owned());
    let waits = tokio::time::timeout(Duration::from_millis(200), rig.run(&name, &ACQUIRE)).await;
    assert!(waits.is_err());
    assert!(rig.log(0).len() > 2, "it goes on asking");
    assert_eq!(*rig.servers[0].infos.lock(), 0);
}

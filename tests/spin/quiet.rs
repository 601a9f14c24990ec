//! Spin locks neither publish nor subscribe. `client/acl.rs` has a login that may do neither.

use tokio::task::JoinSet;

use crate::rig::spin;
use bed::{idle, ms, waits_in_vain};

/// Two clients run all operations of spin locks, and wait for each other, without a single pub/sub command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spin_locks_neither_publish_nor_subscribe() {
    spin(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        // The reset excludes the probe (the check of the login's rights at connect).
        bed.admin.reset_stats().await;
        let mut tasks = JoinSet::new();
        for n in 0..16 {
            let lock = clients[n % 2].spin("job");
            tasks.spawn(async move {
                for _ in 0..5 {
                    let guard = lock.lock().await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    // Every other holder releases by dropping its guard.
                    if n % 4 < 2 {
                        guard.unlock().await.unwrap();
                    }
                }
            });
        }
        while !tasks.is_empty() {
            assert_eq!(bed.admin.channels().await, [""; 0]);
            if let Ok(Some(done)) = tokio::time::timeout(ms(5), tasks.join_next()).await {
                done.unwrap();
            }
        }
        let [ours, theirs] = clients.each_ref().map(|client| client.spin("job"));
        let guard = ours.lock().await.unwrap();
        waits_in_vain(ms(100), async |wait| theirs.lock_for(wait).await).await;
        assert!(theirs.force_unlock().await.unwrap());
        drop(guard);
        idle(&clients[0]).await;
        let stats = bed.admin.commandstats().await;
        let pubsub = ["publish", "spublish", "subscribe", "ssubscribe", "psubscribe", "unsubscribe"];
        assert!(!stats.keys().any(|name| pubsub.contains(&name.as_str())), "{stats:?}");
    })
    .await;
}

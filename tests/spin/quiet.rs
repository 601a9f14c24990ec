//! Spin locks neither publish nor subscribe.

use distlock::{Acquire, Backoff, DistLock};
use tokio::task::JoinSet;

use crate::rig::spin;
use bed::{becomes, ends, idle, ms, secs, waits_in_vain};

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

/// A login that may neither publish nor subscribe can use every operation.
#[tokio::test]
async fn login_without_pubsub_rights_can_use_spin_locks() {
    spin(async |bed| {
        let rules = ["reset", "on", ">SECRET", "~*", "resetchannels", "+@all", "-publish", "-spublish", "-@pubsub"];
        let () = bed.admin.cmd(&[&["ACL", "SETUSER", "mute"], rules.as_slice()].concat()).await;
        let builder = || bed.builder().username("mute").password("SECRET").preflight(false);
        let (ours, theirs) = (bed.connect(builder()).await, bed.connect(builder()).await);
        let () = bed.admin.cmd(&["ACL", "LOG", "RESET"]).await;
        let (lock, other) = (ours.spin("job"), theirs.spin("job"));
        let me = ours.owner();
        let guard = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        let inner = lock.acquire(Acquire::new().owner(&me).lease(secs(400))).await.unwrap().unwrap();
        assert_eq!(ours.renew_now().await.renewed, 1);
        inner.extend(secs(500)).await.unwrap();
        let waiter = tokio::spawn(async move { other.lock().await.unwrap() });
        becomes("waiters", 1, async || theirs.stats().waiting).await;
        inner.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        let guard = waiter.await.unwrap();
        waits_in_vain(ms(100), async |wait| lock.lock_for(wait).await).await;
        assert!(lock.is_locked().await.unwrap() && lock.force_unlock().await.unwrap());
        drop(guard);
        idle(&theirs).await;
        let refused: Vec<redis::Value> = bed.admin.cmd(&["ACL", "LOG"]).await;
        assert!(refused.is_empty(), "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn release_wakes_next_task_of_process() {
    spin(async |bed| {
        let client = bed.still_client().await;
        let lock = client.spin("job").backoff(Backoff::constant(secs(3600)).unwrap());
        for how in [Acquire::new(), Acquire::new().owner(&client.owner())] {
            // A lock of an explicit owner is not handed over, so the next task acquires it at the server.
            let guard = lock.acquire(how).await.unwrap().unwrap();
            let waiter = bed::passer(lock.clone());
            becomes("waiters", 1, async || client.stats().waiting).await;
            becomes("calls under way", 0, async || client.stats().under_way).await;
            guard.unlock().await.unwrap();
            ends("the waiter", waiter).await.unwrap();
        }
    })
    .await;
}

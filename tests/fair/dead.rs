//! Processes that are killed, frozen or shut down while their waiters are in the queue. `sim/timing/fair.rs` checks how
//! long the other waiters wait.

use distlock::{Acquire, Client, Error};

use crate::monitor::client_of;
use crate::peer::{HISTORY, Peer};
use crate::rig::{holders, keys_gone, patient_client, queue, queued, waiter};
use bed::{ends, fair, secs};

/// Acquires and releases the lock, so that expired places leave the queue. On a slow machine, the live waiter may
/// already have acquired.
async fn purge(client: &Client, name: &str) {
    let guard = ends("a later acquire", client.fair(name).lock()).await.unwrap();
    guard.unlock().await.unwrap();
}

/// The head of the queue is one dead waiter, or the first 16 waiters are dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_a_killed_process_are_served() {
    fair(async |bed| {
        let (holder, alive) = (bed.client().await, bed.client().await);
        let mut peer = Peer::start(bed, &[("FAIR_WAIT", "8000")]).await;
        let mut cases = Vec::new();
        for (name, dead) in [("one", 1), ("many", 16)] {
            let guard = holder.fair(name).lock_leased(secs(600)).await.unwrap();
            peer.wait(name, dead);
            queued(bed, name, dead).await;
            cases.push((name, guard, waiter(&alive, name)));
            queued(bed, name, dead + 1).await;
        }
        peer.child.kill9();
        for (name, guard, behind) in cases {
            guard.unlock().await.unwrap();
            ends("the waiter behind the dead", behind).await.unwrap().unlock().await.unwrap();
            purge(&alive, name).await;
        }
        keys_gone(bed).await;
    })
    .await;
}

/// The first lease of the dead holder expires, and so do the places (queue entries) of its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_behind_killed_holder_is_served() {
    fair(async |bed| {
        let alive = bed.client().await;
        let mut peer = Peer::start(bed, &[("FAIR_WAIT", "8000")]).await;
        let guard = alive.fair("a").acquire(Acquire::new().lease(secs(600))).await.unwrap().unwrap();
        peer.wait("a", 3);
        queued(bed, "a", 3).await;
        let behind = waiter(&alive, "a");
        queued(bed, "a", 4).await;
        // The peer is frozen first, so that it cannot release the lock before the kill.
        peer.child.stop();
        guard.unlock().await.unwrap();
        peer.child.kill9();
        ends("the waiter behind the dead holder", behind).await.unwrap().unlock().await.unwrap();
        purge(&alive, "a").await;
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed).await;
    })
    .await;
}

/// Redisson #4661, #4323: queues stay after an application's restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_removes_its_waiters_from_the_queue() {
    fair(async |bed| {
        let [holder, going, alive] = [patient_client(bed).await, patient_client(bed).await, patient_client(bed).await];
        let guard = holder.fair("a").lock().await.unwrap();
        let leaving: Vec<_> = (0..16)
            .map(|_| {
                let lock = going.fair("a");
                tokio::spawn(async move { lock.lock().await })
            })
            .collect();
        queued(bed, "a", 16).await;
        let behind = waiter(&alive, "a");
        queued(bed, "a", 17).await;
        going.shutdown(bed::PATIENCE).await.unwrap();
        let left = queue(bed, "a").await;
        let clients: Vec<_> = left.iter().map(|owner| client_of(owner)).collect();
        assert_eq!(clients, [alive.id()], "places that the shutdown left");
        for task in leaving {
            let outcome = ends("a waiter of the client that shuts down", task).await.unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
        }
        // The release grants the lock, so no dead waiter has to be detected.
        guard.unlock().await.unwrap();
        assert_eq!(holders(bed, "a").await, [(left[0].clone(), "1".to_owned())].into(), "the waiter behind them holds");
        ends("the waiter behind them", behind).await.unwrap().unlock().await.unwrap();
        keys_gone(bed).await;
    })
    .await;
}

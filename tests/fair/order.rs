//! First come, first served, among all tasks of all processes.

use std::time::Instant;

use crate::monitor::{Monitor, client_of};
use crate::peer::{HISTORY, Peer, history};
use crate::rig::keys_gone;
use bed::{eventually, fair, secs};

const PROCESSES: usize = 8;
const TASKS: usize = 8;
const ROUNDS: usize = 8;

/// Nobody gives up: the order of service is the order of the queue, without exception; and those whom the server made
/// owners are those who went in, in this order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_served_in_the_order_of_the_queue() {
    fair(async |bed| {
        let mut peers = Peer::several(bed, PROCESSES, &[]).await;
        let monitor = Monitor::start(&bed.server).await;
        let start = Instant::now();
        for peer in &mut peers {
            peer.contend("hot", TASKS, ROUNDS, 0);
        }
        for peer in &mut peers {
            peer.child.expect("done").await;
        }
        let took = start.elapsed();
        let story = monitor.story(bed, "hot").await;
        drop(monitor);
        let all = PROCESSES * TASKS * ROUNDS;
        println!("{all} acquisitions in {took:?}; {} of them queued", story.arrived.len());
        assert_eq!(story.granted.len(), all);
        assert!(story.arrived.len() > all / 2, "they did contend");
        assert_eq!((&story.jumped, &story.purged, &story.left, &story.waiting), (&vec![], &vec![], &vec![], &vec![]));
        let granted: Vec<_> = story.granted.iter().map(|owner| client_of(owner).to_owned()).collect();
        assert_eq!(history(bed, &[]).await, granted);
        for peer in peers {
            peer.close().await;
        }
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// A fifth of the waiters gives up at random (dropped futures, waits that end), and two of the processes are killed:
/// nobody who lives is overtaken or loses its place, all who live are served, and nothing is left of the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gives_up_or_dies_changes_nobodys_order() {
    fair(async |bed| {
        // A holder that is killed costs its lease.
        let mut peers = Peer::several(bed, PROCESSES, &[("WATCHDOG", "3000")]).await;
        let monitor = Monitor::start(&bed.server).await;
        let start = Instant::now();
        for peer in &mut peers {
            peer.contend("hot", TASKS, ROUNDS, 20);
        }
        let mut killed = Vec::new();
        for at in [150, 400] {
            let visits = async || bed.admin.cmd::<usize>(&["LLEN", HISTORY]).await >= at * 2;
            eventually("so many were served", visits).await;
            let mut peer = peers.pop().unwrap();
            peer.child.kill9();
            killed.push(peer.id);
        }
        for peer in &mut peers {
            peer.child.expect("done").await;
        }
        let took = start.elapsed();
        eventually("the queue is empty", async || crate::rig::queue(bed, "hot").await.is_empty()).await;
        let story = monitor.story(bed, "hot").await;
        drop(monitor);
        println!(
            "{} grants in {took:?}; {} queued, {} gave up, {} dead ones taken out",
            story.granted.len(),
            story.arrived.len(),
            story.left.len(),
            story.purged.len()
        );
        assert_eq!((&story.jumped, &story.waiting), (&vec![], &vec![]));
        assert!(story.left.len() > 20, "too few gave up: {}", story.left.len());
        for owner in &story.purged {
            assert!(killed.iter().any(|id| id == client_of(owner)), "{owner} lives, and has lost its place");
        }
        // Whoever went in was made the owner, in this order; some became it too late, and gave it back.
        let mut granted = story.granted.iter();
        for id in history(bed, &killed).await {
            assert!(granted.any(|owner| client_of(owner) == id), "{id} went in without being the owner");
        }
        for peer in peers {
            peer.close().await;
        }
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

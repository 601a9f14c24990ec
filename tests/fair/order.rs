//! First come, first served, among all tasks of all processes.

use crate::monitor::{Monitor, client_of};
use crate::peer::{HISTORY, Peer, history};
use crate::rig::keys_gone;
use bed::{becomes, fair};

const PROCESSES: usize = 8;
const TASKS: usize = 8;
const ROUNDS: usize = 8;

/// The lock is granted in the order of the queue, and the owners enter in this order. `cancel`: percentage of waits
/// that are dropped or run out. No other waiter loses its place.
async fn waiters_are_served_in_the_order_of_the_queue(cancel: u64) {
    fair(async |bed| {
        let mut peers = Peer::several(bed, PROCESSES, &[("FAIR_WAIT", "300000")]).await;
        let monitor = Monitor::start(&bed.server).await;
        for peer in &mut peers {
            peer.contend("hot", TASKS, ROUNDS, cancel);
        }
        for peer in &mut peers {
            peer.contended(TASKS, ROUNDS).await;
        }
        becomes("the queue", Vec::<String>::new(), async || crate::rig::queue(bed, "hot").await).await;
        let story = monitor.story(bed, "hot").await;
        drop(monitor);
        assert_eq!((&story.jumped, &story.purged, &story.waiting), (&vec![], &vec![], &vec![]));
        let entered = history(bed).await;
        let least = PROCESSES * TASKS * ROUNDS;
        assert!(entered.len() == least || cancel > 0 && entered.len() > least, "{} of {least} came in", entered.len());
        let mut granted = story.granted.iter().map(|owner| client_of(owner));
        if cancel == 0 {
            assert_eq!(story.left, [""; 0]);
            assert!(story.arrived.len() > entered.len() / 2, "few waited: {}", story.arrived.len());
            assert_eq!(granted.collect::<Vec<_>>(), entered);
        } else {
            assert!(!story.left.is_empty(), "no waiter gave up");
            // Some owners got the grant too late, released the lock and did not enter.
            for id in entered {
                assert!(granted.any(|owner| owner == id), "{id} went in without being the owner");
            }
        }
        for peer in peers {
            peer.close().await;
        }
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed).await;
    })
    .await;
}

bed::cases!(on two threads, waiters_are_served_in_the_order_of_the_queue:
    without_cancelled_waits = 0,
    where_a_fifth_gives_up = 20,
);

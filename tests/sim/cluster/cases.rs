//! Single scenes over a cluster.

use crate::prelude::*;

/// A slot moves to a server that then hands over to its replica. A client that followed an `ASK` to this server must
/// not report `Error::Closed`.
#[test]
fn acquire_succeeds_when_ask_target_fails_over() {
    for patience in 0..40 {
        let outcome = virtually(async move || {
            let cluster = SimCluster::new(1, 3, true);
            let link = cluster.link(way(ms(20)));
            let client = link.client(|_| {}).await.unwrap();
            let slot = SimCluster::slot_of(b"lock:0");
            let from = cluster.owner(slot);
            let to = (from + 1) % 3;
            let there = (0..).map(|n| format!("n{n}")).find(|n| cluster.owner(SimCluster::slot_of(n.as_bytes())) == to);
            cluster.open_slot(slot, to);
            let lock = client.reentrant("lock:0");
            let acquiring = tokio::spawn(async move {
                // Without a pause, at least one command to the target of the move is in flight.
                for _ in 0..30 {
                    let Some(guard) = lock.lock_for(ms(60_000)).await? else { return Ok(false) };
                    // The handover may lose the target's last write.
                    drop(guard.unlock().await);
                }
                Ok::<bool, Error>(true)
            });
            // The client needs this time to learn about the target. The delay decides which command is in flight.
            sleep(ms(100 + patience * 5)).await;
            cluster.fail_over(to);
            cluster.settle();
            let other = client.reentrant(&there.unwrap()).lock().await.map(drop);
            sleep(ms(1_000)).await;
            cluster.open_slot(slot, cluster.primaries().into_iter().find(|node| *node != from).unwrap());
            cluster.close_slot(slot);
            (acquiring.await.unwrap(), other)
        });
        assert!(outcome.0.is_ok() && outcome.1.is_ok(), "{patience} ms: {outcome:?}");
    }
}

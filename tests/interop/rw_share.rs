//! A read-write lock that only writers use. Two or more processes of ours react to a message faster than Java does.
//! They notice a Java waiter only when it holds the lock, so they must let Java acquire once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::Client;
use distlock_support::agent::Kind;

use crate::rig::{Rig, connect, ms, replied, until};

/// Number of our clients. Like processes, they do not share their waiters.
const PROCESSES: usize = 3;
const TASKS: usize = 2;

/// Limit of our sections before a Java waiter's first turn. A section takes at least 2 ms, so there are at most 500 a
/// second. A starved waiter sees thousands.
const MOST: u64 = 2_000;

/// Java's first acquire beside writers of ours that never stop. Each round uses its own name, because our processes
/// yield longer to a Java client that they have seen lately.
pub async fn rw_java_writer_is_not_starved_by_our_writers(version: &str) {
    let rig = Rig::with(version).await;
    let mut clients = Vec::new();
    for _ in 0..PROCESSES {
        clients.push(connect(rig.builder().configure(|options| options.yield_after_release = true)).await);
    }
    for round in 0..3 {
        let name = format!("writers:{round}");
        let sections = Arc::new(AtomicU64::new(0));
        let writers = (0..PROCESSES * TASKS).map(|n| {
            let (client, name, sections) = (clients[n % PROCESSES].clone(), name.clone(), Arc::clone(&sections));
            tokio::spawn(async move { write_for_ever(&client, &name, &sections).await })
        });
        let writers: Vec<_> = writers.collect();
        until("the writers compete", async || sections.load(Ordering::Relaxed) > 500).await;
        let java = rig.agents[0].at(Kind::Write, &name, 1);
        let waiting = java.start_lock();
        let before = sections.load(Ordering::Relaxed);
        replied(waiting).await;
        let seen = sections.load(Ordering::Relaxed) - before;
        replied(java.unlock()).await;
        for writer in writers {
            writer.abort();
            let _ = writer.await;
        }
        assert!(seen <= MOST, "{seen} sections of ours before Java's first");
    }
    rig.end(clients).await;
}

async fn write_for_ever(client: &Client, name: &str, sections: &AtomicU64) {
    loop {
        let guard = client.rw(name).write().lock().await.expect("lock");
        tokio::time::sleep(ms(2)).await;
        guard.unlock().await.expect("unlock");
        sections.fetch_add(1, Ordering::Relaxed);
    }
}

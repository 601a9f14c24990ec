//! Turns at a read-write lock that only writers use. Two or more processes of ours answer a message faster than Java
//! does. They notice a Java waiter when it holds the lock, so they must let it in once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock::Client;
use distlock_support::agent::Kind;

use crate::rig::{Rig, connect, ms, replied, until};

/// Clients, each with its own registry, as processes have.
const PROCESSES: usize = 3;
const TASKS: usize = 2;

/// Sections of ours that a waiter of Java may see before its first turn. A section takes at least 2 ms, so there are at
/// most 500 a second. A waiter that nobody lets in sees thousands.
const MOST: u64 = 2_000;

/// Java's first acquire beside writers of ours that never stop. Each round has a name of its own, because a client of
/// Java that was seen lately is treated better.
pub async fn rw_writers_of_ours_let_an_unseen_java_writer_in(version: &str) {
    let rig = Rig::with(version).await;
    let mut clients = Vec::new();
    for _ in 0..PROCESSES {
        clients.push(connect(rig.builder().take_turns(true)).await);
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

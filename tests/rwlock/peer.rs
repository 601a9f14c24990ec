//! A child process with readers and writers, to be killed or frozen.

use std::sync::Arc;

use distlock::{Client, DistLock, Guard, Prefer};
use distlock_support::{Child, child};
use parking_lot::Mutex;

use crate::rig::HOUR;
use bed::{Bed, PATIENCE, builder, ms};

/// A peer process, as the parent sees it. It is killed on drop.
pub struct Peer {
    pub child: Child,
    pub id: String,
}

impl Peer {
    /// Starts a peer with options: `POLL_CAP` in ms, `WRITERS` to prefer writers.
    pub async fn start(bed: &Bed, options: &[(&str, &str)]) -> Self {
        let mut child = Child::spawn("peer::peer_process", &[&[("URL", &*bed.server.url())], options].concat());
        let id = child.line().await.unwrap_or_else(|| panic!("no peer: {}", child.output()));
        Self { child, id }
    }

    pub async fn several(bed: &Bed, count: usize) -> Vec<Self> {
        futures::future::join_all((0..count).map(|_| Self::start(bed, &[]))).await
    }

    /// Makes tasks acquire a half (`read` or `write`) of a lock, each `holds` times as one owner, and keep the holds.
    pub fn take(&mut self, half: &str, name: &str, tasks: usize, holds: usize) {
        self.child.tell(&format!("{half} {name} {tasks} {holds}"));
    }

    pub async fn waits(&mut self, count: usize) {
        self.child.tell(&format!("await {count}"));
        self.child.expect("waiting").await;
    }

    /// Waits until all tasks of [`take`](Self::take) hold the lock.
    pub async fn taken(&mut self) {
        self.child.expect("in").await;
    }
}

async fn take(client: Client, lock: Arc<dyn DistLock>, holds: usize) -> Vec<Guard> {
    let owner = client.owner();
    let mut guards = Vec::new();
    for _ in 0..holds {
        // A single hold needs no explicit owner.
        let taken = if holds == 1 { lock.lock().await } else { owner.scope(lock.lock()).await };
        guards.push(taken.unwrap_or_else(|error| panic!("lock: {error:?}")));
    }
    guards
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peer_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let mut builder = builder(&std::env::var("URL").unwrap()).watchdog(HOUR).command_timeout(PATIENCE);
    if let Ok(cap) = std::env::var("POLL_CAP") {
        builder = builder.poll_cap(ms(cap.parse().unwrap()));
    }
    if std::env::var_os("WRITERS").is_some() {
        builder = builder.prefer(Prefer::Writers);
    }
    let client = builder.connect().await.unwrap();
    let held: Arc<Mutex<Vec<Guard>>> = Arc::default();
    child::say(client.id());
    loop {
        let line = child::hear().await;
        match line.split(' ').collect::<Vec<_>>()[..] {
            [half @ ("read" | "write"), name, tasks, holds] => {
                let lock = client.lock(half.parse().unwrap(), name);
                let holds: usize = holds.parse().unwrap();
                let tasks: Vec<_> = (0..tasks.parse().unwrap())
                    .map(|_| tokio::spawn(take(client.clone(), Arc::clone(&lock), holds)))
                    .collect();
                let held = Arc::clone(&held);
                tokio::spawn(async move {
                    for task in tasks {
                        match task.await {
                            Ok(guards) => held.lock().extend(guards),
                            Err(error) => child::say(&format!("failed: {error}")),
                        }
                    }
                    child::say("in");
                });
            }
            ["await", count] => {
                let count: usize = count.parse().unwrap();
                while client.stats().waiting != count {
                    tokio::time::sleep(ms(2)).await;
                }
                child::say("waiting");
            }
            _ => panic!("told {line}"),
        }
    }
}

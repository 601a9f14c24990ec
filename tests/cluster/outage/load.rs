//! Three hundred tasks that take locks all over a cluster, and write down what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use distlock::{Client, DistLock, Flavour, Guard};
use distlock_support::{Cluster, Numbers, slot_of};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{FLAVOURS, lock, ms};

/// The primaries, and so the shards.
pub(crate) const SHARDS: usize = 3;
const TASKS: usize = 100;
const HOLDS: usize = 20;

/// A lock that was had: from when on it was asked for, and when it was there.
pub(crate) struct Had {
    pub(crate) shard: usize,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// What tasks were told instead.
pub(crate) struct Failed {
    pub(crate) shard: usize,
    pub(crate) at: Instant,
    pub(crate) what: String,
}

/// All that the tasks write down.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) had: Vec<Had>,
    pub(crate) failed: Vec<Failed>,
}

#[derive(Default)]
struct Book {
    record: Mutex<Record>,
    /// Of the locks that the watchdog keeps: whose renewals were late, or which were lost.
    late: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

/// The tasks.
pub(crate) struct Load {
    book: Arc<Book>,
    tasks: Vec<JoinHandle<()>>,
    held: Vec<Guard>,
}

/// Names by the node that has them, as many as are asked for.
async fn names(cluster: &Cluster, each: usize, what: &str) -> [Vec<String>; SHARDS] {
    let map = cluster.agreed().await;
    let mut names = [const { Vec::new() }; SHARDS];
    for n in 0.. {
        let name = format!("{what}:{n}");
        let owner = map.owner(slot_of(&name)).expect("all slots are served");
        let node = cluster.nodes().iter().position(|node| node.id() == owner).expect("one of the primaries");
        if names[node].len() < each {
            names[node].push(name);
        }
        if names.iter().all(|names| names.len() == each) {
            break;
        }
    }
    names
}

impl Load {
    /// A hundred tasks a shard, by turns over two clients, two to a name where the flavour wakes who waits; and locks that are held
    /// on the shards of `healthy`.
    pub(crate) async fn start(cluster: &Cluster, clients: &[Client; 2], healthy: &[usize]) -> Self {
        let book = Arc::new(Book::default());
        let (mut tasks, mut held) = (Vec::new(), Vec::new());
        for (shard, names) in names(cluster, TASKS, "loop").await.into_iter().enumerate() {
            for task in 0..TASKS {
                let flavour = FLAVOURS[task / 2 % FLAVOURS.len()];
                let is_alone = matches!(flavour, Flavour::Spin | Flavour::Plain);
                let name = &names[if is_alone { task } else { task / 2 * 2 }];
                let lock = lock(&clients[task % 2], flavour, name);
                let dice = Numbers::new((shard * TASKS + task) as u64);
                tasks.push(tokio::spawn(work(lock, shard, Arc::clone(&book), dice)));
            }
        }
        let names = names(cluster, HOLDS, "held").await;
        for (n, name) in healthy.iter().flat_map(|shard| &names[*shard]).enumerate() {
            let guard = lock(&clients[n % 2], FLAVOURS[n % FLAVOURS.len()], name).lock().await.expect("it is free");
            let (expiring, name, noted) = (guard.expiring(), name.clone(), Arc::clone(&book));
            tasks.push(tokio::spawn(async move {
                tokio::select! {
                    () = expiring => noted.late.lock().push(name),
                    () = noted.over() => {}
                }
            }));
            held.push(guard);
        }
        Self { book, tasks, held }
    }

    /// The locks that the watchdog keeps and that have had no renewal for two thirds of their lease, or are lost.
    pub(crate) fn late(&self) -> Vec<String> {
        self.book.late.lock().clone()
    }

    /// Whether somebody has had a lock of a shard since then, from the beginning.
    pub(crate) fn has_worked(&self, shard: usize, since: Instant) -> bool {
        self.book.record.lock().had.iter().any(|had| had.shard == shard && had.began > since)
    }

    /// Has all tasks end, and gives what they have written down.
    pub(crate) async fn end(mut self) -> Record {
        self.book.stopped.store(true, Ordering::Relaxed);
        for task in std::mem::take(&mut self.tasks) {
            task.await.expect("a task that takes locks does not panic");
        }
        for guard in std::mem::take(&mut self.held) {
            guard.unlock().await.expect("it is held");
        }
        std::mem::take(&mut self.book.record.lock())
    }
}

impl Drop for Load {
    /// The tasks of a test that has failed do not disturb the next one.
    fn drop(&mut self) {
        self.book.stopped.store(true, Ordering::Relaxed);
    }
}

impl Book {
    async fn over(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            tokio::time::sleep(ms(20)).await;
        }
    }

    fn failed(&self, shard: usize, what: String) {
        self.record.lock().failed.push(Failed { shard, at: Instant::now(), what });
    }
}

/// One task: a section about every tenth of a second, so that 300 of them leave the machine time.
async fn work(lock: Arc<dyn DistLock>, shard: usize, book: Arc<Book>, mut dice: Numbers) {
    while !book.stopped.load(Ordering::Relaxed) {
        tokio::time::sleep(dice.between(60, 160)).await;
        let began = Instant::now();
        let guard = match lock.lock().await {
            Ok(guard) => guard,
            Err(error) => {
                book.failed(shard, format!("acquire of {}: {error}", lock.name()));
                continue;
            }
        };
        book.record.lock().had.push(Had { shard, began, ended: Instant::now() });
        if let Err(error) = guard.unlock().await {
            book.failed(shard, format!("release of {}: {error}", lock.name()));
        }
    }
}

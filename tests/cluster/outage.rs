//! One of three primaries is frozen or killed. Locks on the other two shards work without errors. The lost slots are
//! served again after the promotion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use distlock::{Acquire, Client, DistLock, Guard};
use distlock_support::cluster::key_in;
use distlock_support::{Cluster, ClusterOptions};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{FLAVOURS, becomes, end, eventually, lock, ms, primaries, secs};

/// One slot of each shard. The primary of the first shard is frozen or killed.
const SLOTS: [u16; 3] = [0, 8_000, 16_000];
const DEAD: usize = 0;
const HEALTHY: [usize; 2] = [1, 2];

#[derive(Clone, Copy, Debug)]
enum How {
    Stopped,
    Killed,
}

#[derive(Debug, Default)]
struct Shard {
    sections: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

/// Tasks that acquire locks on every shard, and held locks on the healthy shards.
struct Load {
    shards: [Arc<Shard>; 3],
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    held: Vec<Guard>,
}

async fn work(lock: Arc<dyn DistLock>, shard: Arc<Shard>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(ms(20)).await;
        let section = async || lock.lock().await?.unlock().await;
        match section().await {
            Ok(_) => drop(shard.sections.fetch_add(1, Ordering::Relaxed)),
            Err(error) => shard.failed.lock().push(format!("{}: {error:?}", lock.name())),
        }
    }
}

impl Load {
    async fn start(clients: &[Client; 2]) -> Self {
        let (shards, stop) = ([(); 3].map(|()| Arc::<Shard>::default()), Arc::<AtomicBool>::default());
        let (mut tasks, mut held) = (Vec::new(), Vec::new());
        for (n, (slot, shard)) in SLOTS.iter().zip(&shards).enumerate() {
            for (m, flavour) in FLAVOURS.into_iter().cycle().take(2 * FLAVOURS.len()).enumerate() {
                let name = key_in(*slot, &format!("loop:{flavour}:"));
                let lock = lock(&clients[m % 2], flavour, &name);
                tasks.push(tokio::spawn(work(lock, Arc::clone(shard), Arc::clone(&stop))));
                if n != DEAD {
                    let name = key_in(*slot, &format!("held:{m}:"));
                    held.push(clients[m % 2].lock(flavour, &name).lock().await.unwrap());
                }
            }
        }
        Self { shards, stop, tasks, held }
    }

    /// Waits until each of these shards has done more work.
    async fn progress(&self, what: &str, shards: &[usize]) {
        let counts = || shards.iter().map(|n| self.shards[*n].sections.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = counts();
        eventually(what, async || counts().iter().zip(&before).all(|(now, then)| *now > then + 20)).await;
    }

    async fn end(self, clients: [Client; 2]) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            bed::ends("a task that takes locks", task).await.expect("a working task does not panic");
        }
        for n in HEALTHY {
            let failed = self.shards[n].failed.lock();
            assert!(failed.is_empty(), "{} errors at healthy shard {n}, the first: {}", failed.len(), failed[0]);
        }
        for guard in self.held {
            assert!(guard.is_held(), "a lock of a healthy shard is lost: {guard:?}");
            guard.unlock().await.unwrap();
        }
        for client in clients {
            end(client).await;
        }
    }
}

async fn healthy_shards_work_on((replicas, full_coverage): (usize, bool)) {
    let options = ClusterOptions::default().replicas(replicas).require_full_coverage(full_coverage);
    let cluster = Cluster::start(options).await;
    let connect = async || bed::builder(&cluster.url()).retry_attempts(1_000).connect().await.unwrap();
    let clients = [connect().await, connect().await];
    let load = Load::start(&clients).await;
    for how in [How::Stopped, How::Killed] {
        load.progress("every shard works", &[0, 1, 2]).await;
        let primary = cluster.owner(SLOTS[DEAD]).await;
        match how {
            How::Stopped => cluster.stop(primary).await,
            How::Killed => cluster.kill(primary).await,
        }
        let back = || match how {
            How::Stopped => cluster.cont(primary),
            How::Killed => cluster.restart(primary),
        };
        if full_coverage {
            let (node, key) = (cluster.owner(SLOTS[1]).await, key_in(SLOTS[1], "refused:"));
            let refuses = async || node.admin().raw(&["GET", key.as_str()]).await.is_err();
            eventually("a healthy node refuses, as the cluster is down", refuses).await;
        } else {
            load.progress(&format!("{how:?}: healthy shards work beside it"), &HEALTHY).await;
        }
        if replicas > 0 {
            cluster.promotion(primary).await;
            load.progress(&format!("{how:?}: every shard works after the promotion"), &[0, 1, 2]).await;
            back();
        } else {
            back();
            load.progress(&format!("{how:?}: every shard works once it is back"), &[0, 1, 2]).await;
        }
        cluster.whole().await;
    }
    load.end(clients).await;
}

bed::cases!(on two threads, healthy_shards_work_on:
    with_replicas = (1, false),
    without_replicas = (0, false),
    with_replicas_and_full_coverage = (1, true),
    without_replicas_and_full_coverage = (0, true),
);

/// One client locks one name on each shard, and one server is frozen. The acquire of all names fails and leaves nothing
/// behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_lock_with_frozen_member_leaves_no_keys() {
    let cluster = primaries(3).await;
    let one = bed::builder(&cluster.url()).command_timeout(secs(1)).connect().await.unwrap();
    let multi = one.multi(SLOTS.map(|slot| key_in(slot, "multi:")));
    multi.lock().await.unwrap().unlock().await.unwrap();
    let frozen = cluster.owner(SLOTS[1]).await;
    cluster.stop(frozen).await;
    let got = bed::ends("an acquire with a wait", multi.acquire(Acquire::new().wait(secs(2)))).await;
    assert!(!matches!(got, Ok(Some(_))), "a member is frozen: {got:?}");
    for node in cluster.nodes().iter().filter(|node| node.id() != frozen.id()) {
        becomes("keys left at the others", Vec::<String>::new(), async || node.admin().keys().await).await;
    }
    cluster.cont(frozen);
    bed::idle(&one).await;
    becomes("keys left at the frozen server", Vec::<String>::new(), async || frozen.admin().keys().await).await;
    end(one).await;
}

//! Tests of the engine with paused time, over the simulated server. A test chooses the fate or the reply of each
//! command, and checks what the engine does then. `docs/architecture.md` has a glossary (contender, look, ...).

mod acquire;
mod again;
mod answers;
mod book;
mod by_owner;
mod coalesce;
mod confirmed;
mod crowds;
mod deadline;
mod delay;
mod doubts;
mod endings;
mod fair;
mod fake;
mod handoff;
mod looks;
mod many;
mod members;
mod notes;
mod on_time;
mod order;
mod over_slots;
mod promise;
mod readers;
mod registry;
mod release;
mod renewal;
mod revoke;
mod rounds;
mod same_owner;
mod seats;
mod seen;
mod shared_commands;
mod stress;
mod subscriptions;
mod suspend;
mod table;
mod wait;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Client;
use crate::engine::registry::Registry;
use crate::transport::Transport;
use crate::{Acquire, DistLock, Guard, Options, Owner, ReentrantLock, Result};

use fake::Fake;

fn client(change: impl FnOnce(&mut Options)) -> (Client, Arc<Fake>) {
    let fake = Fake::new();
    let mut options = Options { preflight: false, batching: false, ..Options::default() };
    change(&mut options);
    let node: Arc<dyn Transport> = Arc::new(Arc::clone(&fake));
    (Client::over_transport(node, options).unwrap(), fake)
}

fn with_lock() -> (Client, Arc<Fake>, ReentrantLock) {
    let (client, fake) = client(|_| ());
    let lock = client.reentrant("x");
    (client, fake, lock)
}

fn with_owner() -> (Client, Arc<Fake>, Owner) {
    let (client, fake) = client(|_| ());
    let owner = client.owner();
    (client, fake, owner)
}

fn with_lock_and_owner() -> (Client, Arc<Fake>, ReentrantLock, Owner) {
    let (client, fake, lock) = with_lock();
    let owner = client.owner();
    (client, fake, lock, owner)
}

fn with_registry() -> (Client, Arc<Fake>, Arc<Registry>) {
    let (client, fake) = client(|_| ());
    let registry = Arc::clone(&client.engine().registry);
    (client, fake, registry)
}

/// Lets all ready tasks run, and all work that takes no longer than a few replies.
async fn settle() {
    tokio::time::sleep(ms(20)).await;
}

/// Shuts down, and asserts that nothing is left in this process or on the server.
async fn done(client: Client, fake: &Fake) {
    // Background releases of dropped guards run before the shutdown.
    settle().await;
    client.shutdown(Duration::from_secs(60)).await.unwrap();
    settle().await;
    let stats = client.stats();
    assert_eq!((stats.holds, stats.waiting, stats.under_way), (0, 0, 0), "{stats:?}");
    assert_eq!(fake.held(), Vec::<String>::new());
    drop(client);
    settle().await;
    // The test has the last reference.
    assert_eq!(fake.tasks(), 0, "tasks left");
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn waiter(lock: &ReentrantLock) -> JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// Starts an acquire in a task of its own.
fn begin(lock: &(impl DistLock + Clone + 'static), how: Acquire) -> JoinHandle<Result<Option<Guard>>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire(how).await })
}

/// Waits for `what`, and asserts how long it took.
async fn takes<T>(time: Range<Duration>, what: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let outcome = what.await;
    assert!(time.contains(&began.elapsed()), "took {:?}, not {time:?}", began.elapsed());
    outcome
}

/// Acquires and releases the lock `x`. The replies teach the client the server's clock.
async fn learn_clock(client: &Client, owner: &Owner) {
    release::acquire(client, owner).await.unlock().await.unwrap();
}

/// The guard of a wait that must succeed within this time.
async fn got(within: Duration, wait: JoinHandle<Result<Option<Guard>>>) -> Guard {
    tokio::time::timeout(within, wait).await.expect("waits on").unwrap().unwrap().expect("the wait ran out")
}

/// Starts `count` tasks in order. Each task holds the lock for `hold`. Returns the order in which the tasks held it.
async fn lock_in_turn(client: &Client, name: &str, count: usize, hold: Duration) -> Vec<usize> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..count {
        let (lock, order) = (client.reentrant(name), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().push(n);
            tokio::time::sleep(hold).await;
            guard.unlock().await.unwrap();
        }));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut order.lock())
}

/// Asserts that subscriptions end after the linger time, and that nothing is left.
async fn no_trace(client: &Client, fake: &Fake) {
    tokio::time::sleep(secs(6)).await;
    assert_eq!(client.engine().registry.names(), 0);
    let (made, ended) = fake.subscriptions();
    assert_eq!(made.len(), ended.len());
}

/// [`no_trace`], and [`done`].
async fn leaves_no_trace(client: Client, fake: &Fake) {
    no_trace(&client, fake).await;
    done(client, fake).await;
}

//! Many users compete for a lock, and all make progress. `tests/sim/group/special.rs` and `tests/sim/timing/groups.rs`
//! assert how soon and at what cost.

use std::sync::Arc;

use distlock::{DistLock, Flavour, RedLock};

use crate::rig::{Path, User, five, patient};
use bed::{Counter, PATIENCE, ends, ms};

/// The lock with its list of servers rotated by `by`, and reversed if `by` is odd.
fn turned(user: &User, by: usize) -> RedLock {
    let mut locks: Vec<Arc<dyn DistLock>> =
        user.clients.iter().map(|client| client.lock(Flavour::Reentrant, "x")).collect();
    locks.rotate_left(by % 5);
    if by % 2 == 1 {
        locks.reverse();
    }
    RedLock::of("x", locks).node_timeout(PATIENCE)
}

/// Five clients with three tasks each compete over five servers. Each client lists the servers in its own order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_clients_with_servers_in_any_order_exclude_each_other() {
    const TASKS: u64 = 3;
    const EACH: u64 = 5;
    five(async |five| {
        let counter = Arc::new(Counter::default());
        let mut tasks = Vec::new();
        for n in 0..5 {
            let user = five.warm(Path::Direct, patient).await;
            for _ in 0..TASKS {
                let (lock, counter) = (turned(&user, n), Arc::clone(&counter));
                tasks.push(tokio::spawn(async move {
                    for _ in 0..EACH {
                        let guard = ends("an acquire in a crowd", lock.lock()).await.unwrap();
                        counter.bump(ms(1)).await;
                        guard.unlock().await.unwrap();
                    }
                }));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(counter.get(), 5 * TASKS * EACH);
    })
    .await;
}

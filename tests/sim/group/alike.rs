//! Two runs of one seed are alike, to the nanosecond: what a seed shows once it shows again.

use std::sync::Arc;

use distlock::{Acquire, DistLock, Flavour, MultiLock, Striped};
use distlock_sim::LinkOptions;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::fleet::Fleet;
use crate::rig::{Party, ms, virtually};

/// What is taken.
#[derive(Clone, Copy, Debug)]
enum What {
    Red,
    Multi,
    Striped,
}

const CLIENTS: usize = 3;
const SEGMENTS: usize = 2;

impl What {
    const fn servers(self) -> usize {
        match self {
            Self::Red => 3,
            Self::Multi => 2,
            Self::Striped => 1,
        }
    }

    fn lock(self, fleet: &Fleet, client: usize) -> Arc<dyn DistLock> {
        let ours = &fleet.clients[client];
        match self {
            Self::Red => Arc::new(fleet.red(client, Flavour::Reentrant, "a", ms(100))),
            Self::Multi => {
                let all = (0..6).map(|n| ours[n % 2].client.lock(Flavour::Reentrant, &format!("lock:{n}"))).collect();
                Arc::new(MultiLock::of(all))
            }
            Self::Striped => Arc::new(Striped::over(&ours[0].client, Flavour::Reentrant, "s", SEGMENTS)),
        }
    }
}

/// Who had what, when and as whom; and what the servers have done.
async fn run(seed: u64, what: What) -> Vec<String> {
    let fleet =
        Fleet::new(seed, what.servers(), CLIENTS, |server, _| Party::new(server, LinkOptions::default(), |_| ()));
    let (start, seen) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let lock = what.lock(&fleet, client);
        for task in 0..2 {
            let (lock, seen) = (Arc::clone(&lock), Arc::clone(&seen));
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let outcome = lock.acquire(Acquire::new().wait(ms(5_000))).await;
                    let at = start.elapsed();
                    let Ok(Some(guard)) = outcome else { panic!("{client}.{task} at {at:?}: {outcome:?}") };
                    seen.lock().push(format!("{at:?} {client}.{task} {} {}", guard.name(), guard.owner()));
                    sleep(ms(3)).await;
                    guard.unlock().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    fleet.shutdown().await.unwrap();
    let mut seen = std::mem::take(&mut *seen.lock());
    let commands: Vec<u64> = fleet.servers.iter().map(|server| server.commands_run()).collect();
    seen.push(format!("{:?} {commands:?}", start.elapsed()));
    seen
}

#[test]
fn two_runs_of_one_seed_are_alike() {
    for what in [What::Red, What::Multi, What::Striped] {
        for seed in 1..=10 {
            let [first, second, other] =
                [seed, seed, seed + 100].map(|seed| virtually(async move || run(seed, what).await));
            let differ = first.iter().zip(&second).position(|(a, b)| a != b);
            let differ = differ.map(|at| (at, &first[at], &second[at]));
            assert!(differ.is_none() && first.len() == second.len(), "{what:?}, seed {seed}: {differ:?}");
            assert_ne!(first, other, "{what:?}: the seed decides nothing");
        }
    }
}

//! A task that takes and releases locks in every way.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquire, DistLock, Error, Guard, Owner};
use distlock_support::Numbers;
use distlock_support::agent::monotonic_ns;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::bed::{BOUND, Shared};
use crate::history::{LONGEST, Section};
use crate::kinds::{Kind, Made};
use crate::tally::Tally;

pub fn start(shared: &Arc<Shared>, tasks: usize, seed: u64) -> Vec<JoinHandle<()>> {
    let worker = |task| work(Arc::clone(shared), Numbers::lane(seed, task as u64));
    (0..tasks).map(|task| tokio::spawn(worker(task))).collect()
}

/// Waits until the workers have ended, after the stop signal.
pub async fn ended(workers: Vec<JoinHandle<()>>, tally: &Tally) {
    for worker in workers {
        match timeout(2 * BOUND, worker).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tally.violation(format!("a worker panicked: {error}")),
            Err(_) => tally.violation("a worker has not ended".to_owned()),
        }
    }
}

async fn work(shared: Arc<Shared>, mut numbers: Numbers) {
    while !shared.is_stopped() {
        let kind = numbers.of(&Kind::ALL);
        let hot = numbers.once_in(2);
        let made = {
            let (clients, red) = (shared.clients.read(), shared.red.read());
            let client = &clients[numbers.below(clients.len() as u64) as usize];
            let owner = (kind.comes_in_again() && numbers.once_in(4)).then(|| client.owner());
            (kind.make(client, &red, hot, &mut numbers), owner)
        };
        let (made, owner) = made;
        once(&shared, kind, &made, owner.as_ref(), &mut numbers).await;
        if numbers.once_in(8) {
            tokio::time::sleep(numbers.between(0, 20)).await;
        }
    }
}

/// Chooses the options of an acquire, and the time after which it is cancelled, if any.
fn way(owner: Option<&Owner>, numbers: &mut Numbers) -> (Acquire, Option<Duration>) {
    let mut how = Acquire::new();
    let mut cut = None;
    match numbers.below(6) {
        0 => how = how.wait(Duration::ZERO),
        1 => how = how.wait(numbers.between(1, 300)),
        2 => how = how.wait(numbers.between(300, 3000)),
        3 => cut = Some(numbers.between(0, 60)),
        _ => {}
    }
    if numbers.once_in(5) {
        how = how.lease(numbers.between(500, 4000));
    }
    if let Some(owner) = owner {
        how = how.owner(owner);
    }
    (how, cut)
}

/// Acquires a lock once. While holding it, sometimes re-enters, records a section, and releases.
async fn once(shared: &Shared, kind: Kind, made: &Made, owner: Option<&Owner>, numbers: &mut Numbers) {
    let tally = &shared.tally;
    let (how, cut) = way(owner, numbers);
    let Some(guard) = taken(tally, kind, &made.lock, &how, cut).await else { return };
    tally.count(&format!("section: {}", kind.name()));
    let from = monotonic_ns();
    // Re-enter as the same owner.
    let again = match owner {
        Some(owner) if numbers.once_in(2) => {
            let how = Acquire::new().owner(owner).wait(Duration::from_secs(2));
            taken(tally, kind, &made.lock, &how, None).await
        }
        _ => None,
    };
    if let Some(guard) = again {
        give_back(tally, kind, guard, numbers).await;
    }
    match numbers.below(20) {
        0 => tokio::time::sleep(numbers.between(5, 60)).await,
        1..6 => tokio::time::sleep(numbers.between(0, 3)).await,
        _ => tokio::task::yield_now().await,
    }
    let to = monotonic_ns();
    // `is_held` is called after the end was recorded, so the lock was held until then.
    if guard.is_held() && to - from < LONGEST {
        let section = Section { from, to, alone: kind.alone(), token: guard.fencing_token().ok() };
        if kind == Kind::Striped && guard.name().starts_with("hot:") {
            (shared.sink)(guard.name(), section);
        }
        made.names.iter().for_each(|name| (shared.sink)(name, section));
    }
    give_back(tally, kind, guard, numbers).await;
}

async fn taken(
    tally: &Tally,
    kind: Kind,
    lock: &Arc<dyn DistLock>,
    how: &Acquire,
    cut: Option<Duration>,
) -> Option<Guard> {
    let acquire = lock.acquire(how.clone());
    let outcome = match cut {
        Some(cut) => timeout(cut, acquire).await.or_else(|_| {
            tally.count("cancelled");
            Ok::<_, Error>(Ok(None))
        }),
        None => Ok(timeout(BOUND, acquire).await.unwrap_or_else(|_| {
            tally.violation(format!("{}: {}: an acquire has not ended within {BOUND:?}", kind.name(), lock.name()));
            Ok(None)
        })),
    };
    match outcome.and_then(|outcome| outcome) {
        Ok(guard) => {
            tally.count(if guard.is_some() { "acquired" } else { "busy, or wait over" });
            guard
        }
        Err(error) => {
            tally.error(kind.name(), &error);
            // An unreachable server fails at once, so wait before the next try.
            tokio::time::sleep(Duration::from_millis(20)).await;
            None
        }
    }
}

async fn give_back(tally: &Tally, kind: Kind, guard: Guard, numbers: &mut Numbers) {
    let name = guard.name().to_owned();
    match numbers.below(6) {
        0 => drop(guard),
        1 => drop(timeout(numbers.between(0, 5), guard.unlock()).await),
        _ => match timeout(BOUND, guard.unlock()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tally.error(kind.name(), &error),
            Err(_) => {
                tally.violation(format!("{}: {name}: an unlock has not ended within {BOUND:?}", kind.name()));
            }
        },
    }
}

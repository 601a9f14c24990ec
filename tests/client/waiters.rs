//! Tasks of one process that wait as one owner: when one of them comes in, so do the others, whoever is before them in the queue.
//! No waiter looks by itself for an hour. `sim/company.rs` has them at random.

use std::sync::Arc;

use distlock::{Acquire, Client, DistLock, Flavour, Guard, Owner};
use tokio::task::JoinHandle;

use bed::{Bed, becomes, ends, enter, eventually, idle, ms, reentrant};

/// Waits for a lock, as this owner if there is one.
fn waits(lock: &Arc<dyn DistLock>, owner: Option<&Owner>) -> JoinHandle<Guard> {
    let (lock, how) = (Arc::clone(lock), owner.map_or_else(Acquire::new, |owner| Acquire::new().owner(owner)));
    tokio::spawn(async move { lock.acquire(how).await.unwrap().unwrap() })
}

async fn waiting(client: &Client, count: usize) {
    becomes("waiters", count, async || client.stats().waiting).await;
}

async fn give_back(what: &str, task: JoinHandle<Guard>) {
    ends(what, task).await.unwrap().unlock().await.unwrap();
}

/// What keeps waiters of a flavour out.
const fn opposite(flavour: Flavour) -> Flavour {
    match flavour {
        Flavour::Read => Flavour::Write,
        other => other,
    }
}

async fn still(bed: &Bed) -> Client {
    // What is handed over in the process would need no release to wake anybody.
    bed.connect(bed.still_builder()).await
}

/// Another task waits between the two.
#[tokio::test]
async fn two_waiters_of_one_owner_come_in_together() {
    reentrant(async |bed| {
        let (ours, theirs) = (still(bed).await, bed.client().await);
        // A plain lock is not entered twice.
        for flavour in Flavour::ALL.iter().filter(|flavour| **flavour != Flavour::Plain) {
            let name = format!("job {flavour}");
            let held = theirs.lock(opposite(*flavour), &name).lock().await.unwrap();
            let (lock, me) = (ours.lock(*flavour, &name), ours.owner());
            let mut tasks = Vec::new();
            for (n, owner) in [None, Some(&me), None, Some(&me)].into_iter().enumerate() {
                tasks.push(waits(&lock, owner));
                waiting(&ours, n + 1).await;
            }
            held.unlock().await.unwrap();
            let [contender, first, between, second] = tasks.try_into().unwrap();
            give_back("the contender", contender).await;
            let first = ends("the first waiter of the owner", first).await.unwrap();
            let second = ends("the second waiter of the owner", second).await.unwrap();
            assert_eq!(lock.state().await.unwrap().hold_count(&me), 2, "{flavour}");
            second.unlock().await.unwrap();
            first.unlock().await.unwrap();
            give_back("the one between", between).await;
            idle(&ours).await;
        }
    })
    .await;
}

/// The owner acquires the lock past the queue: for itself, or to write where another task of it waits to read.
#[tokio::test]
async fn a_waiter_comes_in_when_its_owner_acquires_the_lock_past_the_queue() {
    reentrant(async |bed| {
        let (ours, theirs) = (still(bed).await, bed.client().await);
        for (wanted, taken, behind) in [
            (Flavour::Reentrant, Flavour::Reentrant, true),
            (Flavour::Reentrant, Flavour::Reentrant, false),
            (Flavour::Write, Flavour::Write, true),
            (Flavour::Fenced, Flavour::Fenced, true),
            (Flavour::Read, Flavour::Read, true),
            (Flavour::Read, Flavour::Read, false),
            // Nobody gets past its queue.
            (Flavour::Fair, Flavour::Fair, false),
            (Flavour::Read, Flavour::Write, true),
        ] {
            let name = format!("job {wanted} {taken} {behind}");
            let held = theirs.lock(opposite(wanted), &name).lock().await.unwrap();
            let (lock, me) = (ours.lock(wanted, &name), ours.owner());
            let other = behind.then(|| waits(&lock, None));
            waiting(&ours, usize::from(behind)).await;
            let second = waits(&lock, Some(&me));
            waiting(&ours, 1 + usize::from(behind)).await;
            let listens = async || bed.admin.channels().await.iter().any(|channel| channel.contains(&name));
            eventually("the contender listens", listens).await;
            // It looks once more when it listens.
            tokio::time::sleep(ms(50)).await;
            // No message tells of that.
            bed.admin.cmd::<()>(&["DEL", &name]).await;
            let first = enter(&*ours.lock(taken, &name), &me).await;
            let second = ends(&format!("{name}: the owner's waiter"), second).await.unwrap();
            second.unlock().await.unwrap();
            first.unlock().await.unwrap();
            if let Some(other) = other {
                give_back("the other waiter", other).await;
            }
            drop(held);
            idle(&ours).await;
        }
    })
    .await;
}

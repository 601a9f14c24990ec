//! The cost of fenced and of spin locks, whose renewals share commands.

use distlock::{Acquire, Client, Flavour};

use bed::cost::{only, passed_on, renewal, sent, turns};
use bed::{Bed, eventually, ms, reentrant, secs};

const BOTH: [Flavour; 2] = [Flavour::Fenced, Flavour::Spin];

/// A client, when the server knows the scripts.
async fn begin(bed: &Bed) -> Client {
    let client = bed.client().await;
    for flavour in BOTH {
        let lock = client.lock(flavour, "warm");
        let guard = lock.lock().await.unwrap();
        guard.extend(secs(20)).await.unwrap();
        lock.state().await.unwrap();
        lock.force_unlock().await.unwrap();
        drop(guard);
        lock.lock().await.unwrap().unlock().await.unwrap();
        client.renew_now().await;
    }
    client.fenced("warm").last_token().await.unwrap();
    bed::idle(&client).await;
    bed.admin.reset_stats().await;
    client
}

#[tokio::test]
async fn every_step_of_a_fenced_or_a_spin_lock_is_one_command() {
    reentrant(async |bed| {
        let other = bed.client().await;
        let client = begin(bed).await;
        let me = client.owner();
        for flavour in BOTH {
            let (lock, there) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
            turns(bed, &client, &*lock).await;
            let how = || Acquire::new().owner(&me);
            let outer = lock.acquire(how()).await.unwrap().unwrap();
            let inner = lock.acquire(how()).await.unwrap().unwrap();
            assert!(lock.try_lock().await.unwrap().is_none() && there.try_lock().await.unwrap().is_none());
            assert_eq!(sent(bed).await, only(&[("evalsha", 4)]), "{flavour}");
            inner.unlock().await.unwrap();
            outer.extend(secs(10)).await.unwrap();
            lock.state().await.unwrap();
            assert_eq!(sent(bed).await, only(&[("evalsha", 3)]), "{flavour}");
            assert_eq!(outer.token().is_some(), flavour == Flavour::Fenced);
            assert_eq!(sent(bed).await, only(&[]), "{flavour}");
            lock.force_unlock().await.unwrap();
            assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "{flavour}");
            drop(outer);
            bed::idle(&client).await;
            sent(bed).await;
        }
        client.fenced("x").last_token().await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
    })
    .await;
}

/// Every section asks for its number: handed over to a task of the same process, a fenced lock costs what it costs anywhere: a
/// release, an acquire, and the look of one that comes while it is held. A spin lock is handed over for nothing, as a reentrant
/// one is.
#[tokio::test]
async fn inside_a_process_a_spin_lock_is_passed_on_and_a_fenced_one_is_not() {
    reentrant(async |bed| {
        let warm = begin(bed).await;
        for (flavour, commands) in [(Flavour::Fenced, 100..=160), (Flavour::Spin, 0..=0)] {
            let all = passed_on(bed, flavour).await;
            let of = |name: &str| all.get(name).copied().unwrap_or_default();
            assert!(commands.contains(&of("evalsha")), "{flavour}: {all:?}");
            assert!(of("subscribe") <= u64::from(flavour == Flavour::Fenced), "{flavour}: {all:?}");
        }
        bed::idle(&warm).await;
    })
    .await;
}

/// Behind another process a hundred tasks are one contender and one subscription. Each is served by one command, and gives it
/// back by another.
#[tokio::test]
async fn a_hundred_tasks_that_wait_for_a_fenced_lock_are_one_contender() {
    const TASKS: u64 = 100;
    reentrant(async |bed| {
        let client = bed.client().await;
        let holder = begin(bed).await;
        let guard = holder.fenced("x").lock().await.unwrap();
        sent(bed).await;
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let lock = client.fenced("x");
                tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
            })
            .collect();
        eventually("all wait", secs(5), async || client.stats().waiting == TASKS as usize).await;
        let attempts = async || bed.admin.calls("evalsha").await == 2;
        eventually("two attempts", secs(5), attempts).await;
        tokio::time::sleep(ms(300)).await;
        assert_eq!(sent(bed).await, only(&[("evalsha", 2), ("ping", 1), ("subscribe", 1)]));
        guard.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        let all = sent(bed).await;
        println!("{TASKS} tasks served: {all:?}");
        // Somebody may look once more, in vain.
        let scripts = all.get("evalsha").copied().unwrap_or_default();
        assert!((2 * TASKS + 1..=2 * TASKS + 20).contains(&scripts), "{all:?}");
        assert_eq!(all.get("subscribe"), None, "{all:?}");
    })
    .await;
}

#[tokio::test]
async fn renewals_of_fenced_and_spin_locks_share_commands() {
    reentrant(async |bed| {
        let client = begin(bed).await;
        let mut guards = Vec::new();
        for n in 0..250 {
            guards.push(client.lock(BOTH[n % 2], &format!("r{n}")).lock().await.unwrap());
        }
        renewal(bed, &client, &guards, 3).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

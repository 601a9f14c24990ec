//! Nobody tells, and nobody listens.

use std::time::Instant;

use distlock::{Acquire, Backoff, DistLock};
use tokio::task::JoinSet;

use crate::rig::{scripts, spin, warm};
use bed::{eventually, idle, in_vain, ms, secs};

/// All that two clients do with spin locks, waiting for each other included: not one command of pub/sub.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_one_message_and_not_one_subscription() {
    spin(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        // What clients try out when they connect.
        bed.admin.reset_stats().await;
        let mut tasks = JoinSet::new();
        for n in 0..16 {
            let lock = clients[n % 2].spin("job");
            tasks.spawn(async move {
                for _ in 0..5 {
                    let guard = lock.lock().await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    // Every other one by dropping.
                    if n % 4 < 2 {
                        guard.unlock().await.unwrap();
                    }
                }
            });
        }
        while !tasks.is_empty() {
            assert_eq!(bed.admin.channels().await, [""; 0]);
            if let Ok(Some(done)) = tokio::time::timeout(ms(5), tasks.join_next()).await {
                done.unwrap();
            }
        }
        let [ours, theirs] = clients.each_ref().map(|client| client.spin("job"));
        let guard = ours.lock().await.unwrap();
        assert!(in_vain(&theirs.lock_for(ms(100)).await));
        assert!(theirs.force_unlock().await.unwrap());
        drop(guard);
        idle(&clients[0]).await;
        let stats = bed.admin.commandstats().await;
        let pubsub = ["publish", "spublish", "subscribe", "ssubscribe", "psubscribe", "unsubscribe"];
        assert!(!stats.keys().any(|name| pubsub.contains(&name.as_str())), "{stats:?}");
    })
    .await;
}

/// It is for logins that may neither publish nor subscribe: they do all there is to do, and nothing is refused.
#[tokio::test]
async fn a_login_without_a_right_to_any_message_will_do() {
    spin(async |bed| {
        let rules = ["reset", "on", ">SECRET", "~*", "resetchannels", "+@all", "-publish", "-spublish", "-@pubsub"];
        let () = bed.admin.cmd(&[&["ACL", "SETUSER", "mute"], rules.as_slice()].concat()).await;
        let builder = || bed.builder().username("mute").password("SECRET").preflight(false);
        let (ours, theirs) = (bed.connect(builder()).await, bed.connect(builder()).await);
        let () = bed.admin.cmd(&["ACL", "LOG", "RESET"]).await;
        let (lock, other) = (ours.spin("job"), theirs.spin("job"));
        let me = ours.owner();
        let guard = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        let inner = lock.acquire(Acquire::new().owner(&me).lease(secs(40))).await.unwrap().unwrap();
        assert_eq!(ours.renew_now().await.renewed, 1);
        inner.extend(secs(50)).await.unwrap();
        let waiter = tokio::spawn(async move { other.lock().await.unwrap() });
        eventually("it waits", async || theirs.stats().waiting == 1).await;
        inner.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        let guard = waiter.await.unwrap();
        assert!(in_vain(&lock.lock_for(ms(100)).await));
        assert!(lock.is_locked().await.unwrap() && lock.force_unlock().await.unwrap());
        drop(guard);
        idle(&theirs).await;
        let refused: Vec<redis::Value> = bed.admin.cmd(&["ACL", "LOG"]).await;
        assert!(refused.is_empty(), "{refused:?}");
    })
    .await;
}

/// Inside a process nobody has to look: a release wakes the next one at once, however long the pauses are.
#[tokio::test]
async fn the_next_task_of_the_process_is_in_at_once() {
    spin(async |bed| {
        let client = warm(bed).await;
        let lock = client.spin("job").backoff(Backoff::constant(secs(60)).unwrap());
        for by_hand in [true, false] {
            // What a guard of an owner with a name gives back is not handed over: it goes over the server.
            let how = if by_hand { Acquire::new() } else { Acquire::new().owner(&client.owner()) };
            let guard = lock.acquire(how).await.unwrap().unwrap();
            let waiting = lock.clone();
            let waiter = tokio::spawn(async move { (waiting.lock().await.unwrap(), Instant::now()) });
            eventually("it waits", async || client.stats().waiting == 1).await;
            tokio::time::sleep(ms(50)).await;
            let released = Instant::now();
            guard.unlock().await.unwrap();
            let (guard, woken) = waiter.await.unwrap();
            let took = woken.saturating_duration_since(released);
            println!("by hand: {by_hand}: in after {took:?}");
            assert!(took < secs(2), "{took:?}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// Of a process's tasks one looks, whatever their number.
#[tokio::test]
async fn a_hundred_tasks_look_as_often_as_one() {
    spin(async |bed| {
        let (holder, client) = (bed.client().await, warm(bed).await);
        let guard = holder.spin("job").lock_leased(secs(60)).await.unwrap();
        let pause = Backoff::constant(ms(50)).unwrap();
        for tasks in [1, 100] {
            let mut waiting = JoinSet::new();
            for _ in 0..tasks {
                let lock = client.spin("job").backoff(pause);
                waiting.spawn(async move { in_vain(&lock.lock_for(ms(1_200)).await) });
            }
            eventually("all wait", async || client.stats().waiting == tasks).await;
            let before = scripts(bed).await;
            tokio::time::sleep(ms(800)).await;
            let looks = scripts(bed).await - before;
            println!("{tasks} tasks: {looks} looks in 800 ms");
            // Pauses of 25 to 50 ms.
            assert!((8..=33).contains(&looks), "{tasks} tasks: {looks} looks in 800 ms");
            assert!(waiting.join_all().await.into_iter().all(|in_vain| in_vain));
            idle(&client).await;
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

//! What a queue costs the server while nobody moves, and when many leave: as much as its own waiters, however many others wait.

use std::time::Duration;

use distlock::Client;
use tokio::task::JoinHandle;

use crate::rig::{DEAD_JAVA, plant};
use bed::{Bed, eventually, fair, secs};

/// The places in the queue of "x".
async fn places(bed: &Bed) -> usize {
    bed.admin.cmd(&["LLEN", "redisson_lock_queue:{x}"]).await
}

/// So many clients with so many waiters each, all of which have their place.
async fn wait(bed: &Bed, clients: usize, waiters: usize) -> (Vec<Client>, Vec<JoinHandle<()>>) {
    let (mut all, mut tasks) = (Vec::new(), Vec::new());
    let before = places(bed).await;
    for _ in 0..clients {
        let client = bed.client().await;
        for _ in 0..waiters {
            let lock = client.fair("x");
            tasks.push(tokio::spawn(async move {
                drop(lock.lock().await.unwrap());
            }));
        }
        all.push(client);
    }
    let there = async || places(bed).await == before + clients * waiters;
    eventually("all have a place", there).await;
    // Their subscriptions are there as well, so that nobody asks again.
    let waiting = async || all.iter().all(|client| client.stats().under_way == 0);
    eventually("nothing is under way", waiting).await;
    (all, tasks)
}

async fn end(bed: &Bed, tasks: Vec<JoinHandle<()>>) {
    tasks.iter().for_each(JoinHandle::abort);
    futures::future::join_all(tasks).await;
    eventually("all have left", async || places(bed).await == 0).await;
}

/// Until so many refreshes have run; how often one of them asked for the whole queue.
async fn refreshes(bed: &Bed, count: u64) -> u64 {
    bed.admin.reset_stats().await;
    eventually("refreshes", async || bed.admin.calls("evalsha").await >= count).await;
    bed.admin.calls("lrange").await
}

#[tokio::test]
async fn who_waits_reads_nobody_elses_place() {
    fair(async |bed| {
        let holder = bed.client().await;
        let guard = holder.fair("x").lock_leased(secs(600)).await.unwrap();
        let (_clients, tasks) = wait(bed, 10, 5).await;
        assert_eq!(refreshes(bed, 30).await, 0, "the queue was read");
        // Beside a waiter of Java's, whose deadline hangs on those ahead of it, it is.
        plant(bed, "x", DEAD_JAVA, 300_000.0).await;
        assert!(refreshes(bed, 10).await > 0, "a deadline of Java's was not set");
        end_java(bed).await;
        assert!(guard.is_held());
        end(bed, tasks).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

async fn end_java(bed: &Bed) {
    let _: u64 = bed.admin.cmd(&["LREM", "redisson_lock_queue:{x}", "0", DEAD_JAVA]).await;
    let _: u64 = bed.admin.cmd(&["ZREM", "redisson_lock_timeout:{x}", DEAD_JAVA]).await;
}

#[tokio::test]
async fn who_leaves_reads_nobody_elses_place() {
    fair(async |bed| {
        let holder = bed.client().await;
        let guard = holder.fair("x").lock_leased(secs(600)).await.unwrap();
        let (_clients, tasks) = wait(bed, 2, 12).await;
        bed.admin.reset_stats().await;
        end(bed, tasks).await;
        assert_eq!(bed.admin.calls("lrange").await, 0, "the queue was read");
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Those that leave by one command are found in one look through the list, wherever they stand; the others keep their order.
#[tokio::test]
async fn who_leave_together_are_taken_out_together() {
    leave_together(true).await;
}

/// By a login that may not set entries of a list, or at a server that is out of memory, each is searched for.
#[tokio::test]
async fn who_leave_together_need_no_right_to_lset() {
    leave_together(false).await;
}

async fn leave_together(may_set: bool) {
    const EACH: usize = 300;
    fair(async |bed| {
        let (holder, client) = (bed.client().await, bed.client().await);
        let guard = holder.fair("x").lock_leased(secs(600)).await.unwrap();
        if !may_set {
            let _: String = bed.admin.cmd(&["ACL", "SETUSER", "default", "-lset"]).await;
        }
        let (mut leaving, mut staying) = (Vec::new(), Vec::new());
        let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        for n in 0..EACH {
            // At the head, in the middle and at the end; one stays among many.
            for stays in if n % 100 == 50 { vec![false, true] } else { vec![false] } {
                let (lock, order) = (client.fair("x"), std::sync::Arc::clone(&order));
                let task = tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    order.lock().push(n);
                    guard.unlock().await.unwrap();
                });
                if stays { &mut staying } else { &mut leaving }.push(task);
                let queued = leaving.len() + staying.len();
                eventually("it has its place", async || places(bed).await == queued).await;
            }
        }
        eventually("nothing is under way", async || client.stats().under_way == 0).await;
        bed.admin.reset_stats().await;
        leaving.iter().for_each(JoinHandle::abort);
        eventually("they have left", async || places(bed).await == staying.len()).await;
        let searches = bed.admin.calls("lrem").await;
        println!("{EACH} have left by {searches} LREM, {} LRANGE", bed.admin.calls("lrange").await);
        assert_eq!(searches < EACH as u64 / 4, may_set, "{searches} searches for {EACH}");
        let left: Vec<String> = bed.admin.cmd(&["LRANGE", "redisson_lock_queue:{x}", "0", "-1"]).await;
        assert!(left.iter().all(|owner| !owner.is_empty()), "{left:?}");
        guard.unlock().await.unwrap();
        futures::future::join_all(staying).await;
        assert_eq!(*order.lock(), [50, 150, 250]);
    })
    .await;
}

/// The processor time of the server so far, in s.
async fn used(bed: &Bed) -> f64 {
    let info: String = bed.admin.cmd(&["INFO", "cpu"]).await;
    let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    of("used_cpu_user:").unwrap() + of("used_cpu_sys:").unwrap()
}

/// Not a test: so many tasks of one process, of which every other one gives up, and the rest is served in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement; TASKS=n"]
async fn the_cost_of_a_crowd() {
    let tasks = std::env::var("TASKS").ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(4_000);
    fair(async |bed| {
        let client = bed.client().await;
        let guard = client.fair("x").lock_leased(secs(600)).await.unwrap();
        println!("before: {}", resident());
        let (began, before) = (std::time::Instant::now(), used(bed).await);
        let served = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let waiting: Vec<_> = (0..tasks)
            .map(|_| {
                let (lock, served) = (client.fair("x"), std::sync::Arc::clone(&served));
                tokio::spawn(async move {
                    let guard = lock.lock().await.map_err(|error| println!("lock: {error}"))?;
                    served.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    guard.unlock().await.map_err(|error| println!("unlock: {error}"))
                })
            })
            .collect();
        eventually("all have a place", async || places(bed).await == tasks).await;
        println!("{tasks} have a place after {:?}, {:.1} s of the server", began.elapsed(), used(bed).await - before);
        // With messages coming in.
        tokio::time::sleep(secs(5)).await;
        println!("all wait: {}", resident());
        let (began, before) = (std::time::Instant::now(), used(bed).await);
        waiting.iter().step_by(2).for_each(JoinHandle::abort);
        eventually("half have left", async || places(bed).await == tasks / 2).await;
        println!("half have left after {:?}, {:.1} s of the server", began.elapsed(), used(bed).await - before);
        println!("half wait: {}", resident());
        let (began, before) = (std::time::Instant::now(), used(bed).await);
        guard.unlock().await.unwrap();
        let ended = futures::future::join_all(waiting).await;
        let failed = ended.iter().filter(|end| matches!(end, Ok(Err(())))).count();
        println!(
            "{} served after {:?}, {failed} failed, {:.1} s of the server",
            served.load(std::sync::atomic::Ordering::Relaxed),
            began.elapsed(),
            used(bed).await - before
        );
        println!("done: {}", resident());
    })
    .await;
}

/// How much memory this process has resident, and had at the most, in MiB; nothing where there is no `/proc`.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
    };
    format!("{:.0} MiB resident, {:.0} at the most", value("VmRSS:"), value("VmHWM:"))
}

/// Not a test: what a queue of `CLIENTS` times `WAITERS` costs a second, and what their leaving costs.
#[tokio::test]
#[ignore = "a measurement; CLIENTS=n WAITERS=n"]
async fn the_cost_of_a_fleet() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let (clients, waiters) = (number("CLIENTS").unwrap_or(100), number("WAITERS").unwrap_or(5));
    fair(async |bed| {
        let used = async || used(bed).await;
        let holder = bed.client().await;
        let guard = holder.fair("x").lock_leased(secs(600)).await.unwrap();
        let (_clients, tasks) = wait(bed, clients, waiters).await;
        let before = used().await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let idle = used().await - before;
        println!("{clients} clients x {waiters}: {:.1} % of the server while nobody moves", idle * 10.0);
        let before = used().await;
        end(bed, tasks).await;
        println!("all {} left: {:.0} ms of server time", clients * waiters, (used().await - before) * 1e3);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Redisson takes dead waiters of ours out of the queue, but does not know where they are registered.
#[tokio::test]
async fn a_registration_that_java_left_hides_no_waiter_of_javas() {
    fair(async |bed| {
        let holder = bed.client().await;
        let guard = holder.fair("x").lock_leased(secs(600)).await.unwrap();
        let (_clients, tasks) = wait(bed, 1, 3).await;
        let waiters = "redisson_lock_waiters:{x}:x";
        let _: u64 = bed.admin.cmd(&["HSET", waiters, "0a1b2c3d-0000-8000-9000-00000000000d:1", "nonce"]).await;
        // Its deadline is over in 3 s if nobody moves it along.
        plant(bed, "x", DEAD_JAVA, 3_000.0).await;
        let due = async || bed.admin.cmd::<Option<f64>>(&["ZSCORE", "redisson_lock_timeout:{x}", DEAD_JAVA]).await;
        let planted = due().await.unwrap();
        eventually("moved along", async || due().await.unwrap() > planted).await;
        let known = async || bed.admin.cmd::<u64>(&["HLEN", waiters]).await;
        eventually("forgotten", async || known().await == 3).await;
        end_java(bed).await;
        end(bed, tasks).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

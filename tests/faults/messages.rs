//! Malicious messages: anybody may publish on a lock's channel.

use std::time::{Duration, Instant};

use distlock::Client;
use distlock_support::child::{self, Child};

use bed::fault::{brisk, warm};
use bed::{Bed, eventually, idle, ms, reentrant, secs};

const CHANNEL: &str = "redisson_lock__channel:{a}";

/// A client that waits for the lock, and one that holds it.
async fn waiting(bed: &Bed) -> (Client, distlock::Guard, tokio::task::JoinHandle<(distlock::Guard, Instant)>) {
    let holder = bed.client().await;
    let waiter = bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30))).await;
    warm(&waiter).await;
    let guard = holder.reentrant("a").lock().await.unwrap();
    let lock = waiter.reentrant("a");
    let task = tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) });
    eventually("the waiter listens", async || bed.admin.numsub(CHANNEL).await == 1).await;
    tokio::time::sleep(ms(50)).await;
    (waiter, guard, task)
}

/// Whatever a message says, it makes a waiter look once, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_messages_are_hints_at_most() {
    reentrant(async |bed| {
        let (_waiter, guard, task) = waiting(bed).await;
        let megabyte = vec![b'x'; 1 << 20];
        let odd: [&[u8]; 10] = [
            b"",
            b"1",
            b"0",
            b"-1",
            b"-9223372036854775808",
            b"2",
            b"\xff\xfe\0\x80",
            b"\r\n+OK\r\n",
            b"{\"a\":1}",
            &megabyte,
        ];
        bed.admin.reset_stats().await;
        for message in odd {
            assert_eq!(bed.admin.publish(CHANNEL, message).await, 1);
        }
        tokio::time::sleep(ms(200)).await;
        let asked = bed.admin.calls("evalsha").await;
        assert!(asked <= odd.len() as u64, "asked {asked} times for {} messages", odd.len());
        assert!(!task.is_finished() && guard.is_held());
        guard.unlock().await.unwrap();
        let (guard, _) = tokio::time::timeout(secs(5), task).await.expect("woken").unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A process that waits for the lock, of which nothing else is known to use memory.
async fn waiting_child(bed: &Bed) -> (Client, distlock::Guard, Child) {
    let holder = bed.client().await;
    let guard = holder.reentrant("a").lock().await.unwrap();
    let mut child = Child::spawn("messages::waiting_process", &[("URL", &bed.server.url())]);
    child.expect("ready").await;
    eventually("the waiter listens", async || bed.admin.numsub(CHANNEL).await == 1).await;
    tokio::time::sleep(ms(50)).await;
    (holder, guard, child)
}

/// The child of [`waiting_child`].
#[tokio::test]
async fn waiting_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let client = brisk(&std::env::var("URL").unwrap()).watchdog(secs(30)).poll_cap(secs(30)).connect().await.unwrap();
    warm(&client).await;
    child::say("ready");
    let guard = client.reentrant("a").lock().await.unwrap();
    child::say("granted");
    guard.unlock().await.unwrap();
    client.shutdown(secs(5)).await.unwrap();
    child::say("done");
    // Its memory is looked at.
    child::hear().await;
}

/// The most memory that a process has had so far, in KiB.
fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid())).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("VmHWM")
}

/// A flood of messages, 10^5 in the end: a burst of looks, then one every 10 ms at the most; the memory stays flat; and
/// the release is noticed.
#[tokio::test]
async fn a_flood_is_answered_by_few_looks_and_little_memory() {
    reentrant(async |bed| {
        let (holder, guard, mut waiter) = waiting_child(bed).await;
        let fill = "for i = 1, ARGV[1] do redis.call('publish', KEYS[1], '0') end";
        // Once before, for what is allocated once.
        let () = bed.admin.cmd(&["EVAL", fill, "1", CHANNEL, "5000"]).await;
        tokio::time::sleep(secs(1)).await;
        let before = peak(&waiter);
        bed.admin.reset_stats().await;
        // At a pace at which every message could be answered, for a second.
        let start = Instant::now();
        while start.elapsed() < secs(1) {
            let () = bed.admin.cmd(&["EVAL", fill, "1", CHANNEL, "5"]).await;
            tokio::time::sleep(ms(1)).await;
        }
        let (asked, took) = (bed.admin.calls("evalsha").await, start.elapsed());
        let allowed = 64 + u64::try_from(took.as_millis() / 10).unwrap() + 5;
        println!("looked {asked} times in {took:?}, {allowed} are allowed");
        assert!((20..=allowed).contains(&asked), "{asked} looks in {took:?}");
        // Faster than it can be read.
        bed.admin.reset_stats().await;
        let start = Instant::now();
        for _ in 0..200 {
            let () = bed.admin.cmd(&["EVAL", fill, "1", CHANNEL, "500"]).await;
            tokio::time::sleep(ms(3)).await;
        }
        let flooded = start.elapsed();
        guard.unlock().await.unwrap();
        let released = Instant::now();
        waiter.expect("granted").await;
        let took = start.elapsed();
        println!("100 000 messages in {flooded:?}; granted {:?} after the release", released.elapsed());
        waiter.expect("done").await;
        let grown = peak(&waiter) - before;
        waiter.tell("end");
        let asked = bed.admin.calls("evalsha").await;
        // Of both processes: the release here, the release there, and the connections' own.
        let allowed = 64 + u64::try_from(took.as_millis() / 10).unwrap() + 5;
        println!("looked {asked} times in {took:?}, {allowed} are allowed; grown by {grown} KiB");
        assert!(asked > 1 && asked <= allowed, "{asked} looks in {took:?}");
        assert!(grown < 16 << 10, "grown by {grown} KiB");
        assert!(took < secs(30));
        waiter.wait().await;
        idle(&holder).await;
    })
    .await;
}

/// Big messages in masses: what a client cannot take in time the server drops, connection and all; the waiter is served
/// all the same.
#[tokio::test]
async fn big_messages_in_masses_are_survived() {
    reentrant(async |bed| {
        let (_holder, guard, mut waiter) = waiting_child(bed).await;
        let before = peak(&waiter);
        let fill = "local m = string.rep('x', 1048576) for i = 1, 100 do redis.call('publish', KEYS[1], m) end";
        for _ in 0..5 {
            let () = bed.admin.cmd(&["EVAL", fill, "1", CHANNEL]).await;
            tokio::time::sleep(ms(100)).await;
        }
        let grown = peak(&waiter) - before;
        println!("grown by {grown} KiB at the most");
        assert!(grown < 64 << 10, "grown by {grown} KiB");
        guard.unlock().await.unwrap();
        let released = Instant::now();
        waiter.expect("granted").await;
        println!("granted {:?} after the release", released.elapsed());
        assert!(released.elapsed() < secs(10));
        waiter.expect("done").await;
        waiter.tell("end");
        waiter.wait().await;
    })
    .await;
}

/// Messages on other channels, on patterns and on shards reach nobody here.
#[tokio::test]
async fn messages_elsewhere_wake_nobody() {
    reentrant(async |bed| {
        let (_waiter, guard, task) = waiting(bed).await;
        bed.admin.reset_stats().await;
        for channel in
            ["redisson_lock__channel:{b}", "redisson_lock__channel:{a", "a", "*", "redisson_lock__channel:{a}x"]
        {
            assert_eq!(bed.admin.publish(channel, b"0").await, 0);
        }
        let () = bed.admin.cmd(&["SPUBLISH", CHANNEL, "0"]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(bed.admin.calls("evalsha").await, 0);
        guard.unlock().await.unwrap();
        task.await.unwrap().0.unlock().await.unwrap();
    })
    .await;
}

//! Malicious messages: every client may publish on a lock's channel.

use distlock::{Client, Guard};
use distlock_support::child::{self, Child};

use crate::rig::patient;
use bed::{Bed, PATIENCE, becomes, ends, idle, reentrant};

const CHANNEL: &str = "redisson_lock__channel:{a}";

async fn one_listens(bed: &Bed) {
    becomes("subscribers", 1, async || bed.admin.numsub(CHANNEL).await).await;
}

/// Each message on the lock's channel causes one attempt of a waiter. A message on another channel has no effect.
#[tokio::test]
async fn odd_message_causes_at_most_one_attempt() {
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
    let elsewhere =
        ["redisson_lock__channel:{b}", "redisson_lock__channel:{a", "a", "*", "redisson_lock__channel:{a}x"];
    reentrant(async |bed| {
        // The holder never subscribes.
        let holder = bed.connect(bed.still_builder().configure(|options| options.yield_after_release = false)).await;
        let waiter = bed.still_client().await;
        for here in [true, false] {
            let guard = holder.reentrant("a").lock().await.unwrap();
            let lock = waiter.reentrant("a");
            let task = tokio::spawn(async move { lock.lock().await.unwrap() });
            becomes("waiting tasks", 1, async || waiter.stats().waiting).await;
            one_listens(bed).await;
            becomes("commands under way", 0, async || waiter.stats().under_way).await;
            bed.admin.reset_stats().await;
            if here {
                for message in odd {
                    assert_eq!(bed.admin.publish(CHANNEL, message).await, 1);
                }
            } else {
                for channel in elsewhere {
                    assert_eq!(bed.admin.publish(channel, b"0").await, 0);
                }
                let () = bed.admin.cmd(&["SPUBLISH", CHANNEL, "0"]).await;
            }
            assert!(!task.is_finished() && guard.is_held());
            guard.unlock().await.unwrap();
            let guard = ends("the waiter", task).await.unwrap();
            // One script call is the release, and one is the acquire that finds the lock free.
            let asked = bed.admin.calls("evalsha").await;
            let most = if here { odd.len() as u64 + 2 } else { 2 };
            assert!(asked <= most, "here: {here}: {asked} calls, {most} are allowed");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A process that only waits for the lock, so that its memory can be measured.
async fn waiting_child(bed: &Bed) -> (Client, Guard, Child) {
    let holder = bed.client().await;
    let guard = holder.reentrant("a").lock().await.unwrap();
    let mut child = Child::spawn("messages::waiting_process", &[("URL", &bed.server.url())]);
    child.expect("ready").await;
    one_listens(bed).await;
    (holder, guard, child)
}

/// The child of [`waiting_child`].
#[tokio::test]
async fn waiting_process() {
    if !child::is_child() {
        return;
    }
    child::init();
    let client = patient(&std::env::var("URL").unwrap()).connect().await.unwrap();
    child::say("ready");
    let guard = client.reentrant("a").lock().await.unwrap();
    child::say("granted");
    guard.unlock().await.unwrap();
    client.shutdown(PATIENCE).await.unwrap();
    child::say("done");
    // The parent reads this process's memory.
    child::hear().await;
}

fn peak(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid())).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("VmHWM")
}

/// Floods of 10^5 small messages, or of 500 MB in big messages. The server drops the messages of a client that reads
/// too slowly, and closes its connection. Memory use stays constant, and the waiter notices the release.
/// `tests/sim/flood.rs` counts the attempts that a flood causes.
async fn a_flood_takes_little_memory((fill, times, most): (&str, u32, u64)) {
    reentrant(async |bed| {
        let (holder, guard, mut waiter) = waiting_child(bed).await;
        // The first flood makes the client allocate its buffers.
        let first = "for i = 1, 5000 do redis.call('publish', KEYS[1], '0') end";
        let () = bed.admin.cmd(&["EVAL", first, "1", CHANNEL]).await;
        let before = peak(&waiter);
        for _ in 0..times {
            let () = bed.admin.cmd(&["EVAL", fill, "1", CHANNEL]).await;
        }
        guard.unlock().await.unwrap();
        waiter.expect("granted").await;
        waiter.expect("done").await;
        let grown = peak(&waiter) - before;
        assert!(grown < most << 10, "grown by {grown} KiB");
        waiter.tell("end");
        waiter.wait().await;
        idle(&holder).await;
    })
    .await;
}

bed::cases!(a_flood_takes_little_memory:
    of_small_messages = ("for i = 1, 500 do redis.call('publish', KEYS[1], '0') end", 200, 16),
    of_big_messages = ("local m = string.rep('x', 1048576) for i = 1, 100 do redis.call('publish', KEYS[1], m) end", 5, 64),
);

//! `distlock list` on 1 000 000 keys with 10 000 locks. Prints numbers, and asserts no time:
//!
//! `cargo test --release -p distlock-cli --test see million -- --ignored --nocapture`

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use distlock_support::reaper::Adopted;

use crate::rig::{Bed, DISTLOCK};

const KEYS: usize = 1_000_000;
const LOCKS: usize = 10_000;

/// Writes `n` keys by this command, in scripts of 10 000 keys.
async fn fill(bed: &Bed, n: usize, command: &str) {
    let script = format!("for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do {command} end return 1");
    for first in (0..n).step_by(10_000) {
        let (first, last) = (first.to_string(), (first + 9_999).to_string());
        let _: i64 = bed.admin.cmd(&["EVAL", &script, "0", &first, &last]).await;
    }
}

/// Sends PING after PING until `done`. Returns the times.
async fn ping(bed: &Bed, done: Arc<AtomicBool>) -> Vec<Duration> {
    let mut times = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let start = Instant::now();
        let _: String = bed.admin.cmd(&["PING"]).await;
        times.push(start.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times.sort();
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; takes a minute"]
async fn list_of_a_million_keys() {
    let bed = Bed::new().await;
    fill(&bed, KEYS - LOCKS, "redis.call('set', 'cache:' .. n, 'value ' .. n, 'px', 3600000)").await;
    let lock = "redis.call('hset', 'lock:' .. n, '71b96ce8-2746-8c3a-9d0e-0123456789ab:' .. string.format('%d', n), 1) \
                redis.call('pexpire', 'lock:' .. n, 3600000)";
    fill(&bed, LOCKS, lock).await;

    let done = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let child = Command::new(DISTLOCK)
        .args(["list", "--json"])
        .env("DISTLOCK_URL", bed.server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (id, adopted) = (child.id(), Adopted::new(child.id()));
    let ended = Arc::clone(&done);
    let listing = tokio::task::spawn_blocking(move || {
        let output = child.wait_with_output().unwrap();
        ended.store(true, Ordering::Relaxed);
        output
    });
    let memory = tokio::spawn(peak_memory(id, Arc::clone(&done)));
    let pings = ping(&bed, done).await;
    let took = start.elapsed();
    let output = listing.await.unwrap();
    drop(adopted);
    let locks = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!((locks, output.status.code()), (LOCKS, Some(0)));
    let p99 = pings[pings.len() * 99 / 100];
    println!("{KEYS} keys, {locks} locks: {took:?}; p99 of {} PINGs: {p99:?}; {}", pings.len(), memory.await.unwrap());
}

/// The last line `VmHWM` (peak of resident memory) of a process before its end.
async fn peak_memory(id: u32, done: Arc<AtomicBool>) -> String {
    let mut peak = String::new();
    while !done.load(Ordering::Relaxed) {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        if let Some(line) = status.lines().find(|line| line.starts_with("VmHWM")) {
            line.clone_into(&mut peak);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    peak
}

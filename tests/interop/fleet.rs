//! Mixed fleets: processes of both languages at the same locks, each with several at work, one of either side killed every
//! few seconds and replaced. Nobody is beside anybody it must not be beside, somebody always gets in, and nothing is left.
//!
//! Ten seconds each; `FLEET_SECS=600` for as long as before a release, and then with the older Redisson too.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use distlock::Client;
use distlock_support::agent::{VERSIONS, monotonic_ns};
use distlock_support::child;
use distlock_support::{Admin, Numbers, must};

use crate::fenced::counter;
use crate::fleet_parts::{EXCESS, Span, in_rust, lock_of};
use crate::fleet_processes::Fleet;
use crate::rig::{Rig, ms, until_is};

/// Processes of each language.
const EACH: usize = 2;
/// Of both sides: no lease in here is longer.
pub const WATCHDOG: Duration = Duration::from_secs(3);
/// Nobody waits for longer.
pub const LONGEST: Duration = Duration::from_secs(3);
/// Of ours, in each process. Of Java's there are [`THREADS`].
pub const TASKS: u64 = 3;
pub const THREADS: i64 = 2;
pub const AT: &str = "INTEROP_URL";
pub const FLAVOUR: &str = "INTEROP_FLAVOUR";
pub const SEED: &str = "INTEROP_SEED";
/// What the locks are called: multi locks are over some of them, the others have the first.
pub const NAMES: [&str; 3] = ["fleet:a", "fleet:b", "fleet:c"];

/// How long to play, if somebody has said so.
fn told() -> Option<Duration> {
    let secs = std::env::var("FLEET_SECS").ok()?;
    Some(Duration::from_secs(secs.parse().expect("seconds")))
}

/// How long a fleet plays.
pub fn playtime() -> Duration {
    told().unwrap_or(Duration::from_secs(10))
}

pub async fn fleet_of_reentrant_locks(version: &str) {
    play("reentrant", version).await;
}

pub async fn fleet_of_fair_locks(version: &str) {
    play("fair", version).await;
}

pub async fn fleet_of_read_write_locks(version: &str) {
    play("read-write", version).await;
}

pub async fn fleet_of_fenced_locks(version: &str) {
    play("fenced", version).await;
}

pub async fn fleet_of_spin_locks(version: &str) {
    play("spin", version).await;
}

pub async fn fleet_of_multi_locks(version: &str) {
    play("multi", version).await;
}

async fn play(flavour: &'static str, version: &str) {
    if version != VERSIONS[0] && told().is_none() {
        println!("{version}: passed over without FLEET_SECS");
        return;
    }
    // It takes the whole machine.
    let rig = Rig::alone(Vec::new()).await;
    let mut fleet = Fleet::start(&rig, flavour, version, EACH).await;
    EXCESS.store(i64::MIN, Ordering::Relaxed);
    let watching = (flavour == "fair").then(|| tokio::spawn(furthest(rig.server.url())));
    let (from, start, time) = (monotonic_ns(), Instant::now(), playtime());
    let pause = Duration::from_secs(5).min(time / 4);
    let mut dice = Numbers::new(1);
    // Whoever is killed is replaced, which takes its time.
    let mut next = pause;
    while next < time {
        tokio::time::sleep(next.saturating_sub(start.elapsed())).await;
        fleet.kill_one(dice.below(2) == 0).await;
        next = start.elapsed().max(next + pause);
    }
    tokio::time::sleep(time.saturating_sub(start.elapsed())).await;
    let to = monotonic_ns();
    let (killed, java_killed) = (fleet.killed, std::mem::take(&mut fleet.java_killed));
    let spans = fleet.end().await;
    let excess = match watching {
        Some(task) => {
            task.abort();
            EXCESS.load(Ordering::Relaxed)
        }
        None => i64::MIN,
    };
    let gaps = gaps(&spans, from, to);
    let (still, _) = gaps.iter().copied().max().unwrap_or_default();
    let [theirs, ours] = [true, false].map(|java| spans.iter().filter(|span| span.java == java).count());
    println!(
        "{version}: {flavour}, {time:?}: {theirs} holds of Java's and {ours} of ours, {killed} killed, {still:?} without a grant \
         at the most"
    );
    judge(flavour, spans);
    assert!(theirs > 5 && ours > 5, "not mixed: {theirs} of Java's, {ours} of ours");
    for (still, begun) in gaps {
        // Each waiter of Java's that died costs its own wait too, among Java's processes alone as here.
        let near = begun.saturating_sub(nanos(WATCHDOG + LONGEST))..begun + nanos(still);
        let dead = java_killed.iter().filter(|at| near.contains(at)).count() as u32 * THREADS as u32;
        let waits = if flavour == "fair" { LONGEST * dead } else { Duration::ZERO };
        assert!(still <= WATCHDOG + Duration::from_secs(5) + waits, "{still:?} without a grant, {dead} dead of Java's");
    }
    assert!(excess <= 100, "a deadline is {excess} ms too far away");
    nothing_left(rig, flavour).await;
}

/// The times without a grant, and when they began.
fn gaps(spans: &[Span], from: u64, to: u64) -> Vec<(Duration, u64)> {
    let mut grants: Vec<u64> = spans.iter().map(|span| span.from).filter(|at| (from..to).contains(at)).collect();
    grants.extend([from, to]);
    grants.sort_unstable();
    grants.windows(2).map(|pair| (Duration::from_nanos(pair[1] - pair[0]), pair[0])).collect()
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("seconds")
}

/// No two at once at the same lock where one of them is alone in it; and every token is above those before it.
fn judge(flavour: &str, mut spans: Vec<Span>) {
    spans.sort_by_key(|span| span.from);
    for (at, one) in spans.iter().enumerate() {
        for other in spans[at + 1..].iter().take_while(|other| other.from < one.to) {
            let apart = one.locks & other.locks != 0 && (one.alone || other.alone);
            must(!apart, &format!("{flavour}: at once: {one:?}, {other:?}"));
        }
    }
    if flavour == "fenced" {
        for pair in spans.windows(2) {
            must(pair[0].token < pair[1].token, &format!("a token that does not grow: {:?}, {:?}", pair[0], pair[1]));
        }
    }
}

/// By how much a deadline was further away than a lease, a place of ours and the longest waits of all that stand there.
async fn furthest(url: String) {
    let look = "local t = redis.call('time') local last = redis.call('zrange', KEYS[1], -1, -1, 'withscores')[2] \
                return last and {math.floor(last - t[1] * 1000 - t[2] / 1000), redis.call('zcard', KEYS[1])}";
    let admin = Admin::from_url(&url).await;
    let key = format!("redisson_lock_timeout:{{{}}}", NAMES[0]);
    loop {
        if let Some((left, standing)) = admin.cmd::<Option<(i64, i64)>>(&["EVAL", look, "1", &key]).await {
            let bound = WATCHDOG.as_millis() as i64 + 5000 + standing * LONGEST.as_millis() as i64;
            EXCESS.fetch_max(left - bound, Ordering::Relaxed);
        }
        tokio::time::sleep(ms(20)).await;
    }
}

/// Once the leases are over, every lock can be had, and then nothing is there any more.
async fn nothing_left(rig: Rig, flavour: &str) {
    let client = rig.watched_client(WATCHDOG).await;
    let locks = if flavour == "multi" { NAMES.len() } else { 1 };
    for name in &NAMES[..locks] {
        let wait = WATCHDOG + LONGEST * (EACH as u32) * (THREADS as u32);
        let guard = lock_of(&client, flavour, &[*name], true).lock_for(wait).await.expect("an answer");
        guard.expect("free once the leases are over").unlock().await.expect("held");
    }
    client.shutdown(Duration::from_secs(5)).await.expect("a shutdown in time");
    let left = async || {
        let mut left = rig.keys().await;
        // Who was killed while it waited stays registered for a minute where a client of Java's took it out of the queue.
        left.retain(|key| *key != counter(NAMES[0]) && !key.starts_with("redisson_lock_waiters:"));
        left.extend(rig.admin.channels().await);
        left
    };
    until_is("no key and no channel", left, Vec::is_empty).await;
    // What makes Redisson's unlocks idempotent stays for a while when it is killed.
    for key in rig.admin.keys().await {
        assert!(key == counter(NAMES[0]) || rig.admin.pttl(&key).await != -1, "{key} has no end");
    }
}

/// A process of ours; passes over in an ordinary run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_member() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let seed: u64 = set(SEED).parse().expect("a number");
    let client = Client::builder(&set(AT)).watchdog(WATCHDOG).command_timeout(WATCHDOG / 3);
    let client = client.connect().await.expect("the parent's server");
    let (over, flavour) = (Arc::default(), set(FLAVOUR));
    let tasks = (0..TASKS)
        .map(|task| tokio::spawn(in_rust(client.clone(), flavour.clone(), seed * TASKS + task, Arc::clone(&over))));
    let tasks: Vec<_> = tasks.collect();
    assert_eq!(child::hear().await, "enough");
    over.store(true, Ordering::Relaxed);
    for ended in futures::future::join_all(tasks).await {
        ended.expect("the rounds of one");
    }
    client.shutdown(Duration::from_secs(5)).await.expect("a shutdown in time");
    child::say("done");
}

//! Mixed fleets: processes of both languages use the same locks with several workers each. A process of each side is
//! killed and replaced. Exclusion holds, both sides make progress, and nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock::Prefer;
use distlock_support::Admin;
use distlock_support::child;
use tokio::sync::Semaphore;

use crate::fenced::counter;
use crate::fleet_parts::{Span, in_rust, lock_of};
use crate::fleet_processes::Fleet;
use crate::rig::{PATIENCE, Rig, connect, ms, until, until_is};

const EACH: usize = 2;
/// The watchdog of both sides, which is longer than any requested lease. A hold that a slow machine loses is not
/// counted.
pub const WATCHDOG: Duration = Duration::from_secs(6);
pub const LONGEST: Duration = Duration::from_secs(3);
/// Number of turns of each side before and after every kill.
const TURNS: u64 = 20;
static FLEETS: Semaphore = Semaphore::const_new(2);
/// Our tasks per process. Java has [`THREADS`].
pub const TASKS: u64 = 3;
pub const THREADS: i64 = 2;
pub const AT: &str = "INTEROP_URL";
pub const FLAVOUR: &str = "INTEROP_FLAVOUR";
pub const SEED: &str = "INTEROP_SEED";
/// Names of the locks. Multi locks use several names, all other locks use the first name.
pub const NAMES: [&str; 3] = ["fleet:a", "fleet:b", "fleet:c"];

/// The keys that count the turns of Java and of ours.
pub const TURNS_OF: [&str; 2] = ["turns:java", "turns:ours"];

/// Waits for a free place among the concurrent fleets.
pub async fn with_room() -> impl Sized {
    FLEETS.acquire().await.expect("never closed")
}

pub async fn fleet_of_reentrant_locks_keeps_exclusion_after_kills(version: &str) {
    play("reentrant", version).await;
}

pub async fn fleet_of_fair_locks_keeps_exclusion_after_kills(version: &str) {
    play("fair", version).await;
}

pub async fn fleet_of_read_write_locks_keeps_exclusion_after_kills(version: &str) {
    play("read-write", version).await;
}

pub async fn fleet_of_fenced_locks_keeps_exclusion_after_kills(version: &str) {
    play("fenced", version).await;
}

pub async fn fleet_of_spin_locks_keeps_exclusion_after_kills(version: &str) {
    play("spin", version).await;
}

pub async fn fleet_of_multi_locks_keeps_exclusion_after_kills(version: &str) {
    play("multi", version).await;
}

async fn play(flavour: &'static str, version: &str) {
    let _room = with_room().await;
    let rig = Rig::start(Vec::new()).await;
    let mut fleet = Fleet::start(&rig, flavour, version, EACH).await;
    let excess = Arc::new(AtomicI64::new(i64::MIN));
    let watching = (flavour == "fair").then(|| tokio::spawn(furthest(rig.server.url(), Arc::clone(&excess))));
    for java_is_killed in [true, false] {
        both_have_turns(&rig, flavour).await;
        fleet.kill_one(java_is_killed).await;
    }
    both_have_turns(&rig, flavour).await;
    let spans = fleet.end().await;
    watching.inspect(|task| task.abort());
    judge(flavour, spans);
    let excess = excess.load(Ordering::Relaxed);
    assert!(excess <= 100, "a deadline is {excess} ms too far away");
    nothing_left(rig, flavour).await;
}

async fn both_have_turns(rig: &Rig, flavour: &str) {
    for key in TURNS_OF {
        let turns = async || rig.admin.cmd::<Option<u64>>(&["GET", key]).await.unwrap_or(0);
        let wanted = turns().await + TURNS;
        until(&format!("{flavour}: {TURNS} more {key}"), async || turns().await >= wanted).await;
    }
}

/// Asserts that exclusive spans of the same lock do not overlap, and that each token is above all earlier ones.
fn judge(flavour: &str, mut spans: Vec<Span>) {
    // Ignores spans that ended before the holder learned of the acquire.
    spans.retain(|span| span.from < span.to);
    spans.sort_by_key(|span| span.from);
    for (at, one) in spans.iter().enumerate() {
        for other in spans[at + 1..].iter().take_while(|other| other.from < one.to) {
            let apart = one.locks & other.locks != 0 && (one.alone || other.alone);
            assert!(!apart, "{flavour}: at once: {one:?}, {other:?}");
        }
    }
    if flavour == "fenced" {
        for pair in spans.windows(2) {
            assert!(pair[0].token < pair[1].token, "a token that does not grow: {:?}, {:?}", pair[0], pair[1]);
        }
    }
}

/// Measures by how much the last queue deadline exceeds its bound: the sum of Redisson's own wait (see below), a lease,
/// our `fair_wait`, and the longest wait of each waiter.
async fn furthest(url: String, excess: Arc<AtomicI64>) {
    let look = "local t = redis.call('time') local last = redis.call('zrange', KEYS[1], -1, -1, 'withscores')[2] \
                return last and {math.floor(last - t[1] * 1000 - t[2] / 1000), redis.call('zcard', KEYS[1])}";
    let admin = Admin::from_url(&url).await;
    let key = format!("redisson_lock_timeout:{{{}}}", NAMES[0]);
    loop {
        if let Some((left, standing)) = admin.cmd::<Option<(i64, i64)>>(&["EVAL", look, "1", &key]).await {
            // Redisson's longest wait counts twice: for a notified Java head, and for the Java waiter behind it.
            let told = 2 * 300_000;
            let bound = told + WATCHDOG.as_millis() as i64 + 5000 + standing * LONGEST.as_millis() as i64;
            excess.fetch_max(left - bound, Ordering::Relaxed);
        }
        tokio::time::sleep(ms(20)).await;
    }
}

/// After the leases have ended, every lock can be acquired, and then nothing is left.
async fn nothing_left(rig: Rig, flavour: &str) {
    let client = rig.client().await;
    let locks = if flavour == "multi" { NAMES.len() } else { 1 };
    for name in &NAMES[..locks] {
        let guard = lock_of(&client, flavour, &[*name], true).lock_for(PATIENCE).await.expect("lock_for");
        guard.expect("free once the leases are over").unlock().await.expect("unlock");
    }
    bed::end(client).await;
    rig.admin.cmd::<()>(&["DEL", TURNS_OF[0], TURNS_OF[1]]).await;
    let left = async || {
        let mut left = rig.keys().await;
        // A killed waiter stays registered for a minute if a Java client removed its queue entry.
        left.retain(|key| *key != counter(NAMES[0]) && !key.starts_with("redisson_lock_waiters:"));
        left.extend(rig.admin.channels().await);
        left
    };
    until_is("no key and no channel", left, Vec::is_empty).await;
    // Redisson's unlock latches stay for a while after their process was killed.
    for key in rig.admin.keys().await {
        assert!(key == counter(NAMES[0]) || rig.admin.pttl(&key).await != -1, "{key} has no end");
    }
}

/// A process of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_member() {
    if !child::is_child() {
        return;
    }
    child::init();
    let set = |name| std::env::var(name).expect("set by the parent");
    let seed: u64 = set(SEED).parse().expect("a number");
    // The first two processes differ.
    let prefer = if (seed / 2000).is_multiple_of(2) { Prefer::Writers } else { Prefer::Readers };
    let builder = bed::builder(&set(AT)).watchdog(WATCHDOG).command_timeout(WATCHDOG / 3);
    let client = connect(builder.configure(|options| options.prefer = prefer)).await;
    let (over, flavour) = (Arc::default(), set(FLAVOUR));
    let tasks = (0..TASKS).map(|task| {
        tokio::spawn(in_rust(client.clone(), set(AT), flavour.clone(), seed * TASKS + task, Arc::clone(&over)))
    });
    let tasks: Vec<_> = tasks.collect();
    assert_eq!(child::hear().await, "enough");
    over.store(true, Ordering::Relaxed);
    for ended in futures::future::join_all(tasks).await {
        ended.expect("the rounds of one");
    }
    bed::end(client).await;
    child::say("done");
}

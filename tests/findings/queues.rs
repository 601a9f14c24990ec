//! Fair queues shared with Java (findings 8 and 12).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Acquire, Client};
use distlock_support::{Admin, Numbers, RedisServer, undisturbed};
use parking_lot::Mutex;

use bed::{Bed, eventually, ms, run_on, secs};

/// What Redisson's fair lock does, script by script.
const JAVA: &str = include_str!("../fair_model/java.lua");
/// Every waiter in order with its deadline, in ms from now on.
const LOOK: &str = "
local t, out = redis.call('time'), {}
for i, owner in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
  local due = redis.call('zscore', KEYS[3], owner)
  out[2 * i - 1], out[2 * i] = owner, due and math.floor(due - t[1] * 1000 - t[2] / 1000) or -1
end
return out";
const KEYS: [&str; 3] = ["a", "redisson_lock_queue:{a}", "redisson_lock_timeout:{a}"];
const CHANNELS: &str = "redisson_lock__channel:{a}";
/// Of both sides. Every lease in here is as long.
const WATCHDOG: Duration = secs(3);
/// The longest wait of a `tryLock` in here, in ms.
const LONGEST: u64 = 1000;

/// How long to play: ten minutes before a release.
fn playtime() -> Duration {
    secs(std::env::var("FLEET_SECS").ok().map_or(10, |text| text.parse().expect("seconds")))
}

async fn script<T: redis::FromRedisValue>(admin: &Admin, source: &str, args: &[&str]) -> T {
    let call = [&["EVAL", source, "3"], &KEYS[..], args].concat();
    admin.cmd(&call).await
}

/// What the whole fleet has seen.
#[derive(Default)]
struct Fleet {
    over: AtomicBool,
    /// Of Java's processes, so many are to die as they wait.
    doomed: AtomicU64,
    grants: AtomicU64,
    /// The last grant, and the longest time without one.
    pace: Mutex<Option<(Instant, Duration)>>,
    inside: AtomicU64,
}

impl Fleet {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn tick(&self) {
        let mut pace = self.pace.lock();
        let (last, longest) = pace.unwrap_or((Instant::now(), Duration::ZERO));
        *pace = Some((Instant::now(), longest.max(last.elapsed())));
    }

    async fn hold(&self, dice: &mut Numbers) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        self.tick();
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock at once");
        tokio::time::sleep(ms(dice.below(15))).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Where the waits stand in the number of a thread of Java's.
const CALL: u64 = 1_000_000;

/// A Java process with one thread: `tryLock(wait, MILLISECONDS)` in a loop, now and then a `lock()`, whose wait is
/// `fairLockWaitTimeout`. `long`: that.
async fn in_java(fleet: Arc<Fleet>, admin: Admin, seed: u64, long: Option<u64>) {
    let mut dice = Numbers::new(seed);
    let lease = WATCHDOG.as_millis().to_string();
    for call in 1.. {
        if !fleet.goes_on() {
            return;
        }
        let patient = long.filter(|_| dice.below(20) == 0);
        let wait = patient.unwrap_or(1 + dice.below(LONGEST));
        let me = format!("{seed:08x}-0000-4000-8000-000000000000:{}", call * CALL + wait);
        let wait = wait.to_string();
        let ask = async |what: &str| script::<Option<i64>>(&admin, JAVA, &[what, &me, &lease, &wait, CHANNELS]).await;
        let (from, limit) = (Instant::now(), ms(patient.map_or(wait.parse().unwrap(), |_| 3_600_000)));
        loop {
            if ask("long").await.is_none() {
                fleet.hold(&mut dice).await;
                ask("unlock").await;
                break;
            }
            if fleet.doomed.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                // Killed. The next is another process.
                break;
            }
            if from.elapsed() >= limit || !fleet.goes_on() {
                ask("fail").await;
                break;
            }
            tokio::time::sleep(ms(3).min(limit.saturating_sub(from.elapsed()))).await;
        }
    }
}

/// A process of ours: the same calls.
async fn in_rust(fleet: Arc<Fleet>, client: Client, seed: u64) {
    let (lock, mut dice) = (client.fair("a"), Numbers::new(seed));
    while fleet.goes_on() {
        if let Some(guard) = lock.lock_for(ms(1 + dice.below(LONGEST))).await.unwrap() {
            fleet.hold(&mut dice).await;
            guard.unlock().await.unwrap();
        }
    }
}

/// The furthest deadline, and by how much the worst was further than all waits together allow.
struct Seen {
    furthest: i64,
    excess: i64,
    queue: Vec<(String, i64)>,
}

/// No deadline is further away than a lease and the waits of all that stand up to it: what Redisson's fair lock sets when
/// nobody disturbs it. `place`: how long a place of ours lasts; one of them counts as that, and the others as their calls.
async fn watch(fleet: &Fleet, admin: &Admin, place: i64, time: Duration) -> Seen {
    let (start, mut killed) = (Instant::now(), Instant::now());
    let mut seen = Seen { furthest: 0, excess: i64::MIN, queue: Vec::new() };
    // Who died, or was given more time by one ahead who has gone since, is seen to within a second.
    let mut recent: Vec<(Instant, i64)> = Vec::new();
    while start.elapsed() < time {
        let queue: Vec<(String, i64)> = script(admin, LOOK, &[]).await;
        let java = |owner: &str| owner.as_bytes()[14] == b'4';
        let wait = |owner: &str| owner.rsplit(':').next().unwrap().parse::<i64>().unwrap() % CALL as i64;
        let each = |(owner, _): &(String, i64)| if java(owner) { wait(owner) } else { LONGEST as i64 };
        let all: i64 = queue.iter().map(each).sum();
        recent.retain(|(at, _)| at.elapsed() < ms(1500));
        recent.push((Instant::now(), all));
        let before = recent.iter().map(|(_, all)| *all).max().unwrap_or(0);
        for (owner, left) in &queue {
            let bound = WATCHDOG.as_millis() as i64 + place + before;
            if left - bound > seen.excess {
                (seen.excess, seen.queue) = (left - bound, queue.clone());
            }
            seen.furthest = seen.furthest.max(*left);
            assert!(java(owner) || place > 0);
        }
        if killed.elapsed() > secs(2) {
            killed = Instant::now();
            fleet.doomed.store(1, Ordering::SeqCst);
        }
        tokio::time::sleep(ms(2)).await;
    }
    fleet.tick();
    seen
}

/// `java` processes of Java's and `rust` of ours at one lock for so long, one of Java's killed every 2 s; the longest time
/// without a grant, and what was seen of the deadlines.
async fn play(bed: &Bed, java: u64, rust: u64, long: Option<u64>, time: Duration) -> (Duration, Seen) {
    let fleet = Arc::new(Fleet::default());
    let mut tasks = Vec::new();
    for seed in 1..=java {
        let admin = Admin::connect(&bed.server).await;
        tasks.push(tokio::spawn(in_java(Arc::clone(&fleet), admin, seed, long)));
    }
    for seed in 1..=rust {
        let builder = bed.builder().watchdog(WATCHDOG).command_timeout(secs(1));
        let builder = builder.java_fair_wait(ms(long.unwrap_or(300_000)));
        let client = bed.connect(builder).await;
        tasks.push(tokio::spawn(in_rust(Arc::clone(&fleet), client, 100 + seed)));
    }
    let place = if rust == 0 { 0 } else { 4_500 };
    let seen = watch(&fleet, &bed.admin, place, time).await;
    fleet.over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let (grants, pace) = (fleet.grants.load(Ordering::Relaxed), *fleet.pace.lock());
    let still = pace.expect("a grant").1;
    println!(
        "{java} of Java's and {rust} of ours, a lock() of {long:?} ms: {grants} grants, {still:?} without one at the most; \
         the furthest deadline {} ms away, {} ms too far",
        seen.furthest, seen.excess
    );
    for key in &KEYS {
        bed.admin.cmd::<()>(&["DEL", key]).await;
    }
    (still, seen)
}

/// Fleets of Java alone show that the bounds are those of Redisson, and mixed ones keep them. Who was killed as it waited
/// costs no more than its lease and its wait; with `lock()`s of Java's that is `fairLockWaitTimeout`.
async fn mixed(long: Option<u64>, time: Duration) {
    undisturbed(async || {
        let make = |client: &Client, name: &str| client.lock(distlock::Flavour::Fair, name);
        run_on(RedisServer::start(), make, async |bed| {
            let (_, alone) = play(bed, 8, 0, long, time / 4).await;
            assert!(alone.excess <= 50, "the bound is none of Java's: {:?}", alone.queue);
            let (still, seen) = play(bed, 4, 4, long, time * 3 / 4).await;
            assert!(seen.excess <= 50, "{} ms too far: {:?}", seen.excess, seen.queue);
            let most = WATCHDOG + ms(long.unwrap_or(0) + LONGEST) + secs(2);
            assert!(still <= most, "{still:?} without a grant");
        })
        .await;
    })
    .await;
}

/// Finding 8: short waits of Java's, beside ours, sent the deadlines of all hours away, and who died there stopped all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_8_short_waits_move_no_deadline() {
    mixed(None, playtime()).await;
}

/// The same where Java's `fairLockWaitTimeout` is not 300 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_8_another_fair_lock_wait_timeout_moves_no_deadline() {
    mixed(Some(2000), playtime()).await;
}

/// Finding 12: an owner made by Java that waits by our client keeps its place for as long as that client lives.
///
/// EXPECTED TO FAIL until the scripts know waiters of ours that have Java's ids (`ours` in `lua/fair/queue.lua`, by the hash of
/// registered waiters): its place is not refreshed, and is taken for one of a dead Java process after 4 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_12_an_owner_of_javas_that_waits_here_keeps_its_place() {
    bed::fair(async |bed| {
        let (holder, client, other) = (bed.client().await, bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock().await.unwrap();
        let owner: distlock::Owner = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:7".parse().unwrap();
        let (lock, as_java) = (client.fair("a"), owner.clone());
        let first = tokio::spawn(async move { lock.acquire(Acquire::new().owner(&as_java)).await.unwrap().unwrap() });
        let queue = async || bed.admin.cmd::<Vec<String>>(&["LRANGE", KEYS[1], "0", "-1"]).await;
        eventually("it waits", async || queue().await.len() == 1).await;
        let second = other.fair("a");
        let second = tokio::spawn(async move { second.lock().await.unwrap() });
        eventually("both wait", async || queue().await.len() == 2).await;
        let (start, order) = (Instant::now(), queue().await);
        assert_eq!(order[0], owner.to_string());
        while start.elapsed() < secs(7) {
            assert_eq!(queue().await, order, "after {:?}", start.elapsed());
            tokio::time::sleep(ms(20)).await;
        }
        guard.unlock().await.unwrap();
        let first = first.await.unwrap();
        assert_eq!(first.owner(), &owner);
        assert!(!second.is_finished());
        first.unlock().await.unwrap();
        second.await.unwrap().unlock().await.unwrap();
    })
    .await;
}

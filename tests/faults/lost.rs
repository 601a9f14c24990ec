//! Who loses a lock hears of it before anybody else can have it.

use std::time::{Duration, Instant};

use distlock::{Error, Guard, Lost};
use distlock_support::child::{self, Child};
use distlock_support::proxy::Proxy;

use bed::fault::{WATCHDOG, brisk, warm};
use bed::{eventually, ms, reentrant, secs};

const RUNS: u64 = 10;
const LEASE: Duration = secs(6);

/// When a guard was told of its loss.
async fn told(guard: &Guard) -> Instant {
    let lost = guard.lost().await;
    let at = Instant::now();
    assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
    assert!(!guard.is_held());
    at
}

/// Ten holders in ten black holes, begun at different points of their leases, beside ten waiters that get in the moment
/// the server lets them: by one monotonic clock, every holder has heard of it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lock_is_told_before_another_client_holds_it() {
    reentrant(async |bed| {
        let waiter = bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(10))).await;
        let mut runs = Vec::new();
        for run in 0..RUNS {
            let proxy = Proxy::start(bed.server.addr());
            // The margin is a hundredth: room for a machine that is slow to run what is due.
            let holder = bed.connect(brisk(&proxy.url()).watchdog(LEASE)).await;
            let waiter = waiter.clone();
            runs.push(tokio::spawn(async move {
                warm_up(&holder, run).await;
                let name = format!("lock {run}");
                let guard = holder.reentrant(&name).lock().await.unwrap();
                // Somewhere between two renewals.
                tokio::time::sleep(LEASE / 3 + ms(150 * run)).await;
                assert!(guard.is_held());
                proxy.blackhole(true);
                let lock = waiter.reentrant(&name);
                let waiting = tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    (Instant::now(), guard)
                });
                let lost = told(&guard).await;
                let (granted, other) = waiting.await.unwrap();
                proxy.blackhole(false);
                drop(guard);
                tokio::time::sleep(ms(300)).await;
                assert!(other.is_held());
                other.unlock().await.unwrap();
                (lost, granted)
            }));
        }
        for (run, task) in runs.into_iter().enumerate() {
            let (lost, granted) = task.await.unwrap();
            println!("run {run}: told {:?} before", granted.saturating_duration_since(lost));
            assert!(lost < granted, "run {run}: told {:?} after", lost - granted);
        }
    })
    .await;
}

async fn warm_up(client: &distlock::Client, run: u64) {
    client.reentrant(&format!("warm {run}")).lock().await.unwrap().unlock().await.unwrap();
}

/// The same with a server that stands still beyond the lease, which ends in it while nobody can see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_ends_in_a_frozen_server_is_told_before_another_client_holds_it() {
    reentrant(async |bed| {
        let holder = bed.connect(brisk(&bed.server.url())).await;
        let waiter = bed.connect(brisk(&bed.server.url()).watchdog(secs(30)).retry_attempts(50)).await;
        warm(&holder).await;
        let mut holding = Vec::new();
        for run in 0..RUNS {
            let guard = holder.reentrant(&format!("lock {run}")).lock_leased(secs(1) + ms(50 * run)).await.unwrap();
            holding.push(tokio::spawn(async move { (told(&guard).await, guard) }));
        }
        let mut waiting = Vec::new();
        for run in 0..RUNS {
            let lock = waiter.reentrant(&format!("lock {run}"));
            waiting.push(tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) }));
        }
        eventually("all wait", async || waiter.stats().waiting as u64 == RUNS).await;
        bed.server.stop();
        tokio::time::sleep(secs(2)).await;
        bed.server.cont();
        for (run, (holder, waiter)) in holding.into_iter().zip(waiting).enumerate() {
            let (lost, _guard) = holder.await.unwrap();
            let (guard, granted) = waiter.await.unwrap();
            assert!(lost < granted, "run {run}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// A holder frozen beyond its lease cannot be told while it is frozen. What it can rely on: the first thing it asks says
/// no, and nothing it does then touches whoever holds the lock now.
#[tokio::test]
async fn a_frozen_holder_knows_when_it_wakes() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url())).await;
        for how in ["unlock", "extend", "drop", "run"] {
            let mut holder = Child::spawn("lost::frozen_holder", &[("URL", &bed.server.url()), ("HOW", how)]);
            holder.expect("held").await;
            holder.stop();
            let other = client.reentrant("a").lock_for(WATCHDOG * 2).await.unwrap().expect("its lease is over");
            holder.cont();
            holder.expect("held: false").await;
            let outcome = holder.line().await.expect("how it ended");
            println!("{how}: {outcome}");
            assert!(matches!(outcome.as_str(), "Lost" | "HeldBy" | "Dropped"), "{how}: {outcome}");
            holder.wait().await;
            assert!(other.is_held() && client.renew_now().await.renewed == 1, "{how}");
            other.unlock().await.unwrap();
        }
    })
    .await;
}

/// The child of [`a_frozen_holder_knows_when_it_wakes`].
#[tokio::test]
async fn frozen_holder() {
    if !child::is_child() {
        return;
    }
    child::init();
    let client = brisk(&std::env::var("URL").unwrap()).connect().await.unwrap();
    let guard = client.reentrant("a").lock().await.unwrap();
    child::say("held");
    // No timer and no task: asks the clock, as code that has just done something slow would.
    while guard.is_held() {
        std::thread::sleep(ms(1));
    }
    child::say(&format!("held: {}", guard.is_held()));
    let name = |outcome: Result<(), Error>| match outcome {
        Ok(()) => "Ok".to_owned(),
        Err(Error::Lost { .. }) => "Lost".to_owned(),
        Err(Error::NotHeld { why: distlock::NotHeld::HeldBy { .. }, .. }) => "HeldBy".to_owned(),
        Err(error) => format!("{error:?}"),
    };
    match std::env::var("HOW").unwrap().as_str() {
        "unlock" => child::say(&name(guard.unlock().await.map(drop))),
        "extend" => child::say(&name(guard.extend(secs(5)).await)),
        "run" => child::say(&name(guard.run(async {}).await)),
        _ => {
            drop(guard);
            child::say("Dropped");
        }
    }
    client.shutdown(secs(2)).await.unwrap();
}

/// A runtime whose only thread is held up for longer than the lease renews nothing and fires no timer. The guard's word
/// is good all the same, and the loss is told as soon as the runtime runs again.
#[tokio::test]
async fn a_starved_runtime_is_not_believed() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url())).await;
        for _ in 0..2 {
            let guard = client.reentrant("a").lock().await.unwrap();
            let until = guard.deadline();
            starve(&guard, until);
            let told = tokio::time::timeout(ms(500), guard.lost()).await.expect("at once");
            assert!(matches!(told, Error::Lost { why: Lost::Expired, .. }), "{told:?}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));
        }
        // Held up for less than the lease, nothing is lost.
        let guard = client.reentrant("a").lock().await.unwrap();
        std::thread::sleep(WATCHDOG * 3 / 4);
        assert!(guard.is_held());
        let renewed = async || guard.remaining() > WATCHDOG / 2;
        eventually("it is renewed", renewed).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Holds the thread up for twice the lease, and watches what the guard says.
fn starve(guard: &Guard, until: Instant) {
    let end = Instant::now() + WATCHDOG * 2;
    while Instant::now() < end {
        let held = guard.is_held();
        // Taken after: if that is before the deadline, so was the question.
        assert!(held || Instant::now() >= until - ms(1), "gave up before the deadline");
        if held {
            assert!(Instant::now() < until + Duration::from_millis(200), "held past the deadline");
        }
        std::thread::sleep(ms(5));
    }
    assert!(!guard.is_held());
}

//! Extreme durations. Every option and every call either refuses the duration or works, and nothing overflows or
//! panics. Also tests owners with extreme numbers.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bed::fault::got;
use bed::{Bed, PATIENCE, ends, idle, in_vain, ms, reentrant, secs, waits_in_vain};
use distlock::{Acquire, Backoff, Builder, Client, DistLock, Error, Flavour, Guard, Prefer, RedLock};
use distlock_support::{Action, Matcher, Proxy, RedisServer};

fn kinds(client: &Client, name: &str) -> Vec<Arc<dyn DistLock>> {
    let mut all: Vec<Arc<dyn DistLock>> =
        Flavour::ALL.iter().map(|flavour| client.lock(*flavour, &format!("{name}-{flavour}"))).collect();
    all.push(Arc::new(client.multi([format!("{name}-m1"), format!("{name}-m2")])));
    all.push(Arc::new(RedLock::new([client.clone()], &format!("{name}-red")).node_timeout(PATIENCE)));
    all.push(Arc::new(client.striped(&format!("{name}-striped"), 2)));
    all
}

/// The drift margin (1 % + 2 ms) is as long as such a lease.
#[tokio::test]
async fn lease_below_drift_margin_is_refused_without_command() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let kinds = kinds(&client, "x");
        bed.admin.reset_stats().await;
        for lease in [ms(1), ms(2), Duration::from_micros(2_999)] {
            for lock in &kinds {
                let refused = lock.acquire(Acquire::new().wait(secs(1)).lease(lease)).await;
                let Err(Error::Config { what }) = &refused else { panic!("{lock:?} for {lease:?}: {refused:?}") };
                assert!(what.contains("3ms") && what.contains("drift"), "{what}");
            }
        }
        // A plain lock sends a SET.
        for command in ["evalsha", "eval", "set"] {
            assert_eq!(bed.admin.calls(command).await, 0, "{command} was sent");
        }
        for lock in &kinds {
            let guard = lock.lock().await.unwrap();
            for lease in [Duration::ZERO, ms(1), ms(2)] {
                let refused = guard.extend(lease).await;
                assert!(matches!(refused, Err(Error::Config { .. })), "{lock:?} for {lease:?}: {refused:?}");
            }
            assert!(guard.is_held());
            guard.unlock().await.unwrap();
            // A lease of 3 ms is long enough if the server answers within a millisecond.
            let held = lock.acquire(Acquire::new().wait(secs(2)).lease(ms(3))).await;
            assert!(!matches!(held, Err(Error::Config { .. })), "{lock:?}: {held:?}");
            drop(held);
        }
    })
    .await;
}

const EXTREMES: [Duration; 3] = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];

type Set = fn(Builder, Duration) -> Builder;

const OPTIONS: [(&str, Set); 17] = [
    ("watchdog", |builder, span| builder.watchdog(span)),
    ("command_timeout", |builder, span| builder.command_timeout(span)),
    ("command_timeout, with the longest watchdog", |builder, span| {
        let years = |n: u64| secs(n * 365 * 24 * 3600);
        builder.watchdog(years(10)).command_timeout(span.min(years(3)))
    }),
    ("connect_timeout", |builder, span| builder.connect_timeout(span)),
    ("retry_delay, both", |builder, span| builder.configure(|options| options.retry_delay = (span, span))),
    ("retry_delay, the longest", |builder, span| builder.configure(|options| options.retry_delay = (ms(1), span))),
    ("retry_delay, the shortest", |builder, span| builder.configure(|options| options.retry_delay = (span, ms(1)))),
    ("retry_delay, and attempts", |builder, span| {
        builder.configure(|options| options.retry_delay = (ms(1), span)).retry_attempts(u32::MAX)
    }),
    ("subscribe_timeout", |builder, span| builder.configure(|options| options.subscribe_timeout = span)),
    ("subscription_linger", |builder, span| builder.configure(|options| options.subscription_linger = span)),
    ("poll_cap", |builder, span| builder.configure(|options| options.poll_cap = span)),
    ("ping_interval", |builder, span| builder.configure(|options| options.ping_interval = span)),
    ("local_handoff_time", |builder, span| builder.configure(|options| options.local_handoff_time = span)),
    ("fair_wait", |builder, span| builder.configure(|options| options.fair_wait = span)),
    ("max_reader_delay", |builder, span| builder.configure(|options| options.max_reader_delay = span)),
    ("scan_interval", |builder, span| builder.configure(|options| options.scan_interval = Some(span))),
    ("ack_timeout", |builder, span| builder.configure(|options| options.ack_timeout = span)),
];

/// Every option at every extreme.
fn extremes() -> impl Iterator<Item = (&'static str, Set, Duration)> {
    OPTIONS.into_iter().flat_map(|(what, set)| EXTREMES.map(|span| (what, set, span)))
}

/// Counts the panics on threads of this test. Otherwise panics of background threads would go unnoticed.
fn panics(test: &'static str) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name().is_some_and(|name| name.ends_with(test)) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        before(info);
    }));
    count
}

/// Runs a client through waits, wake-ups, failures, retries and the shutdown.
async fn a_life(client: &Client, proxy: &Proxy, name: &str) {
    for flavour in Flavour::ALL {
        let lock = client.lock(*flavour, &format!("{name}-{flavour}"));
        let guard = got(name, flavour.as_str(), lock.lock_for(PATIENCE).await);
        let next = Arc::clone(&lock);
        let next = tokio::spawn(async move { next.lock_for(PATIENCE).await });
        tokio::time::sleep(ms(20)).await;
        guard.unlock().await.unwrap();
        let guard = got(name, flavour.as_str(), ends("the waiter", next).await.unwrap());
        // No message wakes this waiter, so it polls.
        let other = lock.lock_for(ms(30)).await;
        assert!(*flavour == Flavour::Read || in_vain(&other), "{name}: {other:?}");
        drop((guard, other));
    }
    let rw = client.rw(&format!("{name}-held-back"));
    let reading = rw.read().lock().await.unwrap();
    let (writing, late) = (rw.write(), rw.read());
    let writing = tokio::spawn(async move { writing.lock_for(ms(100)).await });
    tokio::time::sleep(ms(20)).await;
    drop(late.lock_for(ms(20)).await);
    reading.unlock().await.unwrap();
    drop(ends("the waiting writer", writing).await.unwrap());
    for _ in 0..2 {
        let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
        // On a busy machine the wait may end before its first command is sent.
        while !lost.has_fired() {
            drop(client.reentrant(name).lock_for(ms(100)).await);
        }
    }
    client.renew_now().await;
}

#[tokio::test]
async fn every_duration_option_at_its_extremes_is_refused_or_works() {
    let count = panics("every_duration_option_at_its_extremes_is_refused_or_works");
    reentrant(async |bed: &Bed| {
        let lives = extremes().map(async |(what, set, span)| {
            let proxy = bed.proxy();
            let builder = Client::builder(&proxy.url()).configure(|options| {
                options.retry_delay = (ms(5), ms(20));
                options.prefer = Prefer::Writers;
            });
            let name = format!("{what} of {span:?}");
            let client = match ends(&name, set(builder, span).connect()).await {
                Ok(client) => client,
                Err(Error::Config { what }) => {
                    return assert!(what.contains("at l") || what.contains("at most"), "{what}");
                }
                Err(error) => panic!("{name}: {error:?}"),
            };
            a_life(&client, &proxy, &name).await;
            let shut = ends(&format!("{name}: the shutdown"), client.shutdown(secs(1))).await;
            assert!(matches!(shut, Ok(()) | Err(Error::Timeout { .. })), "{name}: {shut:?}");
        });
        futures::future::join_all(lives).await;
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
    assert_eq!(count.load(Ordering::Relaxed), 0, "something panicked in the background");
}

/// Covers the options for discovery and monitoring of servers.
#[tokio::test]
async fn extreme_duration_options_over_several_servers_cause_no_panic() {
    let count = panics("extreme_duration_options_over_several_servers_cause_no_panic");
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let lives = extremes().map(async |(what, set, span)| {
        let builder = |kind: &str, at: &str| set(Client::builder(&format!("{kind}://{at}")), span);
        match ends("connecting", builder("redis-replicated", &proxy.addr().to_string()).connect()).await {
            Ok(client) => {
                let lock = client.reentrant(&format!("{what} of {span:?}"));
                lock.lock().await.unwrap().unlock().await.unwrap();
                ends("the shutdown", client.shutdown(PATIENCE)).await.unwrap();
            }
            Err(Error::Config { .. }) => {}
            Err(error) => panic!("{what} of {span:?}: {error:?}"),
        }
        // No server listens at this address, so connecting retries until its time limit.
        for (kind, path) in [("redis-cluster", ""), ("redis-sentinel", "/locks"), ("redis-replicated", "")] {
            let connecting = builder(kind, &format!("127.0.0.1:1{path}")).connect();
            let outcome = tokio::time::timeout(ms(300), connecting).await;
            assert!(!matches!(outcome, Ok(Ok(_))), "{kind}: {what} of {span:?}");
        }
    });
    futures::future::join_all(lives).await;
    assert_eq!(count.load(Ordering::Relaxed), 0, "something panicked in the background");
}

/// Returns true for success, and for errors that a short wait may cause. On a busy machine the reply may arrive after
/// the wait.
fn is_fine(outcome: &distlock::Result<Option<Guard>>) -> bool {
    let late = |error: &Error| matches!(error, Error::Config { .. } | Error::Timeout { .. } | Error::NoQuorum { .. });
    outcome.as_ref().err().is_none_or(late)
}

/// Passes this duration to every call of a lock. `theirs` is the same lock at another client.
async fn try_all_calls(span: Duration, client: &Client, lock: &Arc<dyn DistLock>, theirs: &Arc<dyn DistLock>) {
    let what = format!("{span:?}, {lock:?}");
    let free = lock.lock_for(span).await;
    assert!(is_fine(&free), "{what}: {free:?}");
    drop(free);
    idle(client).await;
    let held = theirs.lock().await.unwrap();
    let waiting = Arc::clone(lock);
    let waiting = tokio::spawn(async move { waiting.lock_for(span).await });
    tokio::time::sleep(ms(20)).await;
    held.unlock().await.unwrap();
    let waited = ends(&what, waiting).await.unwrap_or_else(|_| panic!("{what}: panicked"));
    assert!(is_fine(&waited), "{what}: {waited:?}");
    drop(waited);
    idle(client).await;
    let leased = lock.acquire(Acquire::new().wait(secs(1)).lease(span)).await;
    assert!(matches!(leased, Err(Error::Config { .. })), "{what}: {leased:?}");
    let guard = lock.lock().await.unwrap();
    let extended = guard.extend(span).await;
    assert!(matches!(extended, Err(Error::Config { .. })), "{what}: {extended:?}");
    guard.unlock().await.unwrap();
}

/// Waits for a `RedLock` with this time limit of its servers.
async fn wait_with_node_timeout(span: Duration, client: &Client, other: &Client) {
    let red = RedLock::new([client.clone()], "red").node_timeout(span);
    let theirs = RedLock::new([other.clone()], "red").node_timeout(PATIENCE);
    for wait in [ms(0), ms(50), Duration::MAX] {
        let held = theirs.lock().await.unwrap();
        let waiting = red.clone();
        let waiting = tokio::spawn(async move { waiting.lock_for(wait).await });
        tokio::time::sleep(ms(100)).await;
        drop((red.state().await, red.is_locked().await));
        held.unlock().await.unwrap();
        if span.is_zero() || span == Duration::from_nanos(1) {
            // No server can answer within zero time.
            waiting.abort();
        }
        let waited = ends(&format!("a RedLock's wait, node_timeout {span:?}"), waiting).await;
        assert!(!waited.is_err_and(|error| error.is_panic()), "node_timeout of {span:?} panicked");
    }
    idle(client).await;
}

/// Shuts a client down within this time. The shutdown waits until the guard is dropped and its lock is released.
async fn shut_down_within(span: Duration, bed: &Bed) {
    let mine = bed.client().await;
    let guard = mine.reentrant("mine").lock().await.unwrap();
    let shutting = async { tokio::join!(mine.shutdown(span), async { drop(guard) }).0 };
    let shut = ends("the shutdown", shutting).await;
    assert!(matches!(shut, Ok(()) | Err(Error::Timeout { .. })), "{span:?}: {shut:?}");
    bed.admin.cmd::<u64>(&["DEL", "mine"]).await;
}

#[tokio::test]
async fn every_duration_of_a_call_at_its_extremes_is_refused_or_works() {
    let count = panics("every_duration_of_a_call_at_its_extremes_is_refused_or_works");
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for span in EXTREMES {
            for (lock, theirs) in kinds(&client, "x").into_iter().zip(kinds(&other, "x")) {
                try_all_calls(span, &client, &lock, &theirs).await;
            }
            wait_with_node_timeout(span, &client, &other).await;
            shut_down_within(span, bed).await;
            assert!(Backoff::constant(span).is_err() && Backoff::exponential(ms(1), 2.0, span).is_err(), "{span:?}");
        }
        let longest = Backoff::exponential(ms(1), f64::MAX, secs(86_400)).unwrap();
        let held = other.spin("spin").lock().await.unwrap();
        let spin = client.spin("spin").backoff(longest);
        waits_in_vain(ms(50), async |wait| spin.lock_for(wait).await).await;
        held.unlock().await.unwrap();
    })
    .await;
    assert_eq!(count.load(Ordering::Relaxed), 0, "something panicked in the background");
}

/// The hash of a public `Owner` depends on client id and number alone. Internal tables use a hash that is seeded in
/// each process.
#[tokio::test]
async fn owners_with_similar_client_ids_have_different_hashes() {
    const OWNERS: u32 = 3_000;
    let hash = |owner: &distlock::Owner| BuildHasherDefault::<DefaultHasher>::default().hash_one(owner);
    let alike = |n: u32| -> distlock::Owner { format!("7d9e0c47-6b0c-4a2b-9a35-1f6b{n:08x}:5").parse().unwrap() };
    let hashes: HashSet<u64> = (0..OWNERS).map(|n| hash(&alike(n))).collect();
    assert!(hashes.len() as u32 > OWNERS - 3, "{OWNERS} owners have {} hashes", hashes.len());
    // Equal owners have equal hashes, however the owners were made.
    reentrant(async |bed| {
        let owner = bed.client().await.owner();
        let read: distlock::Owner = owner.to_string().parse().unwrap();
        assert_eq!((hash(&owner), &owner), (hash(&read), &read));
    })
    .await;
}

//! Expiry: leases that end, holders that die, and the server's events about them.

use std::time::Instant;

use distlock::{Error, Lost};
use tokio::sync::oneshot;

use crate::mutex::Held;
use crate::subject::{Subject, freed, passer, waiting};
use bed::events::Events;
use bed::{becomes, ends, idle, ms, with_longer_waits};

/// Asserts that the end of the guard's lease ends `run`, and that `unlock` reports it.
async fn is_over(guard: Held) {
    let told = guard.name().to_owned();
    let worked = ends("work under a lease that ends", guard.run(std::future::pending::<()>())).await;
    assert!(!guard.is_held());
    for outcome in [worked, guard.unlock().await.map(drop)] {
        match outcome.unwrap_err() {
            Error::Lost { name, why: Lost::Expired } => assert_eq!(*name, *told),
            other => panic!("a lease that is over: {other:?}"),
        }
    }
}

// testExpire. Waiters poll only every hour, so only the end of the known lease wakes a waiter.
pub async fn waiter_acquires_when_the_lease_expires(bed: &Subject<'_>) {
    bed.prepare(&["job 0", "job 1", "alone"]).await;
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    // The waiter is at another client, or at the holder's client.
    for (n, waits) in [&theirs, &ours].into_iter().enumerate() {
        let (lock, other) = (bed.mutex(&ours, &format!("job {n}")), bed.rival(waits, &format!("job {n}")));
        let guard = lock.lock_leased(ms(300)).await.unwrap();
        let second = ends("a waiter behind a lease", other.lock()).await.unwrap();
        // The first guard's deadline has passed before the second acquire.
        assert!(!guard.is_held() && second.is_held());
        is_over(guard).await;
        assert!(second.is_held());
        second.unlock().await.unwrap();
    }

    // The same, but no other owner takes the lock.
    let lock = bed.mutex(&ours, "alone");
    is_over(lock.lock_leased(ms(50)).await.unwrap()).await;
    freed(&lock).await;
}

// testAutoExpire: the client's runtime ends while it holds the lock, so the client sends no release
pub async fn lock_of_crashed_client_expires(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let (held, is_held) = oneshot::channel();
    let (crash, crashes) = oneshot::channel::<()>();
    let builder = bed.builder();
    std::thread::scope(|scope| {
        let doomed = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let left = runtime.block_on(async {
                let client = builder.connect().await.unwrap();
                let guard = bed.mutex(&client, "job").lock().await.unwrap();
                held.send(()).unwrap();
                crashes.await.unwrap();
                (client, guard)
            });
            drop(runtime);
            // Without their runtime, a guard and a client are useless, but must not panic.
            assert!(!format!("{left:?}").is_empty());
            drop(left);
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                is_held.await.unwrap();
                assert!(bed.rival(&client, "job").try_lock().await.unwrap().is_none());
                crash.send(()).unwrap();
            });
        });
        doomed.join().unwrap();
    });
    // Cuts the watchdog's lease short.
    bed.end_leases().await;
    ends("the next acquire", bed.rival(&client, "job").lock()).await.unwrap().unlock().await.unwrap();
}

// testLockListener
pub async fn release_deletes_key_once_and_lease_expires_once(bed: &Subject<'_>) {
    bed.admin.config_set("notify-keyspace-events", "Egx").await;
    let (deleted, expired) = ("__keyevent@0__:del", "__keyevent@0__:expired");
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let events = Events::subscribe(&bed.server, &[deleted, expired]).await;
    let count = |key: &str| (events.count(deleted, key), events.count(expired, key));

    // Each round uses its own lock, because a grant that arrives too late is dropped and also causes an expiry event.
    let (name, key) = with_longer_waits(ms(300), async |lease| {
        let name = format!("job {}", lease.as_millis());
        let (lock, key) = (bed.lock(&ours, &name), bed.keys_of(&name).remove(0));
        lock.lock().await.unwrap().unlock().await.unwrap();
        becomes("deletions and expirations after an unlock", (1, 0), async || count(&key)).await;
        let began = Instant::now();
        let guard = lock.lock_leased(lease).await.unwrap();
        if began.elapsed() > lease / 2 {
            drop(guard);
            idle(&ours).await;
            return None;
        }
        // A lost guard of several locks releases the locks shortly before the server would expire their keys.
        let either = async || count(&key) == (1, 1) || bed.kind().several && count(&key) == (2, 0);
        becomes("one lease is over", true, either).await;
        // The late release finds no hold and publishes nothing.
        drop(guard);
        Some((name, key))
    })
    .await;
    let both = || count(&key);
    let (deletions, expirations) = both();
    // Two releases, by this client and by the waiter of another client: two more deletions.
    let guard = bed.lock(&ours, &name).lock().await.unwrap();
    let waiter = passer(bed.rival(&theirs, &name));
    waiting(&theirs, 1).await;
    guard.unlock().await.unwrap();
    ends("the waiter", waiter).await.unwrap();
    becomes("deletions and expirations after two more", (deletions + 2, expirations), async || both()).await;
    // Events arrive in order. After an event of a later lock, no event of this lock can follow.
    bed.lock(&ours, "last").lock().await.unwrap().unlock().await.unwrap();
    let last = &bed.keys_of("last")[0];
    becomes("deletions of another lock", 1, async || events.count(deleted, last)).await;
    assert_eq!(both(), (deletions + 2, expirations));
}

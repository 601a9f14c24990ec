//! Expiry: leases that end, holders that die, and what the server tells about it.

use std::time::{Duration, Instant};

use distlock::{Client, Error, Lost, NotHeld};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::subject::Subject;
use bed::events::Events;
use bed::{Bed, QUICK, eventually, ms, secs};

/// How long after the end of its lease ten locks had their next holder, the quickest first.
async fn late_by(bed: &Subject<'_>, ours: &Client, theirs: &Client) -> Vec<Duration> {
    let mut rounds = JoinSet::new();
    for n in 0..10 {
        // One after the other, so that a moment in which the machine is busy concerns but a few.
        let lease = ms(1_000 + 60 * n);
        // From another process, and from this one.
        let waits = if n % 2 == 0 { theirs } else { ours };
        let (lock, other) = (bed.lock(ours, &format!("job {n}")), bed.rival(waits, &format!("job {n}")));
        let several = bed.kind().several;
        rounds.spawn(async move {
            let start = Instant::now();
            let guard = lock.lock_leased(lease).await.unwrap();
            let second = other.lock().await.unwrap();
            let waited = start.elapsed();
            // By then the first one knows, by its own clock.
            assert!(!guard.is_held() && second.is_held());
            let told = guard.name().to_owned();
            match guard.unlock().await.unwrap_err() {
                Error::NotHeld { name, why: NotHeld::HeldBy { owner } } if !several => {
                    assert_eq!((&*name, owner), (&*told, second.owner().to_string()));
                }
                Error::Lost { name, why: Lost::Expired } if several => assert_eq!(*name, *told),
                other => panic!("{other:?}"),
            }
            assert!(second.is_held());
            second.unlock().await.unwrap();
            // The server counts whole milliseconds. What is made of several is given back when it is lost, by the local clock.
            let early = if several { lease / 100 + ms(2) } else { Duration::ZERO };
            (waited + early + ms(1)).checked_sub(lease).expect("not before the lease was over")
        });
    }
    let mut late = Vec::new();
    while let Some(waited) = rounds.join_next().await {
        late.push(waited.unwrap());
    }
    late.sort();
    late
}

// testExpire: 8 to 20 ms where the machine gives us the time, and up to 40 where it is busy otherwise
pub async fn a_waiter_has_it_right_after_the_lease(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let late = late_by(bed, &ours, &theirs).await;
    let (quick, worst) = (late[2], late[9]);
    println!("in after the lease's end: third best {quick:?}, median {:?}, worst {worst:?}", late[5]);
    // What a busy machine adds, it does not add to all of them.
    assert!(quick <= ms(60) && worst <= secs(1), "third best {quick:?}, worst {worst:?}");

    // And when nobody took it meanwhile.
    let guard = bed.lock(&ours, "alone").lock_leased(ms(50)).await.unwrap();
    tokio::time::sleep(ms(80)).await;
    let told = guard.name().to_owned();
    match guard.unlock().await.unwrap_err() {
        Error::NotHeld { name, why: NotHeld::LeaseOver } if !bed.kind().several => assert_eq!(*name, *told),
        Error::Lost { name, why: Lost::Expired } if bed.kind().several => assert_eq!(*name, *told),
        other => panic!("{other:?}"),
    }
}

// testAutoExpire: the client's runtime ends while it holds the lock, so that nothing more is sent
pub async fn a_crashed_clients_lock_is_free_within_the_watchdog(bed: &Subject<'_>) {
    let client = bed.quick().await;
    let lock = bed.rival(&client, "job");
    let (held, is_held) = oneshot::channel();
    let (crash, crashes) = oneshot::channel::<()>();
    let builder = bed.quick_builder();
    let make = |client: &distlock::Client| bed.lock(client, "job");
    std::thread::scope(|scope| {
        let doomed = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let left = runtime.block_on(async {
                let client = builder.connect().await.unwrap();
                let guard = make(&client).lock().await.unwrap();
                held.send(()).unwrap();
                crashes.await.unwrap();
                (client, guard)
            });
            drop(runtime);
            // A guard and a client without a runtime: of no use, but no panic either.
            assert!(!format!("{left:?}").is_empty());
            drop(left);
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                is_held.await.unwrap();
                // Kept by its watchdog for longer than that.
                tokio::time::sleep(QUICK + QUICK / 4).await;
                assert!(lock.try_lock().await.unwrap().is_none());
                crash.send(()).unwrap();
            });
        });
        doomed.join().unwrap();
    });
    let start = Instant::now();
    let guard = lock.lock_for(QUICK + secs(1)).await.unwrap().expect("free within the watchdog");
    // The last renewal is at most half a watchdog old.
    assert!(start.elapsed() > QUICK / 3, "{:?}", start.elapsed());
    guard.unlock().await.unwrap();
}

// testLockListener
pub async fn one_event_a_release_and_one_a_lapse(bed: &Subject<'_>) {
    bed.admin.config_set("notify-keyspace-events", "Egx").await;
    let (deleted, expired) = ("__keyevent@0__:del", "__keyevent@0__:expired");
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let events = Events::subscribe(&bed.server, &[deleted, expired]).await;
    let lock = bed.lock(&ours, "job");
    let key = &bed.keys_of("job")[0];
    let both = || (events.count(deleted, key), events.count(expired, key));

    lock.lock().await.unwrap().unlock().await.unwrap();
    eventually("one deletion", async || both() == (1, 0)).await;
    let guard = lock.lock_leased(ms(300)).await.unwrap();
    // What is made of several is given back when it is lost, a moment before the server would end it.
    let given_back = || bed.kind().several && both() == (2, 0);
    eventually("one lapse", async || both() == (1, 1) || given_back()).await;
    let (deletions, lapses) = both();
    // The late release finds nothing and says nothing.
    drop(guard);
    // From one client to the other: one deletion each.
    let guard = lock.lock().await.unwrap();
    let other = bed.rival(&theirs, "job");
    let waiter = tokio::spawn(async move { other.lock().await.unwrap().unlock().await.unwrap() });
    eventually("it waits", async || theirs.stats().waiting == 1).await;
    guard.unlock().await.unwrap();
    waiter.await.unwrap();
    eventually("two more", async || both() == (deletions + 2, lapses)).await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(both(), (deletions + 2, lapses));
}

pub async fn a_lapsed_lease_does_not_stick_to_the_handle(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let lapsed = lock.lock_leased(ms(100)).await.unwrap();
    let start = Instant::now();
    let guard = lock.lock().await.unwrap();
    assert!(start.elapsed() < secs(2), "{:?}", start.elapsed());
    // At once, or, where the lock was passed on for a short while, a moment later.
    let watchdog = client.options().watchdog;
    let whole = async || {
        let ttl = lock.remaining_ttl().await.unwrap().unwrap();
        ttl <= watchdog && ttl > watchdog - secs(1)
    };
    eventually("the lease is the watchdog's", whole).await;
    drop(lapsed);
    tokio::time::sleep(ms(100)).await;
    assert!(guard.is_held() && lock.is_locked().await.unwrap());
    guard.unlock().await.unwrap();
    assert_eq!(lock.remaining_ttl().await.unwrap(), None::<Duration>);
}

//! Leases: what is left of them when the majority has granted it, and that the end is reckoned on the safe side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, DistLock as _, Error, Guard, Lost};
use distlock_support::proxy::Mode;

use crate::rig::{Away, Five, Path, SOON, by_all, five, patient, quick};
use bed::{Counter, ms, secs};

fn delay(five: &Five, at: &[usize], up: Duration, down: Duration) {
    for at in at {
        five.proxies[*at].set_upstream_mode(Mode::Delay(up));
        five.proxies[*at].set_downstream_mode(Mode::Delay(down));
    }
}

/// When the third server's lease ends at the earliest, by our clock.
async fn third(five: &Five, name: &str) -> Instant {
    let mut ends = Vec::new();
    for at in 0..5 {
        let admin = five.admin(at).await;
        let now = Instant::now();
        if let Ok(left) = u64::try_from(admin.pttl(name).await) {
            ends.push(now + ms(left));
        }
    }
    ends.sort();
    assert!(ends.len() >= 3, "not on a majority");
    ends[ends.len() - 3]
}

/// The deadline is never later than the end of the third longest lease: whoever has two servers besides gets in only then.
async fn assert_honest(five: &Five, guard: &Guard) {
    let third = third(five, guard.name()).await;
    let deadline = guard.deadline();
    assert!(deadline <= third, "held for {:?} longer than most servers have it", deadline - third);
}

/// Lesson 85, lessons §1.4 (units): what is asked for is what the servers have, rounded up to whole milliseconds, and the
/// deadline is before it; a lease that is given is not renewed, and ends by the local clock; it can be extended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_what_was_asked_for() {
    five(async |five| {
        let user = five.warm(Path::Proxied, quick).await;
        let lock = user.red("x");
        for lease in [ms(60_000), secs(60), Duration::from_micros(59_999_100)] {
            let guard = lock.lock_leased(lease).await.unwrap();
            assert_honest(five, &guard).await;
            let left = guard.remaining();
            assert!(left > secs(50) && left < lease - lease / 100 - ms(1), "{left:?}");
            for at in five.having("x").await {
                let pttl = five.admin(at).await.pttl("x").await;
                assert!((50_000..=60_000).contains(&pttl), "{pttl}");
            }
            guard.unlock().await.unwrap();
        }
        // Shorter than a watchdog, which lets it be.
        let guard = lock.lock_leased(ms(700)).await.unwrap();
        let deadline = guard.deadline();
        for client in &user.clients {
            assert_eq!(client.renew_now().await.renewed, 0);
        }
        let lost = guard.lost().await;
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        assert!(Instant::now() >= deadline - ms(20) && !guard.is_held());
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. } | Error::NotHeld { .. })));

        // What is given back of a lost one is under way still, and a server that has it yet would be missing below.
        five.clean(SOON).await;
        let guard = by_all(&lock, Acquire::new().lease(ms(2000))).await;
        guard.extend(secs(20)).await.unwrap();
        assert!(guard.remaining() > secs(15), "{guard:?}");
        assert_honest(five, &guard).await;
        // Most of them are enough for it; and one that was shortened ends on all.
        five.take(1, Away::Cut);
        five.take(2, Away::Cut);
        guard.extend(secs(10)).await.unwrap();
        assert!(guard.remaining() <= secs(10) && guard.remaining() > secs(5), "{guard:?}");
        five.back(1, Away::Cut);
        five.back(2, Away::Cut);
        assert_honest(five, &guard).await;
        guard.unlock().await.unwrap();
        five.clean(SOON).await;
    })
    .await;
}

/// Lesson 24, lessons 85: five servers 60 ms away and short leases. It is had only with time left, and never for longer
/// than most servers have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_lease_over_slow_servers_is_had_with_time_left_or_not_at_all() {
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        let lock = user.red("x");
        // The time taken comes off, be it on the way there or back.
        for (up, down) in [(ms(60), Duration::ZERO), (Duration::ZERO, ms(60)), (ms(30), ms(30))] {
            delay(five, &[0, 1, 2, 3, 4], up, down);
            let how = Acquire::new().lease(ms(300)).wait(secs(10));
            let guard = lock.acquire(how).await.unwrap().expect("the lease is long enough");
            let left = guard.remaining();
            assert!(guard.is_held() && left < ms(300 - 60 - 3), "{left:?}");
            drop(guard);
        }
        // Two of them slow: most of them are quick, and it is theirs.
        delay(five, &[0, 2, 4], Duration::ZERO, Duration::ZERO);
        delay(five, &[1, 3], ms(60), ms(60));
        let how = Acquire::new().lease(ms(100)).wait(secs(10));
        let guard = lock.acquire(how).await.unwrap().expect("three are quick");
        drop(guard);
        user.idle_at(&[0, 1, 2, 3, 4]).await;
        five.clean(SOON).await;

        // The longest that is too short, and shorter.
        for (lease, up, down) in [(60, 0, 60), (60, 60, 0), (40, 30, 30)] {
            delay(five, &[0, 1, 2, 3, 4], ms(up), ms(down));
            for wait in [Duration::ZERO, ms(300)] {
                let began = Instant::now();
                let outcome = lock.acquire(Acquire::new().lease(ms(lease)).wait(wait)).await;
                assert!(matches!(outcome, Ok(None) | Err(Error::NoQuorum { .. })), "{lease} ms: {outcome:?}");
                let took = began.elapsed();
                assert!(took < wait + secs(1), "{took:?}");
            }
        }
        delay(five, &[0, 1, 2, 3, 4], Duration::ZERO, Duration::ZERO);
    })
    .await;
}

/// Lessons 85: five servers 60 ms away, a lease that most rounds only just reach. Over and over, the deadline is compared
/// with what the servers have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_is_before_the_end_of_the_third_lease() {
    five(async |five| {
        let user = five.warm(Path::Proxied, patient).await;
        let lock = user.red("x");
        for at in 0..5 {
            five.proxies[at].set_upstream_mode(Mode::Jitter(ms(1), ms(60)));
            five.proxies[at].set_downstream_mode(Mode::Jitter(ms(1), ms(30)));
        }
        for _ in 0..10 {
            let guard = lock.lock_leased(secs(3)).await.unwrap();
            assert_honest(five, &guard).await;
            drop(guard);
        }
    })
    .await;
}

/// Former `RedissonRedLockTest`, `testLockLeasetimeWithMilliSeconds` and `testTryLockLeasetime` (lessons §1.4): ten tasks,
/// five rounds each, sections shorter than the lease, waits longer and shorter than it: fifty, exactly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_tasks_with_short_leases_count_to_fifty() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let counter = Arc::new(Counter::default());
        let tasks: Vec<_> = (0..10)
            .map(|task| {
                let (lock, counter) = (user.red("x"), Arc::clone(&counter));
                tokio::spawn(async move {
                    let wait = ms(if task % 2 == 0 { 4000 } else { 300 });
                    let mut done = 0;
                    while done < 5 {
                        let how = Acquire::new().wait(wait).lease(ms(2000));
                        let guard = match lock.acquire(how).await {
                            Ok(Some(guard)) => guard,
                            // A round shortly before the end of the wait has no time for slow servers.
                            Ok(None) | Err(Error::NoQuorum { .. }) => continue,
                            Err(error) => panic!("{error:?}"),
                        };
                        counter.bump(ms(10)).await;
                        // Or the machine stood still, and the count proves nothing.
                        assert!(guard.is_held());
                        guard.unlock().await.unwrap();
                        done += 1;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(counter.get(), 50);
    })
    .await;
}

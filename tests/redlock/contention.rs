//! Many who want it at once: no livelock, nobody left out, and nothing left by those who go away half-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Acquire, DistLock, Error, Flavour, RedLock, Step};
use distlock_support::{Numbers, RedisServer};

use crate::rig::{Away, Five, Path, SOON, User, five, long, patient, quick, run};
use bed::{Counter, ms, secs};

/// The lock over the servers in another order: turned by so many, and for every other user the other way round.
fn turned(user: &User, by: usize) -> RedLock {
    let mut locks: Vec<Arc<dyn DistLock>> =
        user.clients.iter().map(|client| client.lock(Flavour::Reentrant, "x")).collect();
    locks.rotate_left(by % 5);
    if by % 2 == 1 {
        locks.reverse();
    }
    RedLock::of("x", locks)
}

/// Issue 5, lesson 24: five clients over five servers, three tasks each, every client with the servers in an order of its own.
/// All sections are done in a bound, none beside another, and nobody has to wait for all the others to be done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_clients_with_servers_in_any_order_all_get_on() {
    five_clients(5).await;
}

/// As before, with the servers in one order, as all users should name them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_clients_with_servers_in_one_order_all_get_on() {
    five_clients(0).await;
}

async fn five_clients(turn: usize) {
    const TASKS: u64 = 3;
    const EACH: u64 = 8;
    five(async |five| {
        let counter = Arc::new(Counter::default());
        let done: Arc<Vec<AtomicU64>> = Arc::new((0..5).map(|_| AtomicU64::new(0)).collect());
        let mut tasks = Vec::new();
        let began = Instant::now();
        for n in 0..5 {
            let user = five.warm(Path::Direct, patient).await;
            for _ in 0..TASKS {
                let lock = if turn == 0 { user.red("x") } else { turned(&user, n) };
                let (counter, done) = (Arc::clone(&counter), Arc::clone(&done));
                tasks.push(tokio::spawn(async move {
                    let mut longest = Duration::ZERO;
                    for _ in 0..EACH {
                        let began = Instant::now();
                        let guard = lock.lock_for(secs(40)).await.unwrap().expect("everybody gets on");
                        longest = longest.max(began.elapsed());
                        counter.bump(ms(1)).await;
                        assert!(guard.is_held());
                        guard.unlock().await.unwrap();
                        done[n].fetch_add(1, Ordering::SeqCst);
                    }
                    longest
                }));
            }
        }
        let mut longest = Duration::ZERO;
        for task in tasks {
            longest = longest.max(task.await.unwrap());
        }
        let took = began.elapsed();
        assert_eq!(counter.get(), 5 * TASKS * EACH);
        assert!(done.iter().all(|done| done.load(Ordering::SeqCst) == TASKS * EACH));
        println!("turned by {turn}: {} sections in {took:?}, the longest wait {longest:?}", counter.get());
        assert!(took < secs(40), "{took:?}");
    })
    .await;
}

/// C1: acquires dropped at random points, free and behind a holder. Nothing is left on any server, and the next one gets in
/// at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_at_random_points_leave_nothing() {
    const DROPS: u64 = 400;
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let holder = five.warm(Path::Direct, patient).await;
        let held = holder.red("held").acquire(long()).await.unwrap().expect("nobody has it");
        let mut numbers = Numbers::new(5);
        let (mut dropped, mut had) = (0, 0);
        for round in 0..DROPS {
            let lock = user.red(if round % 2 == 0 { "free" } else { "held" });
            let how = if numbers.below(3) == 0 { long().owner(&user.clients[0].owner()) } else { long() };
            let how = if numbers.below(4) == 0 { how.wait(ms(numbers.below(5))) } else { how };
            // A free one takes two milliseconds; who waits goes through a round, a wait, and looks at the others.
            let pause = Duration::from_micros(numbers.below(if round % 20 == 1 { 50_000 } else { 4_000 }));
            match tokio::time::timeout(pause, lock.acquire(how)).await {
                Err(_) => dropped += 1,
                Ok(Ok(Some(guard))) => {
                    had += 1;
                    // Half of those that got it drop the release half-way.
                    if numbers.below(2) == 0 {
                        let _ = tokio::time::timeout(Duration::from_micros(numbers.below(500)), guard.unlock()).await;
                    }
                }
                Ok(Ok(None) | Err(Error::NoQuorum { .. } | Error::Timeout { step: Step::Command })) => {}
                Ok(Err(error)) => panic!("{error:?}"),
            }
        }
        println!("{dropped} dropped, {had} had");
        assert!(dropped > DROPS / 4 && had > 0);
        user.idle_at(&[0, 1, 2, 3, 4]).await;
        held.unlock().await.unwrap();
        five.clean(SOON).await;
        for name in ["free", "held"] {
            let began = Instant::now();
            user.red(name).try_lock().await.unwrap().expect("free at once").unlock().await.unwrap();
            assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
        }
    })
    .await;
}

/// Cost: those who wait behind a holder do so by messages at one server, and look at the others about once a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_costs_each_server_about_a_command_a_second() {
    const WAITERS: u64 = 4;
    five(async |five| {
        let (user, holder) = (five.warm(Path::Direct, quick).await, five.warm(Path::Direct, patient).await);
        let held = holder.red("x").acquire(long()).await.unwrap().expect("nobody has it");
        let waiting: Vec<_> = (0..WAITERS)
            .map(|_| {
                let lock = user.red("x");
                tokio::spawn(async move {
                    let guard = lock.acquire(Acquire::new()).await.unwrap().expect("no limit");
                    guard.unlock().await.unwrap();
                })
            })
            .collect();
        // They have come to rest.
        tokio::time::sleep(ms(500)).await;
        for at in 0..5 {
            five.admin(at).await.reset_stats().await;
        }
        let began = Instant::now();
        tokio::time::sleep(secs(3)).await;
        for at in 0..5 {
            let calls = five.admin(at).await.commandstats().await;
            let sent = calls.get("evalsha").copied().unwrap_or_default();
            let most = WAITERS as f64 * began.elapsed().as_secs_f64() * 2.5;
            println!("server {at}: {sent} commands in {:?} of {WAITERS} who wait", began.elapsed());
            assert!((sent as f64) < most, "server {at}: {sent} commands, {most} are allowed");
        }
        let freed = Instant::now();
        held.unlock().await.unwrap();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        assert!(freed.elapsed() < secs(5), "{:?}", freed.elapsed());
    })
    .await;
}

/// Three servers, one of them dead: the two that are left split between those who ask, and the dead one's vote is not waited
/// for. (At half a second for each split this took minutes.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_votes_do_not_wait_for_the_dead() {
    run(Five::start(3, RedisServer::builder), async |three| {
        let users = [three.warm(Path::Direct, quick).await, three.warm(Path::Direct, quick).await];
        three.take(2, Away::Stopped);
        let counter = Arc::new(Counter::default());
        let began = Instant::now();
        let tasks: Vec<_> = (0..4)
            .map(|n| {
                let (lock, counter) = (users[n % 2].red("x"), Arc::clone(&counter));
                tokio::spawn(async move {
                    for _ in 0..10 {
                        let guard = lock.lock_for(secs(40)).await.unwrap().expect("everybody gets on");
                        counter.bump(ms(1)).await;
                        assert!(guard.is_held());
                        guard.unlock().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let took = began.elapsed();
        println!("{} sections with a third of the servers dead in {took:?}", counter.get());
        assert_eq!(counter.get(), 40);
        assert!(took < secs(20), "{took:?}");
        three.back(2, Away::Stopped);
    })
    .await;
}

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, DistLock, Error, Flavour, RedLock};
use distlock_support::undisturbed;
use futures::future::join_all;

use super::rig::{Five, Path, User, by_all, five, long, patient};
use bed::{Counter, eventually, ms, secs, waiter};

/// A vote of somebody who died, on one server.
async fn dead_vote(five: &Five, at: usize) -> distlock::Owner {
    let dead = five.warm(Path::Direct, patient).await;
    dead.clients[at].reentrant("x").acquire(long()).await.unwrap().expect("free").into_owner()
}

async fn bury(user: &User, at: usize, dead: &distlock::Owner) {
    user.clients[at].reentrant("x").release(dead).await.unwrap();
}

/// 20: several users in turns, with a dead vote on the lowest server. Nobody waits there for a release that nobody makes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_20_a_dead_vote_starves_nobody() {
    const USERS: usize = 4;
    const EACH: usize = 8;
    five(async |five| {
        let mut users = Vec::new();
        for _ in 0..USERS {
            users.push(five.warm(Path::Direct, patient).await);
        }
        let mut figures = Vec::new();
        for dead in [false, true] {
            let buried = if dead { Some(dead_vote(five, 0).await) } else { None };
            let counter = Arc::new(Counter::default());
            let tasks = users.iter().map(|user| {
                let (lock, counter) = (user.red("x"), Arc::clone(&counter));
                tokio::spawn(async move {
                    let mut waits = Vec::new();
                    for _ in 0..EACH {
                        let began = Instant::now();
                        let guard = lock.lock_for(secs(30)).await.unwrap().expect("everybody gets on");
                        waits.push(began.elapsed());
                        counter.bump(ms(2)).await;
                        guard.unlock().await.unwrap();
                    }
                    waits
                })
            });
            let tasks: Vec<_> = tasks.collect();
            let mut waits: Vec<Duration> = Vec::new();
            for task in tasks {
                waits.extend(task.await.unwrap());
            }
            waits.sort();
            let (middle, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
            println!("dead vote: {dead}: waits of {middle:?}, the longest {longest:?}");
            figures.push(longest);
            assert_eq!(counter.get() as usize, USERS * EACH);
            if let Some(dead) = buried {
                bury(&users[0], 0, &dead).await;
            }
        }
        // Or not much longer than without it, on a machine that is busy otherwise.
        assert!(figures[1] < ms(900).max(2 * figures[0]), "{figures:?}");
    })
    .await;
}

/// 20: who waits for long goes where the holder is, and hears of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_20_who_waits_hears_of_the_holders_release() {
    undisturbed(async || {
        five(async |five| {
            let (holder, user) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
            let dead = dead_vote(five, 0).await;
            let mut worst = Duration::ZERO;
            for round in 0..4 {
                eventually("four are free", async || five.having("x").await == [0]).await;
                let held = holder.red("x").acquire(long()).await.unwrap().expect("a majority is free");
                eventually("four have granted it", async || held.members().len() == 4).await;
                let waiting = [user.red("x"), user.red("x")].map(|lock| {
                    tokio::spawn(async move {
                        let guard = lock.lock().await.unwrap();
                        let when = Instant::now();
                        guard.unlock().await.unwrap();
                        when
                    })
                });
                tokio::time::sleep(ms(250 + 70 * round)).await;
                let freed = Instant::now();
                held.unlock().await.unwrap();
                for one in waiting {
                    worst = worst.max(one.await.unwrap() - freed);
                }
            }
            println!("after the release: {worst:?}");
            assert!(worst < ms(250), "{worst:?}");
            bury(&user, 0, &dead).await;
        })
        .await;
    })
    .await;
}

/// What all servers were sent, by the command.
async fn calls(five: &Five, command: &str) -> u64 {
    let each = (0..5).map(|at| async move { five.admin(at).await.calls(command).await });
    join_all(each).await.into_iter().sum()
}

/// 22: a writer behind readers, and a reader behind a writer, look at both halves, and do not ask for the lock in vain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_22_who_waits_behind_the_other_half_sees_it() {
    five(async |five| {
        let (holder, user) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        for (held, wanted) in [(Flavour::Read, Flavour::Write), (Flavour::Write, Flavour::Read)] {
            let guard = by_all(&holder.over(held, "x"), long()).await;
            let waiting = waiter(user.over(wanted, "x"));
            // Its own waiting begins, and its scripts are known.
            tokio::time::sleep(ms(1_800)).await;
            for at in 0..5 {
                five.admin(at).await.reset_stats().await;
            }
            tokio::time::sleep(ms(4_000)).await;
            // Attempts, and releases of what they got, read several fields at once, looks do not.
            let (attempts, all) = (calls(five, "hmget").await, calls(five, "evalsha").await);
            println!("{wanted} behind {held}: {attempts} attempts of {all} commands in four seconds");
            assert!(attempts <= 2, "{attempts} attempts in vain");
            let freed = Instant::now();
            guard.unlock().await.unwrap();
            let (guard, when) = waiting.await.unwrap();
            assert!(when - freed < ms(500), "{:?}", when - freed);
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// 22: whoever is told to hold it, does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_22_no_holder_is_told_whom_nobody_knows() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let mut owners = Vec::new();
        for at in [1, 2, 3, 4] {
            let lock = user.clients[at].reentrant("x");
            owners.push((at, lock.acquire(long()).await.unwrap().expect("free").into_owner()));
        }
        let state = user.red("x").state().await.unwrap();
        println!("{:?}, held by {owners:?}", state.holders);
        assert_eq!(state.holders.len(), 4);
        for (holder, _) in &state.holders {
            assert!(owners.iter().any(|(_, owner)| owner.as_str() == holder), "nobody is {holder}");
        }
        for (at, owner) in owners {
            user.clients[at].reentrant("x").release(&owner).await.unwrap();
        }
    })
    .await;
}

/// 22: a server inside of two RedLocks that make up a third is one server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_22_no_server_counts_twice_through_nested_locks() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let part = |name: &str, of: &[usize]| -> Arc<dyn DistLock> {
            Arc::new(RedLock::new(of.iter().map(|at| user.clients[*at].clone()), name))
        };
        let refused = RedLock::of("x", vec![part("x", &[0, 1, 2]), part("x", &[0, 3, 4])]).try_lock().await;
        assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
        let multi: Arc<dyn DistLock> = Arc::new(user.clients[1].multi(["x", "y"]));
        let striped: Arc<dyn DistLock> = Arc::new(user.clients[1].striped("x", 2));
        for other in [multi, striped] {
            let refused = RedLock::of("x", vec![other, part("x", &[1, 2, 3])]).try_lock().await;
            assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
        }
        // Apart they may be made of whatever they like.
        let multi: Arc<dyn DistLock> = Arc::new(user.clients[0].multi(["x", "y"]));
        let lock = RedLock::of("x", vec![multi, part("x", &[1, 2, 3]), Arc::new(user.clients[4].reentrant("x"))]);
        let guard = lock.acquire(Acquire::new().wait(secs(5))).await.unwrap().expect("free");
        eventually("all have granted it", async || guard.members().len() >= 6).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

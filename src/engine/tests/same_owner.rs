//! Several waiters of one explicit owner, and wake-ups at the start and the end of a wait.

use std::collections::HashMap;
use std::sync::Arc;

use distlock_support::Numbers;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::fake::{Fake, Fate};
use super::{
    client, done, leaves_no_trace, ms, secs, settle, waiter, with_lock, with_lock_and_owner, with_owner, with_registry,
};
use crate::engine::ledger::{End, Entry as _};
use crate::engine::release;
use crate::names::LockName;
use crate::{Acquire, Client, Error, Guard, Owner};

fn enter(client: &Client, owner: &Owner) -> JoinHandle<Guard> {
    let (lock, owner) = (client.reentrant("x"), owner.clone());
    tokio::spawn(async move { lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap() })
}

#[tokio::test(start_paused = true)]
async fn many_waiters_of_one_owner_reenter_after_the_first() {
    const MANY: usize = 10_000;
    let (client, fake, me) = with_owner();
    fake.steal("x", secs(3600));
    let contender = waiter(&client.reentrant("x"));
    settle().await;
    let mut all = Vec::new();
    for n in 0..MANY {
        all.push(enter(&client, &me));
        if n == 0 {
            settle().await;
            all.push(waiter(&client.reentrant("x")));
            settle().await;
        }
    }
    let between = all.remove(1);
    while client.stats().waiting < MANY + 2 {
        settle().await;
    }
    let before = fake.sent("acquire").len();
    fake.free("x");
    drop(contender.await.unwrap());
    let mut guards = Vec::new();
    for waits in all {
        guards.push(timeout(secs(60), waits).await.expect("left behind").unwrap());
    }
    assert_eq!(client.stats().waiting, 1);
    let asked = fake.sent("acquire").len() - before;
    assert!(asked < MANY + 20, "{asked} attempts");
    drop(guards);
    drop(between.await.unwrap());
    leaves_no_trace(client, &fake).await;
}

#[tokio::test]
async fn many_waiters_of_one_owner_leave_no_registry_entry() {
    let (client, fake, registry) = with_registry();
    let (name, me) = (LockName::new("", "x"), client.owner());
    let contender = registry.enter(&name, None);
    for way in 0..2 {
        let enter = || {
            let mut waiter = registry.enter(&name, None);
            waiter.sit_as(&me);
            waiter
        };
        let places: Vec<_> = (0..100_000).map(|_| enter()).collect();
        registry.wake_same_owner(&name, &me);
        if way == 0 {
            drop(places);
        } else {
            places.into_iter().rev().for_each(drop);
        }
    }
    drop(contender);
    assert_eq!((registry.names(), registry.waiting()), (0, 0));
    drop(registry);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn woken_waiter_that_leaves_wakes_the_next() {
    for polls in 0..6 {
        let (client, fake, lock, me) = with_lock_and_owner();
        fake.steal("x", secs(3600));
        let contender = waiter(&lock);
        settle().await;
        let mut leaves = Box::pin(lock.acquire(Acquire::new().owner(&me)));
        while client.stats().waiting < 2 {
            assert!(futures::poll!(&mut leaves).is_pending());
            sleep(ms(1)).await;
        }
        let stays = enter(&client, &me);
        settle().await;
        assert_eq!(client.stats().waiting, 3);
        // The lock is deleted without a message.
        fake.delete("x");
        let first = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
        for _ in 0..polls {
            // The attempt may already have succeeded. Then its guard is dropped at once.
            if futures::poll!(&mut leaves).is_ready() {
                break;
            }
            sleep(ms(1) / 4).await;
        }
        drop(leaves);
        let second = timeout(ms(19), stays).await.unwrap_or_else(|_| panic!("left behind, {polls} polls")).unwrap();
        drop((first, second));
        drop(contender.await.unwrap());
        leaves_no_trace(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn woken_waiter_retries_when_its_command_fails() {
    for fate in [Fate::NotSent, Fate::Lost(false), Fate::Lost(true), Fate::Refused("LOADING wait")] {
        let (client, fake, lock, me) = with_lock_and_owner();
        fake.steal("x", secs(3600));
        let contender = waiter(&lock);
        settle().await;
        let waits = enter(&client, &me);
        settle().await;
        fake.delete("x");
        let first = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
        fake.next("acquire", fate);
        let second = timeout(secs(3), waits).await.expect("left behind").unwrap();
        assert_eq!(fake.held().len(), 1);
        drop((first, second));
        drop(contender.await.unwrap());
        leaves_no_trace(client, &fake).await;
    }
}

/// This client held a lock just before, so its subscription still exists at the next acquire.
#[tokio::test(start_paused = true)]
async fn message_before_the_reply_is_not_lost() {
    for given in [false, true] {
        let (client, fake, lock) = with_lock();
        fake.steal("x", secs(3600));
        let waits = waiter(&lock);
        settle().await;
        fake.free("x");
        drop(waits.await.unwrap());
        settle().await;
        assert_eq!(fake.channels(), 1);

        fake.steal("x", secs(3600));
        if given {
            fake.next("acquire", Fate::Late(ms(1)));
        }
        fake.next("acquire", Fate::Late(ms(50)));
        let waits = if given { enter(&client, &client.owner()) } else { waiter(&lock) };
        settle().await;
        // The server has answered that the lock is busy, and the reply is in flight.
        fake.free("x");
        drop(timeout(ms(99), waits).await.expect("asleep").unwrap());
        leaves_no_trace(client, &fake).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_does_not_wait_for_a_finished_subscription_change() {
    let (client, fake, lock) = with_lock();
    fake.steal("x", ms(400));
    let began = Instant::now();
    fake.gate(false);
    let leaves = waiter(&lock);
    settle().await;
    let next = waiter(&lock);
    settle().await;
    // The waiter attempts while its subscribe is in flight. No message announces the end of the lease.
    fake.next("acquire", Fate::Late(ms(100)));
    leaves.abort();
    settle().await;
    fake.gate(true);
    drop(next.await.unwrap());
    let took = began.elapsed();
    assert!((ms(400)..ms(450)).contains(&took), "{took:?}");
    leaves_no_trace(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn forced_release_between_two_guards_refutes_the_hold() {
    let (client, fake, lock) = with_lock();
    let guard = lock.lock().await.unwrap();
    let engine = Arc::clone(client.engine());
    let hold = engine.holds.collect(|book| book.count() > 0).remove(0);
    // This is the first step of a release. The guard has level 0, as the first guard of its hold.
    assert!(hold.book().close(0).is_some());
    release::force(&engine, &hold.protocol).await.unwrap();
    assert!(hold.book().is_refuted());
    assert_eq!(hold.book().end(), None::<End>);
    drop(hold);
    drop(engine);
    drop(guard);
    leaves_no_trace(client, &fake).await;
}

type Crowd = Arc<Mutex<HashMap<u64, usize>>>;

struct Waits(Crowd, u64);

impl Waits {
    fn new(crowd: &Crowd, owner: u64) -> Self {
        *crowd.lock().entry(owner).or_default() += 1;
        Self(Arc::clone(crowd), owner)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        *self.0.lock().entry(self.1).or_default() -= 1;
    }
}

async fn one_of_many(client: Client, fake: Arc<Fake>, crowd: Crowd, owners: Arc<Vec<Owner>>, mut numbers: Numbers) {
    for _ in 0..6 {
        sleep(ms(numbers.below(40))).await;
        let lock = client.reentrant("x");
        let who = numbers.below(owners.len() as u64 + 1);
        let how = Acquire::new();
        let how = owners.get(who as usize).map_or(how.clone(), |owner| how.owner(owner));
        let how = if numbers.below(8) == 0 { how.wait(ms(numbers.below(30))) } else { how };
        let waits = Waits::new(&crowd, who);
        let patience = if numbers.below(4) == 0 { ms(numbers.below(60)) } else { secs(600) };
        let outcome = timeout(patience, lock.acquire(how)).await;
        drop(waits);
        let Ok(outcome) = outcome else { continue };
        // A wait without any answer has seen no holder, so its error is `Timeout`.
        let guard = match outcome {
            Ok(Some(guard)) => guard,
            Ok(None) | Err(Error::Timeout { .. }) => continue,
            Err(error) => panic!("{error:?}"),
        };
        if who < owners.len() as u64 {
            // The task holds the lock until all waiters of its owner have re-entered.
            let began = Instant::now();
            while crowd.lock().get(&who).is_some_and(|waiting| *waiting > 0) {
                sleep(ms(1)).await;
                assert!(began.elapsed() < secs(2), "somebody was left behind");
            }
        } else {
            sleep(ms(numbers.below(10))).await;
        }
        if numbers.below(3) == 0 {
            drop(guard);
        } else {
            guard.unlock().await.unwrap();
        }
        if numbers.below(6) == 0 {
            fake.publish("x");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_of_shared_owners_are_all_woken_in_time() {
    for seed in 0..60 {
        let (client, fake) = client(|options| {
            options.local_handoff_limit = [0, 2, 16][seed as usize % 3];
            options.subscription_linger = ms([5, 5000][seed as usize % 2]);
        });
        let crowd = Crowd::default();
        let owners: Arc<Vec<_>> = Arc::new((0..2).map(|_| client.owner()).collect());
        let began = Instant::now();
        let tasks: Vec<_> = (0..12)
            .map(|n| {
                let own = Numbers::new(seed * 1000 + n);
                tokio::spawn(one_of_many(client.clone(), Arc::clone(&fake), crowd.clone(), Arc::clone(&owners), own))
            })
            .collect();
        for task in tasks {
            task.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        // This is so short that no task slept for a whole `poll_cap`.
        assert!(began.elapsed() < secs(4), "seed {seed}: {:?}", began.elapsed());
        drop(owners);
        leaves_no_trace(client, &fake).await;
    }
}

//! One side holds locks of every flavour, and the other side is refused or waits, also before and after a move to
//! another server.

use std::time::Duration;

use distlock::Guard;
use distlock_support::Admin;
use distlock_support::agent::{Call, JavaLock, Kind};
use futures::future::join_all;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::rig::{NEVER, renewed, replied, soon, until, wait_for_lock};
use crate::rw_rig::sits;
use crate::sides::{RIVALS, Sides, answered, came_to_nothing, flavour};

/// The server that has the locks now, as both sides use it.
pub trait Spot {
    fn sides(&self) -> &Sides;

    /// The admin connection of the server that has the locks.
    fn admin(&self) -> &Admin;

    fn name(&self, prefix: &str) -> String;

    /// Waits until our client is subscribed to this lock's channel, at the server that has the lock.
    async fn ours_listens(&self, name: &str);

    /// Waits until Redisson is subscribed. After a failover Redisson may not know yet which server has the lock.
    async fn java_listens(&self, name: &str);
}

/// Each side holds a lock of every flavour, excludes the other side, and wakes a waiter of the other side by its release.
pub async fn exclude_and_wake(spot: &impl Spot) {
    let sides = spot.sides();
    for (held, out) in RIVALS {
        let name = spot.name(&format!("{held:?}:{out:?}:"));
        let guard = sides.lock(held, &name).await;
        assert!(spot.admin().exists(&name).await, "{name} is elsewhere");
        assert!(!sides.is_free_for_java(out, &name).await, "{name}: Java is in beside us");
        assert!(held != Kind::Read || sides.is_free_for_java(held, &name).await, "{name}: Java may read too");
        guard.unlock().await.expect("unlock");

        let java = sides.java.at(held, &name, 1);
        replied(java.lock()).await;
        assert!(spot.admin().exists(&name).await, "{name} is elsewhere");
        assert!(!sides.is_free_for_us(out, &name).await, "{name}: we are in beside Java");
        assert!(held != Kind::Read || sides.is_free_for_us(held, &name).await, "{name}: we may read too");
        replied(java.unlock()).await;
        assert!(sides.is_free_for_us(out, &name).await && sides.is_free_for_java(out, &name).await, "{name}");
        // A waiter for a spin lock polls.
        if held != Kind::Spin {
            java_to_us(spot, held, out).await;
            us_to_java(spot, held, out).await;
        }
    }
}

async fn java_to_us(spot: &impl Spot, held: Kind, waits: Kind) {
    let (name, sides) = (spot.name(&format!("java:{held:?}:{waits:?}:")), spot.sides());
    let java = sides.java.at(held, &name, 1);
    replied(java.lock_for(NEVER)).await;
    let waiter = wait_for_lock(sides.ours.lock(flavour(waits), &name));
    sides.waits(1).await;
    spot.ours_listens(&name).await;
    until("no question under way", async || sides.ours.stats().under_way == 0).await;
    replied(java.unlock()).await;
    let woken = bed::ends(&format!("{name}: our waiter's sleep"), waiter).await;
    woken.expect("the waiter").unlock().await.expect("unlock");
}

async fn us_to_java(spot: &impl Spot, held: Kind, waits: Kind) {
    let (name, sides) = (spot.name(&format!("rust:{held:?}:{waits:?}:")), spot.sides());
    let java = sides.java.at(waits, &name, 1);
    let guard = sides.ours.lock(flavour(held), &name).lock_leased(NEVER).await.expect("lock_leased");
    let waiter = java.start_lock();
    spot.java_listens(&name).await;
    sits(&sides.java, 1).await;
    guard.unlock().await.expect("unlock");
    bed::ends(&format!("{name}: the sleep of Java's waiter"), waiter).await.expect("an operation in Java");
    replied(java.unlock()).await;
}

const ALONE: [Kind; 5] = [Kind::Reentrant, Kind::Fair, Kind::Write, Kind::Fenced, Kind::Spin];

type Ours = JoinHandle<Guard>;

/// Locks that Java holds and our client waits for.
pub struct HeldByJava {
    locks: Vec<(Kind, String, JavaLock, Ours)>,
}

impl HeldByJava {
    pub async fn at(spot: &impl Spot, prefix: &str) -> Self {
        let shared = spot.sides();
        let mut locks = Vec::new();
        for (thread, kind) in ALONE.into_iter().enumerate() {
            let name = spot.name(&format!("{prefix}:{kind:?}:"));
            let java = shared.java.at(kind, &name, 1 + i64::try_from(thread).expect("a few"));
            replied(java.lock()).await;
            let waiter = wait_for_lock(shared.ours.lock(flavour(kind), &name));
            shared.waits(locks.len() + 1).await;
            if kind != Kind::Spin {
                spot.ours_listens(&name).await;
            }
            locks.push((kind, name, java, waiter));
        }
        Self { locks }
    }

    /// Asserts that the locks are still held, and renewed at their current server.
    pub async fn are_kept(&self, spot: &impl Spot) {
        let shared = spot.sides();
        for (kind, name, java, _) in &self.locks {
            let is_held = answered(async || java.start("is_held", json!({})).await).await;
            assert_eq!(is_held.value, true, "{kind:?} is lost");
            assert!(!shared.is_free_for_us(*kind, name).await, "{kind:?}: we are in beside Java");
            assert!(!shared.is_free_for_java(*kind, name).await, "{kind:?}: two threads of Java's are in");
        }
        join_all(self.locks.iter().map(|(_, name, ..)| renewed(spot.admin(), name))).await;
        for (kind, .., waiter) in &self.locks {
            assert!(!waiter.is_finished(), "{kind:?}: the waiter is in beside Java");
        }
    }

    pub async fn are_handed_over(self) {
        for (_, _, java, _) in &self.locks {
            answered(async || java.unlock().await).await;
        }
        for (.., waiter) in self.locks {
            soon(waiter).await.expect("the waiter").unlock().await.expect("unlock");
        }
    }
}

/// Locks that our client holds and Java waits for.
pub struct HeldByUs {
    locks: Vec<(Kind, String, Guard, Call, JavaLock)>,
}

impl HeldByUs {
    pub async fn at(spot: &impl Spot, prefix: &str) -> Self {
        let shared = spot.sides();
        let mut locks = Vec::new();
        for (thread, kind) in ALONE.into_iter().enumerate() {
            let name = spot.name(&format!("{prefix}:{kind:?}:"));
            let guard = shared.lock(kind, &name).await;
            let before = spot.admin().calls("evalsha").await;
            let java = shared.java.at(kind, &name, 11 + i64::try_from(thread).expect("a few"));
            let waiter = java.start_lock();
            if kind == Kind::Spin {
                until("a question", async || spot.admin().calls("evalsha").await > before).await;
            } else {
                spot.java_listens(&name).await;
            }
            locks.push((kind, name, guard, waiter, java));
        }
        Self { locks }
    }

    pub async fn are_kept(&mut self, spot: &impl Spot) {
        let shared = spot.sides();
        assert_eq!(shared.ours.renew_now().await.lost, 0);
        for (kind, name, ..) in &self.locks {
            assert!(!shared.is_free_for_java(*kind, name).await, "{kind:?}: Java is in beside us");
        }
        join_all(self.locks.iter().map(|(_, name, ..)| renewed(spot.admin(), name))).await;
        for (kind, _, guard, waiter, java) in &mut self.locks {
            assert!(guard.is_held(), "{kind:?} is lost");
            match waiter.within(Duration::ZERO).await {
                None => {}
                Some(answer) if came_to_nothing(&answer) => {
                    println!("{kind:?}: Redisson's waiter has given up: {answer:?}");
                    *waiter = java.start_lock();
                }
                Some(answer) => panic!("{kind:?}: the waiter is in beside us, or gone: {answer:?}"),
            }
        }
    }

    pub async fn are_handed_over(self) {
        let mut waiters = Vec::new();
        for (kind, _, guard, waiter, java) in self.locks {
            guard.unlock().await.expect("unlock");
            waiters.push((kind, waiter, java));
        }
        for (kind, waiter, java) in waiters {
            let had = soon(waiter).await;
            if came_to_nothing(&had) {
                println!("{kind:?}: Redisson's waiter has given up: {had:?}");
                answered(async || java.lock().await).await;
            } else {
                had.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            }
            replied(java.unlock()).await;
        }
    }
}

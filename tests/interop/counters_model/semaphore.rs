//! A semaphore: its model, and its calls.

use distlock::{Client, Semaphore};
use distlock_support::Numbers;
use serde_json::{Value, json};

use super::number::{Number, TTL, expire, lapse};
use super::story::{NAME, Object, Side, java_number};
use crate::rig::{Rig, ms};

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// `trySetPermits`.
    New(u32),
    /// `trySetPermits` with [`TTL`].
    NewFor(u32),
    /// Overwrites the free count. Redisson has no such call.
    Set(u32),
    /// `addPermits`; never 0.
    Add(i32),
    /// `tryAcquire`.
    Take(u32),
    /// `release`.
    Give(u32),
    /// `releaseIfExists`; never 0. Redisson has it since 4.0.0.
    GiveIf(u32),
    Drain,
    Available,
    Delete,
    /// Server: the free count gets a TTL.
    Expire,
    /// Server: the TTL of the free count ends.
    Lapse,
}

use Step::{Add, Available, Delete, Drain, Expire, Give, GiveIf, Lapse, New, NewFor, Set, Take};

pub struct Seats {
    semaphore: Semaphore,
    free: Number,
    /// True if this version of Redisson has no `releaseIfExists`.
    is_old: bool,
}

impl Seats {
    async fn ours(&self, step: Step) -> distlock::Result<i64> {
        let semaphore = &self.semaphore;
        match step {
            New(n) => semaphore.try_set_permits(n).await.map(i64::from),
            NewFor(n) => semaphore.try_set_permits_for(n, ms(TTL)).await.map(i64::from),
            Set(n) => semaphore.set_permits(n).await.map(|()| 1),
            Add(n) => semaphore.add_permits(n).await.map(|()| 1),
            Take(n) => semaphore.try_acquire(n).await.map(i64::from),
            Give(n) => semaphore.release(n).await.map(|()| 1),
            GiveIf(n) => semaphore.release_if_exists(n).await.map(i64::from),
            Drain => semaphore.drain().await,
            Available => semaphore.available().await,
            Delete => semaphore.delete().await.map(i64::from),
            Expire | Lapse => unreachable!("{step:?} is a step of the server"),
        }
    }

    fn drain(&mut self, is_java: bool) -> i64 {
        let before = self.free.get();
        if is_java && self.free.value.is_some() {
            // Redisson uses SET, which removes the TTL.
            self.free.set(0);
        } else if before != 0 {
            self.free.increase(-before);
        }
        before
    }
}

fn request(step: Step) -> (&'static str, Value) {
    match step {
        New(n) => ("sem_set", json!({"permits": n})),
        NewFor(n) => ("sem_set", json!({"permits": n, "ttl_ms": TTL})),
        Add(n) => ("sem_add", json!({"permits": n})),
        Take(n) => ("sem_try", json!({"permits": n})),
        Give(n) => ("sem_release", json!({"permits": n})),
        GiveIf(n) => ("sem_release_if_exists", json!({"permits": n})),
        Drain => ("sem_drain", json!({})),
        Available => ("sem_available", json!({})),
        Delete => ("sem_delete", json!({})),
        Set(_) | Expire | Lapse => unreachable!("{step:?} is not a step of Redisson"),
    }
}

impl Object for Seats {
    type Step = Step;
    type Answer = Result<i64, String>;

    fn open(client: &Client, version: &str) -> Self {
        Self { semaphore: client.semaphore(NAME), free: Number::default(), is_old: version == "3.52.0" }
    }

    fn choose(&mut self, dice: &mut Numbers, side: Side) -> Step {
        let (n, more): (u32, i32) = (dice.of(&[0, 1, 1, 2, 3]), dice.of(&[-4, -2, -1, 1, 2, 3]));
        if side == Side::Server {
            return if self.free.expires { Lapse } else { Expire };
        }
        let mut steps = vec![New(n), New(n), NewFor(n), NewFor(n), Add(more), Add(more), Drain, Available, Delete];
        steps.extend([Take(n), Take(n), Take(n), Take(n), Give(n), Give(n), Give(n)]);
        if side == Side::Ours {
            steps.push(Set(n));
        }
        if side == Side::Ours || !self.is_old {
            steps.extend([GiveIf(n.max(1)); 2]);
        }
        dice.of(&steps)
    }

    async fn ask(&mut self, rig: &Rig, side: Side, step: &Step) -> Self::Answer {
        match (side, step) {
            (Side::Server, Lapse) => Ok(lapse(rig).await),
            (Side::Server, _) => Ok(expire(rig).await),
            (Side::Ours, _) => self.ours(*step).await.map_err(|error| error.to_string()),
            (Side::Java, _) => {
                let (op, fields) = request(*step);
                java_number(rig, op, fields).await
            }
        }
    }

    fn expect(&mut self, side: Side, step: &Step, _answer: &Self::Answer) -> Self::Answer {
        let (free, is_java) = (&mut self.free, side == Side::Java);
        let answer = match *step {
            New(n) => i64::from(free.set_new(n.into())),
            NewFor(n) => {
                let is_new = free.set_new(n.into());
                free.expires |= is_new;
                i64::from(is_new)
            }
            Set(n) => {
                free.set(n.into());
                1
            }
            Add(n) => {
                free.increase(n.into());
                // Redisson uses SET, which removes the TTL.
                free.expires &= !is_java;
                1
            }
            // No command is sent, so a negative free count does not matter.
            Take(0) | Give(0) => 1,
            Take(n) => {
                let is_enough = free.get() >= i64::from(n);
                if is_enough {
                    free.increase(-i64::from(n));
                }
                i64::from(is_enough)
            }
            GiveIf(_) if free.value.is_none() => 0,
            Give(n) | GiveIf(n) => {
                free.increase(n.into());
                1
            }
            Drain => self.drain(is_java),
            Available => free.get(),
            Delete | Lapse => i64::from(free.delete()),
            Expire => i64::from(free.expire()),
        };
        Ok(answer)
    }

    async fn compare(&mut self, rig: &Rig) -> Result<(), String> {
        self.free.compare(rig).await
    }

    fn state(&self) -> String {
        format!("{:?}", self.free)
    }

    async fn clean(&mut self, rig: &Rig) {
        lapse(rig).await;
    }
}

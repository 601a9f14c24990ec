//! A latch: its model, and its calls.

use distlock::{Client, Latch};
use distlock_support::Numbers;
use serde_json::json;

use super::number::{Number, expire, lapse};
use super::story::{NAME, Object, Side, java_number};
use crate::rig::{Rig, ms};

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// `trySetCount`. Only Redisson accepts 0.
    Set(u32),
    /// This many times `countDown`.
    Down(u32),
    Count,
    /// Looks whether the latch is open, without a wait. Java looks only at an open latch: at a closed latch it would
    /// subscribe.
    Look,
    Delete,
    /// Server: the count gets a TTL.
    Expire,
    /// Server: the TTL of the count ends.
    Lapse,
}

use Step::{Count, Delete, Down, Expire, Lapse, Look, Set};

pub struct Latched {
    latch: Latch,
    count: Number,
}

impl Latched {
    async fn ours(&self, step: Step) -> distlock::Result<i64> {
        let latch = &self.latch;
        match step {
            Set(n) => latch.try_set(n).await.map(i64::from),
            Down(k) => latch.count_down(k).await.map(u64::cast_signed),
            Count => latch.count().await.map(u64::cast_signed),
            Look => latch.wait_for(ms(0)).await.map(i64::from),
            Delete => latch.delete().await.map(i64::from),
            Expire | Lapse => unreachable!("{step:?} is a step of the server"),
        }
    }

    async fn java(rig: &Rig, step: Step) -> Result<i64, String> {
        match step {
            Set(n) => java_number(rig, "latch_set", json!({"count": n})).await,
            Down(k) => {
                for _ in 0..k {
                    java_number(rig, "latch_down", json!({})).await?;
                }
                Ok(1)
            }
            Count => java_number(rig, "latch_count", json!({})).await,
            Look => java_number(rig, "latch_await", json!({})).await,
            Delete => java_number(rig, "latch_delete", json!({})).await,
            Expire | Lapse => unreachable!("{step:?} is a step of the server"),
        }
    }

    /// Counts down in the model. Returns the count that is left.
    fn down(&mut self, k: u32) -> i64 {
        let left = (self.count.get() - i64::from(k)).max(0);
        if k == 0 {
            return left;
        }
        if left == 0 {
            self.count.delete();
        } else {
            self.count.increase(-i64::from(k));
        }
        left
    }
}

impl Object for Latched {
    type Step = Step;
    type Answer = Result<i64, String>;

    fn open(client: &Client, _version: &str) -> Self {
        Self { latch: client.latch(NAME), count: Number::default() }
    }

    fn choose(&mut self, dice: &mut Numbers, side: Side) -> Step {
        let (n, k): (u32, u32) = (dice.of(&[0, 1, 2, 3, 4, 7]), dice.of(&[0, 1, 1, 1, 2, 3]));
        match (dice.below(10), side) {
            (_, Side::Server) if self.count.expires => Lapse,
            (_, Side::Server) => Expire,
            (0..4, Side::Ours) => Set(n.max(1)),
            (0..4, Side::Java) => Set(n),
            (4..7, _) => Down(k),
            (7, Side::Java) if self.count.get() > 0 => Count,
            (7, _) => Look,
            (8, _) => Count,
            _ => Delete,
        }
    }

    async fn ask(&mut self, rig: &Rig, side: Side, step: &Step) -> Self::Answer {
        match (side, step) {
            (Side::Server, Lapse) => Ok(lapse(rig).await),
            (Side::Server, _) => Ok(expire(rig).await),
            (Side::Ours, _) => self.ours(*step).await.map_err(|error| error.to_string()),
            (Side::Java, _) => Self::java(rig, *step).await,
        }
    }

    fn expect(&mut self, side: Side, step: &Step, _answer: &Self::Answer) -> Self::Answer {
        let answer = match *step {
            Set(n) => i64::from(self.count.set_new(n.into())),
            Down(k) => {
                let left = self.down(k);
                // Redisson does not answer with the count.
                if side == Side::Java { 1 } else { left }
            }
            Count => self.count.get(),
            Look => i64::from(self.count.get() == 0),
            Delete | Lapse => i64::from(self.count.delete()),
            Expire => i64::from(self.count.expire()),
        };
        Ok(answer)
    }

    async fn compare(&mut self, rig: &Rig) -> Result<(), String> {
        self.count.compare(rig).await
    }

    fn state(&self) -> String {
        format!("{:?}", self.count)
    }

    async fn clean(&mut self, rig: &Rig) {
        lapse(rig).await;
    }
}

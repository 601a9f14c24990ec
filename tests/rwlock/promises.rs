//! RW3, at random: whatever guards of both halves do (come, go, extend, downgrade, renew), each that says held is covered in
//! Redis for as long as it says, the counts are those of the guards, and nobody is beside a writer.

use std::time::Duration;

use distlock::{Acquire, Client, Error, Guard, Owner};
use distlock_support::Numbers;

use crate::rig::{covers, fields, writes};
use bed::{Bed, ms, rw, secs, text};

/// A guard, and what it is of.
struct Held {
    owner: usize,
    write: bool,
    guard: Guard,
}

struct Story<'a> {
    bed: &'a Bed,
    /// Two of one client, one of another.
    owners: [(Client, Owner); 3],
    held: Vec<Held>,
    numbers: Numbers,
    log: Vec<String>,
}

impl Story<'_> {
    fn count(&self, owner: usize, write: bool) -> u32 {
        self.held.iter().filter(|held| held.owner == owner && held.write == write).count() as u32
    }

    /// Long enough not to end in the middle of the story; None is the watchdog's.
    fn lease(&mut self) -> Option<Duration> {
        [None, Some(secs(20)), Some(secs(25)), Some(secs(60)), Some(secs(200))][self.numbers.below(5) as usize]
    }

    async fn step(&mut self) {
        let (act, owner, write) = (self.numbers.below(10), self.numbers.below(3) as usize, self.numbers.below(2) == 0);
        let some = self.numbers.below(self.held.len().max(1) as u64) as usize;
        match act {
            0..4 => self.come(owner, write).await,
            4..7 if some < self.held.len() => {
                let Held { owner, write, guard } = self.held.remove(some);
                self.log.push(format!("{owner} gives back, write: {write}"));
                guard.unlock().await.unwrap_or_else(|error| panic!("{error:?} after {:#?}", self.log));
            }
            7 if some < self.held.len() => {
                let lease = self.lease().unwrap_or(secs(30));
                let Held { owner, write, guard } = &self.held[some];
                self.log.push(format!("{owner} extends to {lease:?}, write: {write}"));
                guard.extend(lease).await.unwrap_or_else(|error| panic!("{error:?} after {:#?}", self.log));
            }
            8 if some < self.held.len() && self.held[some].write => {
                let Held { owner, guard, .. } = self.held.remove(some);
                self.log.push(format!("{owner} downgrades"));
                let guard = guard.downgrade().await.unwrap_or_else(|error| panic!("{error:?} after {:#?}", self.log));
                self.held.push(Held { owner, write: false, guard });
            }
            _ => {
                self.log.push("a round of renewals".to_owned());
                for (client, _) in &self.owners {
                    let round = client.renew_now().await;
                    assert_eq!((round.failed, round.lost), (0, 0), "after {:#?}", self.log);
                }
            }
        }
    }

    async fn come(&mut self, owner: usize, write: bool) {
        let lease = self.lease();
        let (client, me) = &self.owners[owner];
        let lock = client.rw("a");
        let how = Acquire::new().owner(me).wait(ms(0));
        let how = if let Some(lease) = lease { how.lease(lease) } else { how };
        let tried = if write { lock.write().acquire(how).await } else { lock.read().acquire(how).await };
        self.log.push(format!("{owner} comes for {lease:?}, write: {write}: {tried:?}"));
        let others = |write: bool| (0..3).filter(|other| *other != owner).any(|other| self.count(other, write) > 0);
        let (reads, writes) = (self.count(owner, false) > 0, self.count(owner, true) > 0);
        match tried {
            Ok(Some(guard)) => {
                assert!(!others(true) && (!write || writes || !(reads || others(false))), "after {:#?}", self.log);
                self.held.push(Held { owner, write, guard });
            }
            Ok(None) => assert!(others(true) || (write && others(false)), "after {:#?}", self.log),
            Err(Error::WouldDeadlock { .. }) => assert!(write && reads && !writes, "after {:#?}", self.log),
            Err(error) => panic!("{error:?} after {:#?}", self.log),
        }
    }

    async fn check(&self) {
        let mut holds = Vec::new();
        for (n, (_, owner)) in self.owners.iter().enumerate() {
            let reads = self.count(n, false);
            holds.extend([(text(owner), reads), (writes(owner), self.count(n, true))]);
            let (hash, found) = (self.bed.admin.pttl("a").await, covers(self.bed, "a", owner).await);
            // Asked after what they are compared with: by then none is promised for longer.
            let best = |write: bool| {
                let mine = self.held.iter().filter(move |held| held.owner == n && held.write == write);
                mine.map(|held| held.guard.remaining()).max().map_or(-2, |left| left.as_millis() as i64)
            };
            assert_eq!(found.len(), reads as usize, "covers {found:?} of {n} after {:#?}", self.log);
            let longest = found.iter().copied().max().unwrap_or(-2);
            assert!(reads == 0 || longest >= best(false), "{n} is covered for {found:?} after {:#?}", self.log);
            assert!(
                hash >= longest && hash >= best(false).max(best(true)),
                "{hash} left, {n}: {longest}, after {:#?}",
                self.log
            );
        }
        holds.retain(|(_, count)| *count > 0);
        let mode = match self.held.iter().map(|held| held.write).max() {
            None => "",
            Some(true) => "write",
            Some(false) => "read",
        };
        assert_eq!(self.bed.admin.hgetall("a").await, fields(mode, &holds), "after {:#?}", self.log);
        assert!(self.held.iter().all(|held| held.guard.is_held()), "after {:#?}", self.log);
    }
}

/// More of them by `RW_SEEDS`.
fn seeds() -> u64 {
    std::env::var("RW_SEEDS").map_or(40, |seeds| seeds.parse().unwrap())
}

#[tokio::test]
async fn every_guard_is_covered_as_long_as_it_says() {
    rw(async |bed| {
        let (one, two) = (bed.client().await, bed.client().await);
        for seed in 0..seeds() {
            let owners = [(one.clone(), one.owner()), (one.clone(), one.owner()), (two.clone(), two.owner())];
            if seed % 2 == 1 {
                // Known elsewhere, and counted by the server alone.
                owners.iter().for_each(|(_, owner)| drop(owner.to_string()));
            }
            let log = vec![format!("seed {seed}")];
            let mut story = Story { bed, owners, held: Vec::new(), numbers: Numbers::new(seed), log };
            for _ in 0..40 {
                story.step().await;
                story.check().await;
            }
            while let Some(Held { guard, .. }) = story.held.pop() {
                guard.unlock().await.unwrap();
                story.log.push("the last gives back".to_owned());
                story.check().await;
            }
            assert_eq!(bed.admin.keys().await, [""; 0], "seed {seed}");
        }
    })
    .await;
}

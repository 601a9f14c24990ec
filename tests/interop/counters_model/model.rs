//! The model of permits. It sends nothing and reads no clock.
//!
//! A permit whose lease has ended stays in the set of leases until a call *reclaims* it: removes it, and adds it to the
//! free count. We and Redisson reclaim in different calls:
//!
//! | call | ours | Redisson |
//! |---|---|---|
//! | acquire of k | reclaims all, after it has taken | reclaims at most k, before it takes |
//! | release of several ids (if all are held), change of a lease, reads | reclaims nothing | reclaims all |
//! | release of one id | refuses an expired permit | returns an expired permit, and answers false |
//!
//! Other differences are named where they are modelled.

use std::collections::{BTreeMap, BTreeSet};

use distlock::PermitId;

use super::number::{Number, lives};
use super::steps::{Answer, Step, UNKNOWN};
use super::story::Side;
use crate::rig::NEVER;

/// The score of a permit without an end.
const NO_END: i64 = 922_337_203_685_477;
/// No limit on the number of permits that a call reclaims.
const ALL: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// This step has set the lease to this many ms. After the step, [`Model::check`] reads its end in Redis.
    Set(i64),
    /// The lease ends at this time of the server, after the end of the test.
    Until(i64),
    /// The lease has ended at this time of the server.
    Over(i64),
    /// The lease has no end. Only Redisson grants this.
    Never,
}

#[derive(Clone, Copy, Debug)]
pub struct Permit {
    pub id: PermitId,
    pub lease: Lease,
}

/// The state in Redis: the server's time, the text of the free count, its `PTTL`, the `PTTL` of the leases, and the
/// ends of the leases.
pub struct Seen {
    pub now: i64,
    pub free: Option<String>,
    pub life: i64,
    pub leases_life: i64,
    pub ends: BTreeMap<PermitId, i64>,
}

#[derive(Debug, Default)]
pub struct Model {
    pub free: Number,
    /// The set of leases, in the order of the acquires. The order of ids differs between two runs of a seed, so no
    /// choice may depend on it.
    pub held: Vec<Permit>,
    /// True if the set of leases has a TTL.
    pub leases_expire: bool,
    /// The ids of permits that are not in the set any more.
    pub gone: Vec<PermitId>,
}

impl Model {
    pub fn expect(&mut self, side: Side, step: &Step, answer: &Answer) -> Answer {
        let is_java = side == Side::Java;
        let number = match step {
            Step::New(n) => i64::from(self.free.set_new(i64::from(*n))),
            Step::Total(n) => self.set_total(is_java, i64::from(*n)),
            Step::Add(n) => {
                self.free.increase(i64::from(*n));
                // Redisson uses SET, which removes the TTL.
                self.free.expires &= !is_java;
                1
            }
            Step::Take(k, lease) => return Answer::Ids(self.take(is_java, *k, *lease, answer)),
            Step::Give(ids) => self.give(is_java, ids),
            Step::GiveGuard(ids) => self.give_any(ids),
            Step::GiveOne(id) => self.give_any(&[*id]),
            Step::Extend(ids, lease) => self.extend(is_java, ids, *lease),
            Step::Delete => {
                let existed = self.free.value.is_some() || !self.held.is_empty();
                self.free.delete();
                self.remove_all();
                i64::from(existed)
            }
            Step::Counts => return self.counts(),
            Step::Holders => return Answer::Holders(self.holders()),
            Step::Available | Step::Acquired | Step::Sum | Step::LeaseOf(_) => self.java_reads(step),
            Step::Lapse(permits) => self.lapse(permits),
            Step::Expire => i64::from(self.free.expire()),
            Step::Vanish(with_leases) => {
                let deleted = i64::from(self.free.delete()) + i64::from(*with_leases);
                if *with_leases {
                    self.remove_all();
                }
                deleted
            }
        };
        Answer::Number(number)
    }

    fn is_live(&self, id: PermitId) -> bool {
        self.held.iter().any(|permit| permit.id == id && !matches!(permit.lease, Lease::Over(_)))
    }

    /// The expired permits in the set, by the end of their lease.
    fn expired(&self) -> Vec<PermitId> {
        let over = |permit: &Permit| match permit.lease {
            Lease::Over(end) => Some((end, permit.id)),
            Lease::Set(_) | Lease::Until(_) | Lease::Never => None,
        };
        let mut expired: Vec<_> = self.held.iter().filter_map(over).collect();
        expired.sort_unstable();
        expired.into_iter().map(|(_, id)| id).collect()
    }

    /// Removes permits from the set. Returns how many of them were in the set.
    fn remove(&mut self, ids: &[PermitId]) -> i64 {
        let before = self.held.len();
        self.gone.extend(self.held.iter().map(|permit| permit.id).filter(|id| ids.contains(id)));
        self.held.retain(|permit| !ids.contains(&permit.id));
        // Redis deletes an empty set, and its TTL.
        self.leases_expire &= !self.held.is_empty();
        (before - self.held.len()) as i64
    }

    fn remove_all(&mut self) {
        let all: Vec<_> = self.held.iter().map(|permit| permit.id).collect();
        self.remove(&all);
    }

    /// Returns at most this many expired permits to the free count.
    fn reclaim(&mut self, most: usize) {
        let mut expired = self.expired();
        expired.truncate(most);
        self.give_any(&expired);
    }

    /// Moves these permits from the set to the free count, expired or not. Ids that are not in the set are ignored.
    /// Answers 1 if one of the permits was live.
    fn give_any(&mut self, ids: &[PermitId]) -> i64 {
        let was_live = ids.iter().any(|id| self.is_live(*id));
        let removed = self.remove(ids);
        if removed > 0 {
            self.free.increase(removed);
        }
        i64::from(was_live)
    }

    /// Difference: without a free count, Redisson sets the free count and not the total.
    fn set_total(&mut self, is_java: bool, n: i64) -> i64 {
        if is_java && self.free.value.is_none() {
            self.free.set(n);
        } else {
            self.free.increase(n - self.held.len() as i64 - self.free.get());
        }
        1
    }

    /// Difference: if all leases have ended, Redisson empties the set before it adds the new permits, so the set loses
    /// its TTL.
    fn take(&mut self, is_java: bool, k: u32, lease: Option<u64>, answer: &Answer) -> Vec<PermitId> {
        let wanted = i64::from(k);
        if is_java {
            self.reclaim(k as usize);
        }
        let reclaimable = if is_java { 0 } else { self.expired().len() as i64 };
        let is_enough = self.free.get() + reclaimable >= wanted;
        let ids = if is_enough { self.new_ids(k as usize, answer) } else { Vec::new() };
        let lease = match lease {
            Some(lease) => Lease::Set(lease as i64),
            None if is_java => Lease::Never,
            None => Lease::Set(NEVER.as_millis() as i64),
        };
        self.held.extend(ids.iter().map(|id| Permit { id: *id, lease }));
        if !is_java {
            self.reclaim(ALL);
        }
        if is_enough {
            self.free.increase(-wanted);
            self.leases_expire |= self.free.expires;
        }
        ids
    }

    /// The ids of the answer, if these are as many new ids as were wanted.
    fn new_ids(&self, wanted: usize, answer: &Answer) -> Vec<PermitId> {
        let is_known = |id: &PermitId| self.gone.contains(id) || self.held.iter().any(|permit| permit.id == *id);
        match answer {
            Answer::Ids(ids)
                if ids.len() == wanted
                    && ids.iter().collect::<BTreeSet<_>>().len() == wanted
                    && !ids.iter().any(is_known) =>
            {
                ids.clone()
            }
            _ => vec![UNKNOWN; wanted],
        }
    }

    /// Answers with the number of released permits for Redisson, and with 1 for us. 0: not all permits were live.
    fn give(&mut self, is_java: bool, ids: &[PermitId]) -> i64 {
        if !ids.iter().all(|id| self.is_live(*id)) {
            return 0;
        }
        if is_java {
            self.reclaim(ALL);
        }
        let removed = self.remove(ids);
        self.free.increase(removed);
        if is_java { removed } else { 1 }
    }

    fn extend(&mut self, is_java: bool, ids: &[PermitId], lease: u64) -> i64 {
        if is_java {
            self.reclaim(ALL);
        }
        if !ids.iter().all(|id| self.is_live(*id)) {
            return 0;
        }
        for permit in self.held.iter_mut().filter(|permit| ids.contains(&permit.id)) {
            permit.lease = Lease::Set(lease as i64);
        }
        1
    }

    fn counts(&self) -> Answer {
        let expired = self.expired().len();
        Answer::Counts(self.free.get() + expired as i64, (self.held.len() - expired) as u64)
    }

    fn holders(&self) -> Vec<(PermitId, bool)> {
        let end = |permit: &Permit| match permit.lease {
            Lease::Until(end) => Some((end, permit.id)),
            Lease::Never => Some((NO_END, permit.id)),
            Lease::Set(_) | Lease::Over(_) => None,
        };
        let mut live: Vec<_> = self.held.iter().filter_map(end).collect();
        live.sort_unstable();
        live.into_iter().map(|(end, id)| (id, end < NO_END)).collect()
    }

    /// Difference: Redisson's total is 0 without a free count, although permits are held.
    fn java_reads(&mut self, step: &Step) -> i64 {
        self.reclaim(ALL);
        let held = self.held.len() as i64;
        match step {
            Step::Available => self.free.get(),
            Step::Acquired => held,
            Step::Sum => self.free.value.map_or(0, |free| free + held),
            Step::LeaseOf(id) => match self.held.iter().find(|permit| permit.id == *id) {
                Some(Permit { lease: Lease::Never, .. }) => -1,
                Some(_) => 1,
                None => 0,
            },
            _ => unreachable!("{step:?} is not a read of Redisson"),
        }
    }

    fn lapse(&mut self, permits: &[(PermitId, i64)]) -> i64 {
        for (id, end) in permits {
            for permit in self.held.iter_mut().filter(|permit| permit.id == *id) {
                permit.lease = Lease::Over(*end);
            }
        }
        permits.len() as i64
    }

    /// Compares with Redis. `began`: the server's time before the step.
    pub fn check(&mut self, began: i64, seen: &Seen) -> Result<(), String> {
        self.free.check(seen.free.as_deref(), seen.life)?;
        if !lives(!self.held.is_empty(), self.leases_expire, seen.leases_life) {
            return Err(format!("the leases have a PTTL of {}", seen.leases_life));
        }
        if self.held.len() != seen.ends.len() {
            return Err(format!("Redis has the leases {:?}", seen.ends));
        }
        for permit in &mut self.held {
            let Some(&end) = seen.ends.get(&permit.id) else {
                return Err(format!("Redis has no lease of {}, but {:?}", permit.id, seen.ends));
            };
            let is_right = match permit.lease {
                Lease::Set(lease) => (began + lease..=seen.now + lease).contains(&end),
                Lease::Until(expected) | Lease::Over(expected) => end == expected,
                Lease::Never => end == NO_END,
            };
            if !is_right {
                let now = seen.now;
                return Err(format!("a lease ends at {end}: {permit:?}, in a step between {began} and {now}"));
            }
            if let Lease::Set(_) = permit.lease {
                permit.lease = Lease::Until(end);
            }
        }
        Ok(())
    }
}

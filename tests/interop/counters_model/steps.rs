//! The steps on permits, and their random choice.

use distlock::PermitId;
use distlock_support::Numbers;

use super::model::{Lease, Model};
use super::story::Side;

/// An id that no permit has.
pub const UNKNOWN: PermitId = PermitId::from_bytes(*b"no permit has it");
/// Leases in ms that outlast every test.
const LEASES: [u64; 2] = [7_200_000, 10_800_000];

#[derive(Clone, Debug)]
pub enum Step {
    /// `trySetPermits`.
    New(u32),
    /// `setPermits`.
    Total(u32),
    /// `addPermits`; never 0.
    Add(i32),
    /// `tryAcquire` with a lease in ms. Without a lease: the watchdog's lease for us, no end for Redisson.
    Take(u32, Option<u64>),
    /// Releases the permits with these ids, all or none.
    Give(Vec<PermitId>),
    /// Ours: releases these permits of a guard.
    GiveGuard(Vec<PermitId>),
    /// Java: releases one permit.
    GiveOne(PermitId),
    /// `updateLeaseTime`, in ms. Redisson's call has one id.
    Extend(Vec<PermitId>, u64),
    Delete,
    /// Ours: reads the free and the held permits.
    Counts,
    /// Ours: lists the held permits.
    Holders,
    /// Java: `availablePermits`.
    Available,
    /// Java: `acquiredPermits`.
    Acquired,
    /// Java: `getPermits`.
    Sum,
    /// Java: `getLeaseTime`.
    LeaseOf(PermitId),
    /// Server: the leases of these permits have ended at these times.
    Lapse(Vec<(PermitId, i64)>),
    /// Server: the free count gets a TTL.
    Expire,
    /// Server: the TTL of the free count ends. True: the leases have a TTL too, and are deleted.
    Vanish(bool),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A number, or 1 for true and for no answer. A remaining lease counts as 1, a permit without an end as -1.
    Number(i64),
    /// The ids of new permits. Empty if there were too few free permits.
    Ids(Vec<PermitId>),
    /// Free and held permits.
    Counts(i64, u64),
    /// The held permits by the end of their lease. True: the lease has an end.
    Holders(Vec<(PermitId, bool)>),
    Failed(String),
}

/// Chooses the next step of this side. `guards`: the ids of each guard that has not been released.
pub fn choose(model: &Model, guards: &[Vec<PermitId>], dice: &mut Numbers, side: Side) -> Step {
    if side == Side::Server {
        return choose_for_server(model, dice);
    }
    if model.free.value.is_none() && !dice.once_in(3) {
        return Step::New(dice.of(&[2, 3, 5, 7]));
    }
    let (n, more): (u32, i32) = (dice.of(&[0, 1, 3, 5, 8]), dice.of(&[-3, -1, 1, 2, 4]));
    let (k, lease): (u32, u64) = (dice.of(&[1, 1, 2, 3]), dice.of(&LEASES));
    let (ids, id) = (targets(model, dice, 3), targets(model, dice, 1)[0]);
    let mut steps = vec![Step::New(n), Step::Total(n), Step::Add(more), Step::Delete];
    steps.extend(vec![Step::Take(k, Some(lease)); 5]);
    steps.extend(vec![Step::Take(k, None); 2]);
    steps.extend(vec![Step::Give(ids.clone()); 2]);
    if side == Side::Java {
        steps.extend(vec![Step::GiveOne(id); 2]);
        steps.extend([Step::Extend(vec![id], lease), Step::LeaseOf(id)]);
        steps.extend([Step::Available, Step::Acquired, Step::Sum]);
    } else {
        steps.extend([Step::Extend(ids, lease), Step::Counts, Step::Counts, Step::Holders]);
        if !guards.is_empty() {
            let guard = &guards[dice.below(guards.len() as u64) as usize];
            steps.extend(vec![Step::GiveGuard(guard.clone()); 3]);
        }
    }
    let at = dice.below(steps.len() as u64) as usize;
    steps.swap_remove(at)
}

fn choose_for_server(model: &Model, dice: &mut Numbers) -> Step {
    let is_live = |lease: Lease| !matches!(lease, Lease::Over(_));
    let mut live: Vec<_> = model.held.iter().filter(|permit| is_live(permit.lease)).map(|permit| permit.id).collect();
    let choice = dice.below(6);
    if choice == 0 && model.free.expires {
        return Step::Vanish(model.leases_expire);
    }
    if choice <= 1 || live.is_empty() {
        return Step::Expire;
    }
    let first = dice.below(live.len() as u64) as usize;
    live.rotate_left(first);
    live.truncate(1 + dice.below(3) as usize);
    // The ends differ, because equal ends would be ordered by their ids.
    Step::Lapse(live.into_iter().map(|id| (id, 1 + dice.below(1 << 40) as i64)).collect())
}

/// 1 to `most` ids. Most calls get different ids of permits in the set. Some get an id that is in no set any more or
/// never was, or the same id twice.
fn targets(model: &Model, dice: &mut Numbers, most: u64) -> Vec<PermitId> {
    let mut ids: Vec<_> = model.held.iter().map(|permit| permit.id).collect();
    let (first, count) = (dice.below(1 << 20) as usize % ids.len().max(1), 1 + dice.below(most) as usize);
    ids.rotate_left(first);
    ids.truncate(count);
    let odd = match dice.below(12) {
        0 => Some(UNKNOWN),
        1 | 2 if !model.gone.is_empty() => Some(dice.of(&model.gone)),
        3 => ids.first().copied(),
        _ => None,
    };
    if let Some(odd) = odd {
        ids.truncate(count - 1);
        ids.push(odd);
    }
    if ids.is_empty() {
        ids.push(UNKNOWN);
    }
    ids
}

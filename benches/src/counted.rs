//! Permits and semaphores, compared with Redisson's. Permits also with `distributed-lock-redis`, whose semaphore has
//! leases too.

use std::time::Duration;

use crate::bed::{Bed, By, Sides};
use crate::drive::{Kind, Plan, Timed};
use crate::report::Row;
use crate::subject::Who;

/// The benches without waits, in which there are more permits than tasks.
pub const ALONE: [(&str, Kind); 2] = [("permits", Kind::Permits(1000)), ("semaphore", Kind::Semaphore(1000))];

/// The benches of several processes, with the names of their counterparts in [`ALONE`].
pub const TOGETHER: [(&str, &str, Kind); 2] =
    [("permits", "permits n=4", Kind::Permits(4)), ("semaphore", "semaphore n=4", Kind::Semaphore(4))];

/// Returns the subjects that have this kind of lock.
pub const fn with(kind: Kind) -> &'static [Who] {
    match kind {
        Kind::Permits(_) => &[Who::Distlock, Who::Redisson, Who::DistributedLock],
        _ => &[Who::Distlock, Who::Redisson],
    }
}

/// Acquire and release of one permit. All tasks share one name.
pub async fn alone(bed: &Bed, bench: &'static str, kind: Kind) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (5, 150) } else { (13, 350) };
    let mut subjects: Vec<Who> = with(kind).iter().copied().filter(|who| bed.args.subjects.contains(who)).collect();
    if subjects.contains(&Who::Distlock) {
        subjects.push(Who::Direct);
    }
    let mut sides = bed.here(&subjects, &[kind]).await;
    let mut rows = Vec::new();
    for tasks in [1, 64] {
        let plan = Plan {
            tasks,
            kind,
            name: String::new(),
            own: false,
            timed: Timed::Pair,
            hold: Duration::ZERO,
            length: Duration::from_millis(length),
        };
        rows.extend(bed.rounds(bench, 1, &mut sides, &plan, rounds, By::Rate).await);
    }
    bed.close(sides).await;
    // The numbers of permits.
    bed.admin.cmd::<()>(&["FLUSHALL"]).await;
    rows
}

/// Eight processes with eight tasks each, on a few permits of one name.
pub async fn together(bed: &Bed, sides: &mut Sides, bench: &'static str, kind: Kind) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, 1200) } else { (5, 4000) };
    let rows = bed.together(sides, with(kind), &[(bench, 8, kind)], (rounds, Duration::from_millis(length))).await;
    // The numbers of permits. Nothing is held now.
    bed.admin.cmd::<()>(&["FLUSHALL"]).await;
    rows
}

//! The plain lock, compared with libraries that use the same keys and with our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, By};
use crate::benches::HOLD;
use crate::drive::{Kind, Plan, Timed};
use crate::report::Row;
use crate::subject::Who;

/// Returns the requested subjects that have such a lock.
fn subjects(bed: &Bed, with: &[Who]) -> Vec<Who> {
    let mut subjects: Vec<Who> = bed.args.subjects.iter().copied().filter(|who| with.contains(who)).collect();
    if subjects.contains(&Who::Distlock) {
        subjects.extend([Who::Reentrant, Who::Direct]);
    }
    subjects
}

/// Lock and unlock. Every task has its own name.
pub async fn uncontended(bed: &Bed) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (5, 150) } else { (13, 350) };
    let with = [Who::Distlock, Who::Rslock, Who::Rlock, Who::Redsync, Who::Redlock, Who::RedisPy];
    let mut sides = bed.here(&subjects(bed, &with), &[]).await;
    let mut rows = Vec::new();
    for tasks in [1, 64, 1024] {
        let plan = Plan {
            tasks,
            kind: Kind::Plain,
            name: String::new(),
            own: true,
            timed: Timed::Pair,
            hold: Duration::ZERO,
            length: Duration::from_millis(length),
        };
        rows.extend(bed.rounds("plain", 1, &mut sides, &plan, rounds, By::Rate).await);
    }
    bed.close(sides).await;
    rows
}

/// Eight tasks of one process on one name, for the libraries that run in this process.
pub async fn contended(bed: &Bed) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, 1200) } else { (5, 3000) };
    let mut sides = bed.here(&subjects(bed, &[Who::Distlock, Who::Rslock, Who::Rlock]), &[]).await;
    let plan = Plan {
        tasks: 8,
        kind: Kind::Plain,
        name: String::new(),
        own: false,
        timed: Timed::Wait,
        hold: HOLD,
        length: Duration::from_millis(length),
    };
    let rows = bed.rounds("plain, contended", 1, &mut sides, &plan, rounds, By::Rate).await;
    bed.close(sides).await;
    rows
}

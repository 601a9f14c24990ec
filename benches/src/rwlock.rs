//! The read-write lock: beside Redisson's, and each half beside our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, By, PROCESSES, Side, Sides};
use crate::benches::HOLD;
use crate::drive::{Kind, Plan, Timed};
use crate::fair::WITH;
use crate::report::Row;
use crate::subject::{Any, Who};

/// The mixes: their names, and how many of a hundred acquires are for reading.
const MIXES: [(&str, u8); 2] = [("rw 95/5", 95), ("rw 50/50", 50)];

/// What Java has to warm up for.
pub const KIND: Kind = Kind::Mix(50);

/// Eight processes of eight tasks on one name, some reading and some writing.
pub async fn mixed(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, 1500) } else { (5, 4000) };
    let length = Duration::from_millis(length);
    let (mut both, others): (Sides, Sides) = std::mem::take(sides).into_iter().partition(|(who, _)| WITH.contains(who));
    let mut rows = Vec::new();
    for (bench, reads) in MIXES {
        let (kind, name) = (Kind::Mix(reads), String::new());
        let plan = Plan { tasks: 8, kind, name, own: false, timed: Timed::Wait, hold: HOLD, length };
        rows.extend(bed.rounds(bench, PROCESSES, &mut both, &plan, rounds, By::Rate).await);
    }
    sides.extend(both);
    sides.extend(others);
    rows
}

/// Lock and unlock of one task with nobody else, of either half, and the same with a reentrant lock of a client alike.
pub async fn alone(bed: &Bed) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (5, 150) } else { (13, 350) };
    let mut sides = Sides::new();
    for who in [Who::Distlock, Who::Reentrant] {
        sides.push((who, Side::Here(Any::connect(who, &bed.server.url(), bed.args.pool).await)));
    }
    let mut rows = Vec::new();
    for (bench, kind) in [("read", Kind::Read), ("write", Kind::Write)] {
        let plan = Plan {
            tasks: 1,
            kind,
            name: String::new(),
            own: true,
            timed: Timed::Pair,
            hold: Duration::ZERO,
            length: Duration::from_millis(length),
        };
        rows.extend(bed.rounds(bench, 1, &mut sides, &plan, rounds, By::Rate).await);
    }
    bed.close(sides).await;
    rows
}

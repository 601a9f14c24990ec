//! The fair lock: beside Redisson's, and beside our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, By, PROCESSES, Side, Sides};
use crate::benches::HOLD;
use crate::drive::{Kind, Plan, Timed};
use crate::report::Row;
use crate::subject::{Any, Who};

/// Those that have a fair lock.
pub const WITH: [Who; 2] = [Who::Distlock, Who::Redisson];

/// Eight processes on one name.
pub async fn handed_on(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    // Long enough for some 30 turns of each of 64 tasks: a turn more or less must not be a tenth.
    let (rounds, length) = if bed.args.quick { (1, 2500) } else { (5, 4000) };
    let length = Duration::from_millis(length);
    let (mut fair, others): (Sides, Sides) = std::mem::take(sides).into_iter().partition(|(who, _)| WITH.contains(who));
    let mut rows = Vec::new();
    for tasks in [1, 8] {
        let plan =
            Plan { tasks, kind: Kind::Fair, name: String::new(), own: false, timed: Timed::Wait, hold: HOLD, length };
        rows.extend(bed.rounds("fair", PROCESSES, &mut fair, &plan, rounds, By::Rate).await);
    }
    sides.extend(fair);
    sides.extend(others);
    rows
}

/// Lock and unlock of one task with nobody else, and the same with a reentrant lock of a client alike.
pub async fn alone(bed: &Bed) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (5, 150) } else { (13, 350) };
    let mut sides = Sides::new();
    for who in [Who::Distlock, Who::Reentrant] {
        sides.push((who, Side::Here(Any::connect(who, &bed.server.url(), bed.args.pool).await)));
    }
    let plan = Plan {
        tasks: 1,
        kind: Kind::Fair,
        name: String::new(),
        own: true,
        timed: Timed::Pair,
        hold: Duration::ZERO,
        length: Duration::from_millis(length),
    };
    let rows = bed.rounds("fair", 1, &mut sides, &plan, rounds, By::Rate).await;
    bed.close(sides).await;
    rows
}

//! The multi lock: many names at once, and callers that list their names in opposite orders.

use std::time::Duration;

use crate::bed::{Bed, By, Sides};
use crate::benches::HOLD;
use crate::drive::{Kind, Plan, Timed};
use crate::fair::WITH;
use crate::report::Row;
use crate::subject::Who;

/// The locks of the callers with opposite orders.
pub const KIND: Kind = Kind::Multi(3);

/// One task that acquires many names of one slot. Then two tasks that acquire the same three names in opposite
/// orders.
pub async fn many(bed: &Bed) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (3, 400) } else { (7, 1000) };
    let subjects: Vec<Who> = WITH.into_iter().filter(|who| bed.args.subjects.contains(who)).collect();
    let mut sides = bed.here(&subjects, &[Kind::Multi(1000)]).await;
    let extent = (rounds, Duration::from_millis(length));
    let mut rows = bed.waits("multi 1000 names", Kind::Multi(1000), &mut sides, extent).await;
    let plan = Plan {
        tasks: 2,
        kind: KIND,
        name: String::new(),
        own: false,
        timed: Timed::Wait,
        hold: HOLD,
        // Redisson's two tasks wait for each other for 4 s or more before one gives up.
        length: Duration::from_secs(if bed.args.quick { 3 } else { 10 }),
    };
    rows.extend(bed.rounds("multi reversed", 1, &mut sides, &plan, if bed.args.quick { 1 } else { 3 }, By::Rate).await);
    let (mut ours, others): (Sides, Sides) = sides.into_iter().partition(|(who, _)| *who == Who::Distlock);
    rows.extend(bed.waits("multi 10000 names", Kind::Multi(10_000), &mut ours, extent).await);
    bed.close(ours).await;
    bed.close(others).await;
    rows
}

/// Opposite orders, with eight processes of two tasks each. Redisson does not finish this within minutes, so only
/// distlock runs.
pub async fn reversed(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, 2500) } else { (3, 4000) };
    bed.together(sides, &[Who::Distlock], &[("multi reversed", 2, KIND)], (rounds, Duration::from_millis(length))).await
}

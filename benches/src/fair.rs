//! The fair lock: beside Redisson's, and beside our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, Sides};
use crate::drive::Kind;
use crate::report::Row;
use crate::subject::Who;

/// Those that have a fair lock.
pub const WITH: [Who; 2] = [Who::Distlock, Who::Redisson];

/// Eight processes on one name.
pub async fn handed_on(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    // Long enough for some 30 turns of each of 64 tasks: a turn more or less must not be a tenth.
    let (rounds, length) = if bed.args.quick { (1, 2500) } else { (5, 4000) };
    let benches = [1, 8].map(|tasks| ("fair", tasks, Kind::Fair));
    bed.together(sides, &WITH, &benches, (rounds, Duration::from_millis(length))).await
}

/// One task with nobody else.
pub async fn alone(bed: &Bed) -> Vec<Row> {
    bed.alone(&[("fair", Kind::Fair)]).await
}

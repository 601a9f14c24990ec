//! The fair lock, compared with Redisson's and with our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, Sides};
use crate::drive::Kind;
use crate::report::Row;
use crate::subject::Who;

/// The subjects that have a fair lock.
pub const WITH: [Who; 2] = [Who::Distlock, Who::Redisson];

/// Eight processes on one name.
pub async fn handed_on(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    // Each of 64 tasks gets some 30 turns, so a single turn more or less is not a tenth of its share.
    let (rounds, length) = if bed.args.quick { (1, 2500) } else { (5, 4000) };
    let benches = [1, 8].map(|tasks| ("fair", tasks, Kind::Fair));
    bed.together(sides, &WITH, &benches, (rounds, Duration::from_millis(length))).await
}

/// One task without contention.
pub async fn alone(bed: &Bed) -> Vec<Row> {
    bed.alone(&[("fair", Kind::Fair)]).await
}

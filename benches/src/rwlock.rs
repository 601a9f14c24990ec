//! The read-write lock: beside Redisson's, and each half beside our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, Sides};
use crate::drive::Kind;
use crate::fair::WITH;
use crate::report::Row;

/// The mixes: their names, and how many of a hundred acquires are for reading.
const MIXES: [(&str, u8); 2] = [("rw 95/5", 95), ("rw 50/50", 50)];

/// What Java has to warm up for.
pub const KIND: Kind = Kind::Mix(50);

/// Eight processes of eight tasks on one name, some reading and some writing.
pub async fn mixed(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, 1500) } else { (5, 4000) };
    let benches = MIXES.map(|(bench, reads)| (bench, 8, Kind::Mix(reads)));
    bed.together(sides, &WITH, &benches, (rounds, Duration::from_millis(length))).await
}

/// One task with nobody else, of either half.
pub async fn alone(bed: &Bed) -> Vec<Row> {
    bed.alone(&[("read", Kind::Read), ("write", Kind::Write)]).await
}

//! The read-write lock, compared with Redisson's; and each half compared with our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, Sides};
use crate::drive::Kind;
use crate::fair::WITH;
use crate::report::Row;

/// The mixes: name, and percentage of acquires that read.
const MIXES: [(&str, u8); 2] = [("rw 95/5", 95), ("rw 50/50", 50)];

/// The kind of lock that Java warms up with.
pub const KIND: Kind = Kind::Mix(50);

/// Eight processes with eight tasks each, on one name. Some tasks read, some write.
pub async fn mixed(bed: &Bed, sides: &mut Sides) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, 1500) } else { (5, 4000) };
    let benches = MIXES.map(|(bench, reads)| (bench, 8, Kind::Mix(reads)));
    bed.together(sides, &WITH, &benches, (rounds, Duration::from_millis(length))).await
}

/// One task without contention, for each half.
pub async fn alone(bed: &Bed) -> Vec<Row> {
    bed.alone(&[("read", Kind::Read), ("write", Kind::Write)]).await
}

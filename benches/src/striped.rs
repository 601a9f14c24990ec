//! The striped lock: one hot resource in segments, compared with one lock for the whole resource.

use std::time::Duration;

use crate::bed::Bed;
use crate::drive::Kind;
use crate::report::Row;
use crate::subject::Who;

/// Eight processes with eight tasks each, on any of eight segments; compared with one reentrant lock.
pub async fn hot(bed: &Bed) -> Vec<Row> {
    const WITH: [Who; 2] = [Who::Distlock, Who::Reentrant];
    let (rounds, length) = if bed.args.quick { (1, 1500) } else { (5, 3000) };
    let mut sides = bed.apart(&WITH, &[]).await;
    let benches = [("striped", 8, Kind::Striped(8))];
    let rows = bed.together(&mut sides, &WITH, &benches, (rounds, Duration::from_millis(length))).await;
    bed.close(sides).await;
    rows
}

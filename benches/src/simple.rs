//! The fenced lock and the spin lock, compared with Redisson's and with our reentrant lock.

use std::time::Duration;

use crate::bed::{Bed, Sides};
use crate::drive::Kind;
use crate::fair::WITH;
use crate::report::Row;
use crate::subject::Who;

/// One task without contention.
pub async fn alone(bed: &Bed, bench: &'static str, kind: Kind) -> Vec<Row> {
    let mut subjects = vec![Who::Distlock, Who::Reentrant];
    subjects.extend(bed.args.subjects.contains(&Who::Redisson).then_some(Who::Redisson));
    let mut sides = bed.here(&subjects, &[kind]).await;
    let rows = bed.pairs(&[(bench, kind)], &mut sides).await;
    bed.close(sides).await;
    rows
}

/// Eight processes with eight tasks each, on one name.
pub async fn together(bed: &Bed, sides: &mut Sides, bench: &'static str, kind: Kind) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, 2500) } else { (5, 4000) };
    bed.together(sides, &WITH, &[(bench, 8, kind)], (rounds, Duration::from_millis(length))).await
}

//! Checks of sentinels.

use super::Severity::Risk;
use super::cluster::LONGEST_DETECTION_MS;
use super::{Found, Rule};
use crate::doctor::facts::{Facts, Sentinel};

/// With fewer sentinels, no majority is left when one of them fails.
const FEWEST: u64 = 3;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "sentinel-count",
        why: "A failover needs a majority of the sentinels. With fewer than three, no majority is left when one of \
              them fails together with the primary.",
        fix: "Run three sentinels on three machines.",
        page: "docs/sentinel.md",
        find: count,
    },
    Rule {
        id: "sentinel-quorum",
        why: "The sentinels cannot agree on a failover. When the primary dies, no lock can be acquired.",
        fix: "Start the missing sentinels, or lower the quorum: SENTINEL SET <name> quorum 2 at every sentinel.",
        page: "docs/sentinel.md",
        find: quorum,
    },
    Rule {
        id: "sentinel-down-after",
        why: "The sentinels promote a replica only after this time. Held locks cannot be renewed for so long, and are \
              lost.",
        fix: "SENTINEL SET <name> down-after-milliseconds 5000 at every sentinel.",
        page: "docs/sentinel.md",
        find: down_after,
    },
];

fn each(facts: &Facts, judge: impl Fn(&Sentinel) -> Option<String>) -> Vec<Found> {
    let found = |sentinel: &Sentinel| Some(Found::new(Risk, &sentinel.address, judge(sentinel)?));
    facts.sentinels.iter().filter_map(found).collect()
}

fn count(facts: &Facts) -> Vec<Found> {
    each(facts, |sentinel| {
        let known = sentinel.fields.number("num-other-sentinels")? + 1;
        (known < FEWEST).then(|| format!("knows {known} sentinels, itself included"))
    })
}

fn quorum(facts: &Facts) -> Vec<Found> {
    each(facts, |sentinel| sentinel.no_quorum.clone())
}

fn down_after(facts: &Facts) -> Vec<Found> {
    each(facts, |sentinel| {
        let ms = sentinel.fields.number("down-after-milliseconds")?;
        (ms > LONGEST_DETECTION_MS).then(|| format!("down-after-milliseconds {ms}"))
    })
}

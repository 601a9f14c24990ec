//! A slot that is being moved: some keys are at its source still, some at its target already. A script does there what it does
//! elsewhere, or is refused and leaves no trace, at either side. Of several steps in a command that holds for each.
//!
//! `cases`, `queues` and `halves` have what scripts are asked, and in which states; `walk` goes through all of it. `clients` has
//! what clients of one server send there, word for word, and what becomes of their locks.

mod cases;
mod clients;
mod halves;
mod outcome;
mod queues;
mod slot;
mod undeclared;
mod walk;
mod words;

use std::collections::BTreeSet;

use bed::scripts;
use cases::{FAMILIES, Family, OVER_SLOTS};
use distlock_support::{Cluster, ClusterOptions};
use slot::{WAYS, Way};
use walk::{Keys, walk};

async fn two_nodes() -> Cluster {
    Cluster::start(ClusterOptions::default().primaries(2).replicas(0).node_timeout(60_000)).await
}

/// Behind `ASKING` these take covers for gone that are at the source still. They have several keys, and so are never sent there.
const WRONG_BEHIND_ASKING: [&str; 2] = ["rwlock/read_release", "rwlock/renew"];

/// A case of a test for each family, and for what else is said.
macro_rules! of_each_family {
    ($test:ident $(, $more:ident = $family:expr)?) => {
        bed::cases!($test:
            of_reentrant_locks = &FAMILIES[0],
            of_several_locks = &FAMILIES[1],
            of_fenced_locks = &FAMILIES[2],
            of_plain_locks = &FAMILIES[3],
            of_fair_locks = &FAMILIES[4],
            of_several_fair_locks = &FAMILIES[5],
            of_read_write_locks = &FAMILIES[6],
            $($more = $family,)?
        );
    };
}

async fn all_or_nothing(family: &'static Family) {
    let walked = walk(family, Keys::Declared, &WAYS).await;
    println!("{walked}");
    for ((script, way), tally) in walked.tallies {
        let is_known = way == Way::Asking && WRONG_BEHIND_ASKING.contains(&script);
        assert_eq!(is_known, tally.breaks > 0, "{script}, {way:?}: {:?}", tally.broken);
        match way {
            Way::Settled => assert_eq!(tally.whole, tally.calls(), "{script}: nothing keeps it"),
            Way::Source => assert!(tally.refused > 0, "{script}: {tally:?}"),
            Way::Target => assert_eq!(tally.refused, tally.calls(), "{script}: the slot is not the target's"),
            Way::Asking => {}
        }
    }
}

of_each_family!(all_or_nothing);

/// These write one key before they touch another, and so have to declare both: a server that finds one away stops them half way.
const HAVE_TO_DECLARE: [&str; 5] =
    ["fair/refresh", "rwlock/leave", "rwlock/many", "rwlock/read_release", "rwlock/write"];

/// What a command for many names of a server is about: no key is declared, and a step that finds one away fails alone.
async fn all_or_nothing_without_declared_keys(family: &'static Family) {
    let walked = walk(family, Keys::Undeclared, &[Way::Source, Way::Target]).await;
    println!("{walked}");
    for ((script, way), tally) in walked.tallies {
        match (script, way) {
            // It tries what it may do, and tells; it never fails.
            ("common/preflight", _) => {}
            (_, Way::Target) => assert_eq!(tally.refused, tally.calls(), "{script}: the slot is not the target's"),
            _ => {
                let is_known = way == Way::Source && HAVE_TO_DECLARE.contains(&script);
                assert_eq!(is_known, tally.breaks > 0, "{script}, {way:?}: {:?}", tally.broken);
            }
        }
    }
}

of_each_family!(all_or_nothing_without_declared_keys, of_locks_over_slots = &OVER_SLOTS);

#[test]
fn no_script_is_left_out() {
    let named: BTreeSet<&str> = FAMILIES.iter().flat_map(|family| family.calls).map(|call| call.script).collect();
    let all: BTreeSet<&str> = scripts::all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, all);
}

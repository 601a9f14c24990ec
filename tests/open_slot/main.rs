//! A slot that is being moved: some keys are still at the source, and some already at the target. A script has its
//! normal effect there, or is refused and changes nothing on either side. In a command with several steps, the same
//! applies to each step.
//!
//! `cases`, `queues`, `halves` and `counters` have the calls and the states, and `walk` runs them. `clients` replays
//! the exact calls of single-server clients, and tests their locks.

mod cases;
mod clients;
mod counters;
mod halves;
mod outcome;
mod queues;
mod slot;
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

/// Behind `ASKING`, these scripts treat covers that are still at the source as gone. They have several keys, so clients
/// never send them there.
const WRONG_BEHIND_ASKING: [&str; 2] = ["rwlock/read_release", "rwlock/renew"];

/// A test case for each family, and for one more if given.
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
            of_permits = &FAMILIES[7],
            of_semaphores = &FAMILIES[8],
            of_latches = &FAMILIES[9],
            of_barriers = &FAMILIES[10],
            of_leaders = &FAMILIES[11],
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

/// These scripts write one key before they access another key, so they must declare both. Otherwise a missing key would
/// stop the script halfway.
const HAVE_TO_DECLARE: [&str; 5] =
    ["fair/refresh", "rwlock/leave", "rwlock/many", "rwlock/read_release", "rwlock/write"];

/// Calls that batch many names of a server declare no keys. A step whose key is missing fails alone.
async fn all_or_nothing_without_declared_keys(family: &'static Family) {
    let walked = walk(family, Keys::Undeclared, &[Way::Source, Way::Target]).await;
    println!("{walked}");
    for ((script, way), tally) in walked.tallies {
        match (script, way) {
            // This script tries all commands and reports the results, so it never fails.
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
fn every_script_has_test_cases() {
    let named: BTreeSet<&str> = FAMILIES.iter().flat_map(|family| family.calls).map(|call| call.script).collect();
    let all: BTreeSet<&str> = scripts::all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(named, all);
}

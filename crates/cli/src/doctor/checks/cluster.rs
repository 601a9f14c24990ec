//! Checks of a cluster as a whole.

use super::Severity::{Breaks, Risk};
use super::{Found, Rule};
use crate::doctor::facts::{Facts, Server};

const SLOTS: u64 = 16_384;
/// A lease of 30 s that is renewed every 10 s has at least 20 s left when a server fails. If detection takes 15 s, 5 s
/// remain for the promotion and the first renewal.
pub(super) const LONGEST_DETECTION_MS: u64 = 15_000;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "slots-uncovered",
        why: "Locks whose slot belongs to no server cannot be acquired. With cluster-require-full-coverage yes, no \
              lock can be acquired.",
        fix: "redis-cli --cluster fix <host>:<port>, or CLUSTER ADDSLOTS at the server that shall have the slots.",
        page: "docs/clusters.md",
        find: slots_uncovered,
    },
    Rule {
        id: "cluster-down",
        why: "The cluster refuses all commands (CLUSTERDOWN), so no lock can be acquired or renewed.",
        fix: "Start the failed servers, or promote their replicas: CLUSTER FAILOVER FORCE at a replica.",
        page: "docs/clusters.md",
        find: cluster_down,
    },
    Rule {
        id: "cluster-node-timeout",
        why: "The cluster promotes a replica only after this time. Held locks cannot be renewed for so long, and are \
              lost.",
        fix: "CONFIG SET cluster-node-timeout 5000 on every server, and in the configuration files.",
        page: "docs/clusters.md",
        find: node_timeout,
    },
];

fn slots_uncovered(facts: &Facts) -> Vec<Found> {
    // Every server reports the slots of the whole cluster.
    let covered = |server: &Server| server.cluster.number("cluster_slots_assigned");
    let known = facts.primaries().filter_map(|server| Some((covered(server)?, server)));
    let lowest = known.min_by_key(|(covered, _)| *covered).filter(|(covered, _)| *covered < SLOTS);
    let found =
        lowest.map(|(covered, server)| Found::at(Breaks, server, format!("{covered} of {SLOTS} slots covered")));
    found.into_iter().collect()
}

fn cluster_down(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in facts.primaries() {
        let is_covered = server.cluster.number("cluster_slots_assigned") == Some(SLOTS);
        if let Some(state) = server.cluster.text("cluster_state").filter(|state| is_covered && *state != "ok") {
            found.push(Found::at(Breaks, server, format!("cluster_state:{state}")));
        }
    }
    found
}

fn node_timeout(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in facts.primaries().filter(|server| server.cluster.text("cluster_state").is_some()) {
        let timeout = server.settings.number("cluster-node-timeout");
        if let Some(timeout) = timeout.filter(|timeout| *timeout > LONGEST_DETECTION_MS) {
            found.push(Found::at(Risk, server, format!("cluster-node-timeout {timeout}")));
        }
    }
    found
}

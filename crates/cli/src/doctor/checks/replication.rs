//! Checks of replicas: whether there are any, and whether they keep up.

use distlock::TopologyKind;

use super::Severity::{Breaks, Note, Risk};
use super::{Found, Rule};
use crate::doctor::facts::{Facts, Server};

/// A sound replica reports its position every second.
const MOST_SECONDS_BEHIND: u64 = 10;
const MOST_BYTES_BEHIND: u64 = 16 << 20;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "no-replica",
        why: "If the server dies, no lock can be acquired until it is back. If its disk is lost, so are all locks.",
        fix: "Add a replica (REPLICAOF host port), and sentinels or a cluster that promote it.",
        page: "docs/acknowledgement.md",
        find: no_replica,
    },
    Rule {
        id: "replica-behind",
        why: "If this replica is promoted now, the locks that it lacks are granted again while their holders still \
              work.",
        fix: "Check the replica's log, its network and its load. Acks::AtLeast(1) grants a lock only once a replica \
              has it.",
        page: "docs/acknowledgement.md",
        find: replica_behind,
    },
    Rule {
        id: "min-replicas-unmet",
        why: "The server refuses all writes (NOREPLICAS), so no lock can be acquired.",
        fix: "Bring the replicas back, or lower min-replicas-to-write.",
        page: "docs/faults.md#refusals-that-pass",
        find: min_replicas_unmet,
    },
    Rule {
        id: "min-replicas-off",
        why: "A primary that is cut off from its replicas keeps granting locks, next to the promoted replica.",
        fix: "CONFIG SET min-replicas-to-write 1 and CONFIG SET min-replicas-max-lag 3, on every server.",
        page: "docs/acknowledgement.md",
        find: min_replicas_off,
    },
    Rule {
        id: "wait-refused",
        why: "Without WAIT, locks are granted before any replica has them, so a failover loses fresh locks.",
        fix: "Give the login the right +wait.",
        page: "docs/acl.md#what-else-do-several-servers-need",
        find: wait_refused,
    },
];

/// The primaries whose own report says that they are primaries.
fn sound_primaries(facts: &Facts) -> impl Iterator<Item = &Server> {
    facts.primaries().filter(|server| server.info.is("role", "master"))
}

fn no_replica(facts: &Facts) -> Vec<Found> {
    let severity = if facts.topology == TopologyKind::Single { Note } else { Risk };
    let alone = sound_primaries(facts).filter(|server| server.info.number("connected_slaves") == Some(0));
    let found = alone.map(|server| {
        let is_cluster = server.info.is("cluster_enabled", "1");
        let stops_all = is_cluster && server.settings.is("cluster-require-full-coverage", "yes");
        let coverage = if stops_all { ", and cluster-require-full-coverage yes stops all other locks too" } else { "" };
        Found::at(severity, server, format!("connected_slaves:0{coverage}"))
    });
    found.collect()
}

/// How a replica lags behind, from its line in the primary's `INFO`. `None` if it keeps up.
fn delay(line: &str, head: Option<u64>) -> Option<String> {
    let field = |name: &str| line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let state = field("state").unwrap_or("unknown");
    if state != "online" {
        return Some(format!("state {state}"));
    }
    if let Some(lag) = number("lag").filter(|lag| *lag > MOST_SECONDS_BEHIND) {
        return Some(format!("silent for {lag} s"));
    }
    let behind = head?.saturating_sub(number("offset")?);
    (behind > MOST_BYTES_BEHIND).then(|| format!("{behind} bytes behind"))
}

fn replica_behind(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for primary in sound_primaries(facts) {
        let head = primary.info.number("master_repl_offset");
        for line in primary.info.numbered("slave") {
            if let Some(delay) = delay(line, head) {
                let field = |name: &str| line.split(',').find_map(|pair| pair.strip_prefix(name));
                let (host, port) = (field("ip=").unwrap_or("?"), field("port=").unwrap_or("?"));
                found.push(Found::at(Risk, primary, format!("replica {host}:{port}: {delay}")));
            }
        }
    }
    let cut_off = facts.servers.iter().filter(|server| server.info.is("master_link_status", "down"));
    found.extend(cut_off.map(|server| Found::at(Risk, server, "master_link_status:down")));
    found
}

fn min_replicas_unmet(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in sound_primaries(facts) {
        // INFO has the number only if the setting is not 0.
        let Some(good) = server.info.number("min_slaves_good_slaves") else { continue };
        let wanted = server.settings.number("min-replicas-to-write").unwrap_or(1);
        if good < wanted {
            let what = format!("min-replicas-to-write {wanted}, and {good} replicas keep up");
            found.push(Found::at(Breaks, server, what));
        }
    }
    found
}

fn min_replicas_off(facts: &Facts) -> Vec<Found> {
    let fails_over = matches!(facts.topology, TopologyKind::Sentinel | TopologyKind::Replicated);
    let is_off = |server: &&Server| {
        let replicas = server.info.number("connected_slaves").unwrap_or(0);
        fails_over && replicas > 0 && server.settings.is("min-replicas-to-write", "0")
    };
    sound_primaries(facts).filter(is_off).map(|server| Found::at(Note, server, "min-replicas-to-write 0")).collect()
}

fn wait_refused(facts: &Facts) -> Vec<Found> {
    let needed = facts.topology != TopologyKind::Single;
    let refused = facts.primaries().filter_map(|server| Some((server, server.wait_refused.as_deref()?)));
    refused.filter(|_| needed).map(|(server, why)| Found::at(Risk, server, why)).collect()
}

//! Checks of what a server is: reachable, a primary, new enough.

use distlock::{ServerRole, TopologyKind};

use super::Severity::{Breaks, Note, Risk};
use super::{Found, Rule};
use crate::doctor::facts::Facts;

/// The oldest Redis that locks work on.
const OLDEST: u32 = 6;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "unreachable",
        why: "Locks of an unreachable primary end with their leases, and nobody can acquire them. An unreachable \
              replica cannot take over. Without enough sentinels there is no failover.",
        fix: "Start the server, or open the network path to it. Behind NAT, the address that the server announces must \
              be reachable.",
        page: "docs/faults.md",
        find: unreachable,
    },
    Rule {
        id: "not-a-primary",
        why: "A replica refuses writes, so no lock can be acquired.",
        fix: "Name the primary in the URL. With redis-sentinel:// or redis-replicated:// the client finds the primary \
              by itself.",
        page: "docs/sentinel.md",
        find: not_a_primary,
    },
    Rule {
        id: "loading",
        why: "The server refuses all commands until it has loaded its data. Held locks may end meanwhile.",
        fix: "Wait until INFO shows loading:0.",
        page: "docs/faults.md",
        find: loading,
    },
    Rule {
        id: "cluster-by-single-url",
        why: "The server refuses locks whose slots are on other servers of its cluster, and a failover is not \
              followed.",
        fix: "Connect by redis-cluster:// in place of redis://.",
        page: "docs/clusters.md",
        find: cluster_by_single_url,
    },
    Rule {
        id: "server-too-old",
        why: "The scripts of locks need commands and rules of Redis 6.",
        fix: "Upgrade to Redis 6.2 or newer, or to Valkey.",
        page: "docs/servers.md",
        find: too_old,
    },
    Rule {
        id: "server-untested",
        why: "Locks are tested on Redis and Valkey only. Other servers differ in scripts, expiry and messages.",
        fix: "Use Redis 6.2 or newer, or Valkey. Otherwise run the tests against this server: DISTLOCK_SERVER=<path> \
              ./x test.",
        page: "docs/servers.md",
        find: untested,
    },
];

fn unreachable(facts: &Facts) -> Vec<Found> {
    let found = facts.unreachable.iter().map(|server| {
        let severity = if server.role == ServerRole::Primary { Breaks } else { Risk };
        Found::new(severity, &server.address, &server.why)
    });
    found.collect()
}

fn not_a_primary(facts: &Facts) -> Vec<Found> {
    let replicas = facts.primaries().filter(|server| server.info.is("role", "slave"));
    let found = replicas.map(|server| {
        let field = |name: &str| server.info.text(name).unwrap_or("?");
        let what = format!("a replica of {}:{}", field("master_host"), field("master_port"));
        Found::at(Breaks, server, what)
    });
    found.collect()
}

fn loading(facts: &Facts) -> Vec<Found> {
    let loading = facts.servers.iter().filter(|server| server.info.is("loading", "1"));
    let found = loading.map(|server| {
        let severity = if server.is_primary() { Breaks } else { Risk };
        let share = server.info.text("loading_loaded_perc").map(|share| format!(", {share} % done"));
        Found::at(severity, server, format!("loading:1{}", share.unwrap_or_default()))
    });
    found.collect()
}

fn cluster_by_single_url(facts: &Facts) -> Vec<Found> {
    let is_wrong = facts.topology != TopologyKind::Cluster;
    let nodes = facts.primaries().filter(|server| is_wrong && server.info.is("cluster_enabled", "1"));
    nodes.map(|server| Found::at(Breaks, server, "cluster_enabled:1")).collect()
}

fn too_old(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in &facts.servers {
        if let Some(("redis", version)) = server.version()
            && version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major < OLDEST)
        {
            found.push(Found::at(Breaks, server, format!("Redis {version}")));
        }
    }
    found
}

fn untested(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in &facts.servers {
        if let Some((fork, version)) = server.version()
            && !["redis", "valkey"].contains(&fork)
        {
            found.push(Found::at(Note, server, format!("{fork} {version}")));
        }
    }
    found
}

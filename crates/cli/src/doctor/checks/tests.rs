//! Every check, on facts that differ from sound facts in one point.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::ValueEnum as _;
use distlock::{Capabilities, ServerRole, TopologyKind};
use distlock_support::pages::anchors;

use super::Severity::{Breaks, Note, Risk};
use super::{Finding, Severity, rules, run};
use crate::doctor::facts::{
    Clock, Facts, Fields, Latency, NotChecked, Refusal, Rights, Sentinel, Server, Unreachable, Wanted,
};
use crate::doctor::needs::Kind;

const MINUTE: i64 = 60_000_000;
const NONE: [(&str, Severity); 0] = [];

fn server(address: &str, role: ServerRole) -> Server {
    let mut server = Server::new(address, role);
    server.info = Fields::of_lines(
        "redis_version:7.0.15\nrole:master\nloading:0\ncluster_enabled:0\nmaxmemory:0\nmaxmemory_policy:noeviction\n\
         used_memory:1000\naof_enabled:1\naof_last_write_status:ok\nrdb_last_bgsave_status:ok\nmaxclients:100\n\
         connected_clients:5\nconnected_slaves:1\nmaster_repl_offset:100\n\
         slave0:ip=10.0.0.2,port=6379,state=online,offset=90,lag=1",
    );
    server.settings = [
        ("save", ""),
        ("appendfsync", "everysec"),
        ("timeout", "0"),
        ("tcp-keepalive", "300"),
        ("busy-reply-threshold", "5000"),
        ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
        ("min-replicas-to-write", "1"),
    ]
    .into_iter()
    .collect();
    server.user = Some("locks".to_owned());
    server.clock = Some(Clock { offset: 2_000, error: 500 });
    server.latency = Some(Latency { p50: Duration::from_micros(200), p99: Duration::from_millis(1) });
    server.rights = Some(Rights::default());
    server
}

/// A primary with a replica, in which no check finds anything.
pub(in crate::doctor) fn sound() -> Facts {
    let latency = Duration::from_millis(50);
    let wanted = Wanted { kinds: vec![Kind::Reentrant], latency, prefix: "app:".to_owned() };
    let mut facts = Facts::new(TopologyKind::Replicated, wanted);
    facts.servers.push(server("a:1", ServerRole::Primary));
    let mut capabilities = Capabilities::default();
    capabilities.scripts = Some(true);
    capabilities.script_cache = Some(true);
    capabilities.messages = Some(true);
    capabilities.sharded_channels = Some(true);
    facts.capabilities = Some(capabilities);
    facts
}

/// The findings after one change to sound facts, as `id severity`.
fn after(change: impl FnOnce(&mut Facts)) -> Vec<(&'static str, Severity)> {
    found(change).iter().map(|finding| (finding.rule.id, finding.severity)).collect()
}

fn found(change: impl FnOnce(&mut Facts)) -> Vec<Finding> {
    let mut facts = sound();
    change(&mut facts);
    run(&facts)
}

/// The findings with this field of `INFO`.
fn with_info(name: &str, value: &str) -> Vec<(&'static str, Severity)> {
    after(|facts| facts.servers[0].info.insert(name, value))
}

fn with_setting(name: &str, value: &str) -> Vec<(&'static str, Severity)> {
    after(|facts| facts.servers[0].settings.insert(name, value))
}

fn cluster(facts: &mut Facts, lines: &str) {
    facts.topology = TopologyKind::Cluster;
    facts.servers[0].info.insert("cluster_enabled", "1");
    facts.servers[0].cluster = Fields::of_lines(lines);
}

fn deny(facts: &mut Facts, command: &'static str, refusal: Refusal) {
    if let Some(rights) = &mut facts.servers[0].rights {
        rights.commands.insert(command, refusal);
    }
}

#[test]
fn sound_servers_have_no_finding() {
    assert_eq!(after(|_| {}), NONE);
    let whole = "cluster_state:ok\ncluster_slots_assigned:16384";
    assert_eq!(after(|facts| cluster(facts, whole)), NONE);
}

#[test]
fn server_for_development_has_notes_only() {
    let found = after(|facts| {
        facts.topology = TopologyKind::Single;
        facts.servers[0].info.insert("aof_enabled", "0");
        facts.servers[0].info.insert("connected_slaves", "0");
        facts.servers[0].settings.insert("save", "3600 1 300 100 60 10000");
    });
    assert_eq!(found, [("persistence-snapshots", Note), ("no-replica", Note)]);
}

/// `CONFIG` and `INFO` are refused on some managed servers.
#[test]
fn unknown_facts_are_no_findings() {
    let found = after(|facts| {
        let bare = Server::new("a:1", ServerRole::Primary);
        facts.servers = vec![bare];
        facts.capabilities = None;
        let why = "NOPERM".to_owned();
        facts.not_checked.push(NotChecked { server: "a:1".to_owned(), what: "settings", why });
    });
    assert_eq!(found, NONE);
}

#[test]
fn faults_of_role_version_and_reachability_are_found() {
    let unreachable = |role| {
        after(|facts| {
            let (address, why) = ("b:1".to_owned(), "refused".to_owned());
            facts.unreachable.push(Unreachable { role, address, why });
        })
    };
    assert_eq!(unreachable(ServerRole::Primary), [("unreachable", Breaks)]);
    assert_eq!(unreachable(ServerRole::Replica), [("unreachable", Risk)]);
    assert_eq!(with_info("role", "slave"), [("not-a-primary", Breaks)]);
    assert_eq!(with_info("loading", "1"), [("loading", Breaks)]);
    assert_eq!(with_info("cluster_enabled", "1"), [("cluster-by-single-url", Breaks)]);
    assert_eq!(with_info("redis_version", "5.0.14"), [("server-too-old", Breaks)]);
    assert_eq!(with_info("redis_version", "6.0.0"), NONE);
    assert_eq!(with_info("valkey_version", "8.1.0"), NONE);
    assert_eq!(with_info("dragonfly_version", "df-v1.24.0"), [("server-untested", Note)]);
}

#[test]
fn faults_of_memory_are_found() {
    let limited = |policy: &str, limit: &str| {
        after(|facts| {
            facts.servers[0].info.insert("maxmemory", limit);
            facts.servers[0].info.insert("maxmemory_policy", policy);
        })
    };
    assert_eq!(limited("allkeys-lru", "1000000"), [("eviction", Breaks)]);
    assert_eq!(limited("volatile-ttl", "1000000"), [("eviction", Breaks)]);
    assert_eq!(limited("allkeys-lru", "0"), NONE);
    assert_eq!(limited("noeviction", "1111"), [("memory-nearly-full", Risk)]);
    assert_eq!(limited("noeviction", "1200"), NONE);
}

#[test]
fn faults_of_persistence_are_found() {
    assert_eq!(with_info("aof_enabled", "0"), [("persistence-off", Risk)]);
    assert_eq!(with_setting("appendfsync", "no"), [("fsync-off", Note)]);
    assert_eq!(with_info("aof_last_write_status", "err"), [("disk-writes-fail", Breaks)]);
    // Without save points, a failed snapshot stops no writes.
    assert_eq!(with_info("rdb_last_bgsave_status", "err"), NONE);
    let failed = |stops: &str| {
        after(|facts| {
            facts.servers[0].info.insert("rdb_last_bgsave_status", "err");
            facts.servers[0].settings.insert("save", "3600 1");
            facts.servers[0].settings.insert("stop-writes-on-bgsave-error", stops);
        })
    };
    assert_eq!(failed("yes"), [("disk-writes-fail", Breaks)]);
    assert_eq!(failed("no"), NONE);
}

#[test]
fn faults_of_replicas_are_found() {
    assert_eq!(with_info("connected_slaves", "0"), [("no-replica", Risk)]);
    // Servers that are in no cluster also have the setting.
    let alone = found(|facts| {
        facts.servers[0].info.insert("connected_slaves", "0");
        facts.servers[0].settings.insert("cluster-require-full-coverage", "yes");
    });
    assert_eq!(alone[0].what, "connected_slaves:0");
    let replica = |state: &str, offset: u64, lag: u64| {
        let line = format!("ip=::1,port=1,state={state},offset={offset},lag={lag}");
        after(|facts| {
            facts.servers[0].info.insert("master_repl_offset", "100000000");
            facts.servers[0].info.insert("slave0", line);
        })
    };
    assert_eq!(replica("online", 90_000_000, 10), NONE);
    assert_eq!(replica("online", 90_000_000, 11), [("replica-behind", Risk)]);
    assert_eq!(replica("online", 80_000_000, 1), [("replica-behind", Risk)]);
    assert_eq!(replica("wait_bgsave", 90_000_000, 1), [("replica-behind", Risk)]);
    assert_eq!(with_info("master_link_status", "down"), [("replica-behind", Risk)]);
    assert_eq!(with_info("min_slaves_good_slaves", "0"), [("min-replicas-unmet", Breaks)]);
    assert_eq!(with_info("min_slaves_good_slaves", "1"), NONE);
    assert_eq!(with_setting("min-replicas-to-write", "0"), [("min-replicas-off", Note)]);
    let refused = after(|facts| facts.servers[0].wait_refused = Some("NOPERM".to_owned()));
    assert_eq!(refused, [("wait-refused", Risk)]);
}

#[test]
fn faults_of_scripts_and_messages_are_found() {
    let without = |change: fn(&mut Capabilities)| after(|facts| facts.capabilities.iter_mut().for_each(change));
    assert_eq!(without(|found| found.scripts = Some(false)), [("scripts-refused", Breaks)]);
    assert_eq!(without(|found| found.script_cache = Some(false)), [("script-cache-refused", Breaks)]);
    assert_eq!(without(|found| found.messages = Some(false)), [("messages-refused", Risk)]);
    let unsharded = |found: &mut Capabilities| (found.cluster, found.sharded_channels) = (true, Some(false));
    assert_eq!(without(unsharded), [("sharded-messages-missing", Note)]);
    assert_eq!(with_setting("busy-reply-threshold", "0"), [("script-time-limit", Risk)]);
    assert_eq!(with_setting("busy-reply-threshold", "30000"), [("script-time-limit", Risk)]);
}

#[test]
fn right_of_a_wanted_kind_breaks_and_others_are_a_note() {
    let found = found(|facts| deny(facts, "hdel", Refusal::Denied));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].rule.id, found[0].severity), ("right-missing", Breaks));
    assert_eq!(found[0].fix, "ACL SETUSER locks +hdel");
    assert_eq!(after(|facts| deny(facts, "zincrby", Refusal::Denied)), [("right-missing", Note)]);
    let fair = after(|facts| {
        facts.wanted.kinds = vec![Kind::Fair];
        deny(facts, "zincrby", Refusal::Denied);
    });
    assert_eq!(fair, [("right-missing", Breaks)]);
}

#[test]
fn refused_keys_and_channels_name_the_missing_patterns() {
    let keys = found(|facts| {
        let refused = Kind::Fenced.keys().iter().copied().filter(|key| !Kind::Reentrant.keys().contains(key));
        facts.servers[0].rights = Some(Rights { keys: refused.collect(), ..Rights::default() });
    });
    assert_eq!((keys.len(), keys[0].rule.id, keys[0].severity), (1, "right-missing", Note));
    assert!(keys[0].fix.contains(" ~redisson_lock_*:{app:*}*"), "{}", keys[0].fix);
    let channels = found(|facts| {
        let refused = Kind::Plain.channel().into_iter().collect();
        facts.servers[0].rights = Some(Rights { channels: refused, ..Rights::default() });
    });
    assert_eq!((channels.len(), channels[0].rule.id, channels[0].severity), (1, "messages-refused", Note));
    let rights = "+subscribe +unsubscribe +publish &distlock_plain:{app:*}";
    assert_eq!(channels[0].fix, format!("ACL SETUSER locks {rights}"));
}

#[test]
fn command_that_the_server_does_not_have_is_no_missing_right() {
    assert_eq!(after(|facts| deny(facts, "hset", Refusal::Unknown)), [("command-disabled", Breaks)]);
    assert_eq!(after(|facts| deny(facts, "zincrby", Refusal::Unknown)), [("command-disabled", Note)]);
}

#[test]
fn faults_of_connections_are_found() {
    assert_eq!(with_setting("timeout", "300"), [("idle-timeout", Note)]);
    assert_eq!(with_setting("timeout", "10"), [("idle-timeout", Risk)]);
    assert_eq!(with_setting("tcp-keepalive", "0"), [("keepalive-off", Note)]);
    let buffer = |limits: &str| with_setting("client-output-buffer-limit", &format!("normal 0 0 0 pubsub {limits}"));
    assert_eq!(buffer("65536 0 0"), [("message-buffer-small", Risk)]);
    assert_eq!(buffer("33554432 65536 60"), [("message-buffer-small", Risk)]);
    assert_eq!(buffer("0 0 0"), NONE);
    assert_eq!(with_info("connected_clients", "90"), [("connections-nearly-used-up", Risk)]);
    assert_eq!(with_info("connected_clients", "89"), NONE);
    let slow = Latency { p50: Duration::from_millis(1), p99: Duration::from_millis(51) };
    assert_eq!(after(|facts| facts.servers[0].latency = Some(slow)), [("latency", Risk)]);
}

#[test]
fn clock_is_judged_beyond_the_error_of_the_measurement() {
    let clock = |offset, error| after(|facts| facts.servers[0].clock = Some(Clock { offset, error }));
    assert_eq!(clock(MINUTE, 1_000), [("clock-offset", Risk)]);
    assert_eq!(clock(-MINUTE, 1_000), [("clock-offset", Risk)]);
    assert_eq!(clock(MINUTE, MINUTE), NONE);
}

#[test]
fn servers_that_disagree_are_reported_once() {
    let found = after(|facts| {
        let mut replica = server("b:1", ServerRole::Replica);
        replica.clock = Some(Clock { offset: MINUTE, error: 1_000 });
        facts.servers.push(replica);
    });
    assert_eq!(found, [("clocks-differ", Risk)]);
}

#[test]
fn faults_of_a_cluster_are_found() {
    let with_state = |lines: &str| after(|facts| cluster(facts, lines));
    let open = "cluster_state:fail\ncluster_slots_assigned:16383";
    assert_eq!(with_state(open), [("slots-uncovered", Breaks)]);
    assert_eq!(with_state("cluster_state:fail\ncluster_slots_assigned:16384"), [("cluster-down", Breaks)]);
    let slow = after(|facts| {
        cluster(facts, "cluster_state:ok\ncluster_slots_assigned:16384");
        facts.servers[0].settings.insert("cluster-node-timeout", "15001");
    });
    assert_eq!(slow, [("cluster-node-timeout", Risk)]);
}

#[test]
fn faults_of_sentinels_are_found() {
    let watched = |others: &str, down_after: &str, no_quorum: Option<&str>| {
        let fields = [("num-other-sentinels", others), ("down-after-milliseconds", down_after)].into_iter().collect();
        let sentinel = Sentinel { address: "s:1".to_owned(), fields, no_quorum: no_quorum.map(str::to_owned) };
        after(|facts| {
            facts.topology = TopologyKind::Sentinel;
            facts.sentinels.push(sentinel);
        })
    };
    assert_eq!(watched("2", "15000", None), NONE);
    assert_eq!(watched("1", "5000", None), [("sentinel-count", Risk)]);
    assert_eq!(watched("2", "30000", None), [("sentinel-down-after", Risk)]);
    assert_eq!(watched("2", "5000", Some("NOQUORUM")), [("sentinel-quorum", Risk)]);
}

#[test]
fn page_for_users_lists_every_check_and_no_other() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md")).unwrap();
    let (_, table) = page.split_once("## Which findings are there?").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: Vec<&str> = rows.collect();
    let ids: Vec<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(listed, ids, "the rows of docs/doctor.md, in the order of the table of checks");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an id occurs twice");
}

#[test]
fn pages_that_checks_link_to_exist() {
    for rule in rules() {
        let (file, heading) = rule.page.split_once('#').unwrap_or((rule.page, ""));
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(heading.is_empty() || anchors(&page).contains(heading), "{file} has no heading {heading}");
    }
}

#[test]
fn every_kind_can_be_chosen_by_name() {
    for (name, kind) in [("reentrant", Kind::Reentrant), ("read-write", Kind::ReadWrite), ("write", Kind::ReadWrite)] {
        assert_eq!(Kind::from_str(name, true), Ok(kind));
    }
}

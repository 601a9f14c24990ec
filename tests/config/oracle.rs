//! Results of Redisson's own `Config.fromYAML` for the same files and variables.

use std::time::Duration;

use distlock::{Acks, Client, Options, RedissonYaml, Sharded};
use distlock_support::agent::{Configs, VERSIONS};
use serde_json::Value;

use crate::samples::Sample;
use crate::{Variables, text, variables};

/// Asserts which Redisson versions can read each file, and that they read the same as this crate, including defaults.
pub fn compare(samples: &[Sample], variables: &Variables, clients: &[Client]) {
    for (n, version) in VERSIONS.into_iter().enumerate() {
        let mut redisson = Configs::start(version, variables);
        for (Sample { name, read_by }, client) in samples.iter().zip(clients) {
            match redisson.read(&text("redisson", name)) {
                Ok(read) => {
                    assert!(read_by[n], "{version} reads {name}, against what is said of it");
                    same(&format!("{name}, {version}"), &read, client.options());
                }
                Err(why) => assert!(!read_by[n], "{version} does not read {name}: {why}"),
            }
        }
    }
}

fn ms(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().unwrap_or_else(|| panic!("{value} is no time")))
}

/// Parses `PT1.5S`. The samples and Redisson's defaults have no other form.
fn iso(value: &Value) -> Duration {
    let seconds = value.as_str().and_then(|text| text.strip_prefix("PT")?.strip_suffix('S')?.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or_else(|| panic!("{value} is no duration")))
}

fn section(read: &Value) -> (&str, &Value) {
    let found =
        read.as_object().expect("fields").iter().find(|(name, _)| name.ends_with("Config") && name.contains("Server"));
    found.map(|(name, section)| (name.as_str(), section)).expect("servers")
}

fn same(what: &str, read: &Value, options: &Options) {
    let (kind, servers) = section(read);
    let delay = &servers["retryDelay"];
    let delays = match delay["class"].as_str() {
        Some("ConstantDelay") => (iso(&delay["delay"]), iso(&delay["delay"])),
        Some("EqualJitterDelay" | "FullJitterDelay") => (iso(&delay["baseDelay"]), iso(&delay["maxDelay"])),
        _ => panic!("{what}: {delay}"),
    };
    let pings = servers["pingConnectionInterval"].as_u64();
    for (name, is) in [
        ("lockWatchdogTimeout", ms(&read["lockWatchdogTimeout"]) == options.watchdog),
        ("lockWatchdogBatchSize", read["lockWatchdogBatchSize"] == options.watchdog_batch),
        ("fairLockWaitTimeout", ms(&read["fairLockWaitTimeout"]) == options.java_fair_wait),
        ("checkLockSyncedSlaves", read["checkLockSyncedSlaves"] == (options.acks == Acks::Redisson)),
        ("slavesSyncTimeout", ms(&read["slavesSyncTimeout"]) == options.ack_timeout),
        ("useScriptCache", read["useScriptCache"] == options.script_cache),
        ("timeout", ms(&servers["timeout"]) == options.command_timeout),
        ("connectTimeout", ms(&servers["connectTimeout"]) == options.connect_timeout),
        ("subscriptionTimeout", ms(&servers["subscriptionTimeout"]) == options.subscribe_timeout),
        ("pingConnectionInterval", pings == Some(0) || pings == Some(options.ping_interval.as_millis() as u64)),
        ("retryAttempts", servers["retryAttempts"] == options.retry_attempts),
        ("retryDelay", delays == options.retry_delay),
        (
            "clientName",
            servers["clientName"].as_str().unwrap_or_default() == options.client_name
                || options.client_name.starts_with("distlock-"),
        ),
    ] {
        assert!(is, "{what}: {name} is another one: {read} {options:?}");
    }
    if let Some(interval) = servers.get("scanInterval") {
        assert_eq!(Some(ms(interval)), options.scan_interval, "{what}, {kind}");
    }
    if let Some(mode) = servers.get("shardedSubscriptionMode") {
        let ours = match options.sharded {
            Sharded::On => "ON",
            Sharded::Off => "OFF",
            _ => "AUTO",
        };
        assert_eq!(mode, ours, "{what}");
    }
}

/// Valid and malformed references, each in place of the client's name. This crate reads them as Redisson does, or
/// refuses them.
#[test]
fn variables_are_substituted_as_by_redisson_or_refused() {
    let values = variables([
        ("H", "host".to_owned()),
        ("EMPTY", String::new()),
        ("special", "a$1b\\\\c".to_owned()),
        ("a.b", "dotted".to_owned()),
        ("nested", "${H}".to_owned()),
    ]);
    let references = [
        "${H}",
        "${H:-x}",
        "x${NOPE:-d}y",
        "${NOPE:-a:b-c}",
        "${NOPE:--x}",
        "${EMPTY:-def}z",
        "${EMPTY}z",
        "$H",
        "$${H}",
        "${H",
        "${H:x}",
        "${H-x}",
        "${:-d}",
        "${x-y:-d}",
        "${NOPE:-${H}}",
        "${NOPE:-a}b}",
        "${nested}",
        "${special}",
        "${H}${H}",
        "${a.c:-d}",
        "${NOPE}",
        "${EMPTY:-}",
        "${NOPE:-}",
        "{H}",
        "#${H}",
        "${NOPE:-{}",
        "${${H}}",
    ];
    let refused = ["${NOPE}", "${EMPTY:-}", "${NOPE:-}"];
    for version in VERSIONS {
        let mut redisson = Configs::start(version, &values);
        for reference in references {
            let yaml = format!("singleServerConfig:\n  address: \"redis://a:1\"\n  clientName: \"{reference}\"\n");
            let theirs = redisson.read(&yaml).unwrap_or_else(|why| panic!("{version}, {reference}: {why}"));
            let theirs = theirs["singleServerConfig"]["clientName"].as_str().expect("a name").to_owned();
            let ours = RedissonYaml::new().variables(values.clone()).read(&yaml);
            if refused.contains(&reference) {
                assert!(ours.is_err() && theirs == reference, "{version}, {reference}: {theirs}");
                continue;
            }
            let ours = ours.unwrap_or_else(|why| panic!("{version}, {reference}: {why}"));
            let ours = format!("{:?}", ours.into_builder());
            assert!(ours.contains(&format!("client_name: {theirs:?}")), "{version}, {reference}: {theirs}, {ours}");
        }
    }
}

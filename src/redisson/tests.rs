use std::time::Duration;

use super::*;
use crate::error::Error;

fn reader() -> RedissonYaml {
    RedissonYaml::new().variables([
        ("HOST", "10.0.0.1"),
        ("PASSWORD", "secret"),
        ("NODES", "[\"redis://a:1\", \"redis://::1:2\"]"),
    ])
}

fn builder(yaml: &str) -> String {
    let read = reader().read(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
    let builder = read.into_builder();
    assert!(!format!("{builder:?}").contains("secret"));
    builder.told()
}

fn refused(reader: &RedissonYaml, yaml: &str) -> String {
    match reader.read(yaml) {
        Err(Error::Config { what }) => {
            assert!(!what.contains("secret"), "{what}");
            what
        }
        other => panic!("{yaml}: {other:?}"),
    }
}

#[test]
fn server_sections_of_all_kinds_give_urls_and_logins() {
    for (yaml, told) in [
        (
            "singleServerConfig: {address: 'redis://${HOST}:6379', password: '${PASSWORD}', database: 3}",
            "redis://10.0.0.1:6379 :secret /3",
        ),
        ("singleServerConfig: {address: 'rediss://u:secret@a:1', password: other}", "rediss://a:1 u:secret"),
        ("singleServerConfig: {address: ['redis+uds:///run/my redis.sock']}", "unix:///run/my%20redis.sock"),
        (
            "clusterServersConfig: {nodeAddresses: ${NODES}, username: u, password: secret}",
            "redis-cluster://a:1,[::1]:2 u:secret",
        ),
        ("replicatedServersConfig: {nodeAddresses: ['valkeys://a:1'], database: 2}", "rediss-replicated://a:1 /2"),
        (
            "masterSlaveServersConfig: {masterAddress: 'redis://a:1', slaveAddresses: ['redis://b:1']}",
            "redis-replicated://a:1",
        ),
        (
            "sentinelServersConfig: {sentinelAddresses: ['redis://a:1', 'redis://b:2'], masterName: 'my set', password: secret, \
             sentinelPassword: other, sentinelUsername: s}",
            "redis-sentinel://a:1,b:2/my%20set :secret s:other",
        ),
        (
            "sentinelServersConfig: {sentinelAddresses: ['redis://:other@a:1'], masterName: m}",
            "redis-sentinel://a:1/m :other",
        ),
        (
            "singleServerConfig:\nclusterServersConfig: {nodeAddresses: ['redis://a:1'], username: '', password: null}",
            "redis-cluster://a:1",
        ),
    ] {
        assert_eq!(builder(yaml), told, "{yaml}");
    }
}

#[test]
fn redisson_options_are_applied() {
    let yaml = "
lockWatchdogTimeout: 20_000
lockWatchdogBatchSize: 0x20
fairLockWaitTimeout: 60000
useScriptCache: no
checkLockSyncedSlaves: 'no'
slavesSyncTimeout: 250
clusterServersConfig:
  nodeAddresses: [redis://a:1]
  timeout: 1500
  connectTimeout: 2000
  subscriptionTimeout: 2500
  pingConnectionInterval: 0
  retryAttempts: 0
  retryDelay: !<org.redisson.config.EqualJitterDelay> {baseDelay: PT0.5S, maxDelay: PT4S}
  scanInterval: 700
  shardedSubscriptionMode: OFF
  natMap: {'10.0.0.1:6379': 'localhost:7000'}
  sslVerificationMode: NONE
  loadBalancer: !<org.redisson.connection.balancer.RoundRobinLoadBalancer> {}
codec: !<org.redisson.codec.JsonJacksonCodec> {}
";
    let read = reader().read(yaml).unwrap();
    assert!(read.left_out().is_empty());
    let options = read.builder.in_force();
    let ms = Duration::from_millis;
    assert_eq!((options.watchdog, options.watchdog_batch, options.java_fair_wait), (ms(20_000), 32, ms(60_000)));
    assert_eq!(
        (options.command_timeout, options.connect_timeout, options.subscribe_timeout),
        (ms(1_500), ms(2_000), ms(2_500))
    );
    assert_eq!(
        (options.ping_interval, options.retry_attempts, options.retry_delay),
        (ms(30_000), 0, (ms(500), ms(4_000)))
    );
    assert_eq!(
        (options.scan_interval, options.sharded, options.script_cache),
        (Some(ms(700)), crate::Sharded::Off, false)
    );
    assert_eq!((options.acks, options.ack_timeout), (crate::Acks::Off, ms(250)));
    for (delay, taken) in [
        ("retryInterval: 1500", (ms(1_500), ms(1_500))),
        ("retryDelay: !<org.redisson.config.ConstantDelay> {delay: PT2S}", (ms(2_000), ms(2_000))),
        (
            "retryDelay: !<org.redisson.config.DecorrelatedJitterDelay> {minDelay: PT1S, maxDelay: PT5S}",
            (ms(1_000), ms(5_000)),
        ),
        ("retryDelay: null", (ms(1_000), ms(2_000))),
    ] {
        let read = reader().read(&format!("singleServerConfig:\n  address: redis://a:1\n  {delay}\n")).unwrap();
        assert_eq!(read.builder.in_force().retry_delay, taken, "{delay}");
    }
}

/// A `singleServerConfig` with `line` as its third line.
fn with(line: &str) -> String {
    format!("singleServerConfig:\n  address: redis://a:1\n  {line}\n")
}

#[test]
fn unusable_options_are_refused_or_left_out_if_lenient() {
    let yaml = "singleServerConfig:
  address: rediss://a:1
  sslTruststore: file:/secret.jks
  commandMapper: !<com.example.Renamed> {}
  timeout: 20000
";
    let what = refused(&reader(), yaml);
    for part in [
        "Redisson's configuration has what cannot be taken over: line 3, column 18: singleServerConfig.sslTruststore: Java key",
        "; line 4, column 18: singleServerConfig.commandMapper: ",
        "; line 5, column 12: singleServerConfig.timeout: ",
        ". Take it out, or read leniently (RedissonYaml::lenient)",
    ] {
        assert!(what.contains(part), "{part}: {what}");
    }
    let read = reader().lenient(true).read(yaml).unwrap();
    assert_eq!(read.left_out().iter().map(|left| left.line).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(read.builder.in_force().command_timeout, Duration::from_secs(10));
    // With a TLS configuration, Java's certificates are ignored.
    let told = reader().tls(crate::Tls::new().ca_file("ca.pem")).lenient(true).read(yaml).unwrap();
    assert_eq!(told.left_out().iter().map(|left| left.line).collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn invalid_option_is_refused_also_by_lenient_reader() {
    for reader in [reader(), reader().lenient(true)] {
        let what = refused(&reader, &with("timeout: secret"));
        let place = "Redisson's configuration, line 3, column 12: singleServerConfig.timeout: a whole number";
        assert!(what.starts_with(place), "{what}");
    }
}

#[test]
fn name_prefix_and_name_mapper_require_each_other() {
    let yaml = with("nameMapper: !<com.example.Prefixed> {}");
    let read = reader().name_prefix("app:").read(&yaml).unwrap();
    assert_eq!(read.builder.in_force().name_prefix, "app:");
    assert!(refused(&reader(), &yaml).contains("RedissonYaml::name_prefix"));
    assert!(refused(&reader().name_prefix("app:"), &with("")).contains("no nameMapper"));
}

/// The reader accepts no value that connecting would refuse.
#[test]
fn reader_accepts_only_values_within_option_bounds() {
    let ten_years = crate::config::LONGEST_LEASE.as_millis();
    let shortest = crate::config::SHORTEST_WATCHDOG.as_millis();
    let (day, below) = (24 * 3_600_000, shortest - 1);
    let longest = crate::names::LONGEST / 2;
    for (root, section) in [
        (format!("lockWatchdogTimeout: {shortest}"), "retryInterval: 1"),
        (format!("lockWatchdogTimeout: {ten_years}"), "timeout: 86400000"),
        ("lockWatchdogBatchSize: 1".to_owned(), "timeout: 1"),
        ("lockWatchdogBatchSize: 5000".to_owned(), "connectTimeout: 1"),
        ("fairLockWaitTimeout: 1".to_owned(), "subscriptionTimeout: 1"),
        (format!("fairLockWaitTimeout: {ten_years}"), "pingConnectionInterval: 10"),
        ("slavesSyncTimeout: 1".to_owned(), "scanInterval: 10"),
        (format!("slavesSyncTimeout: {day}"), "retryInterval: 86400000"),
    ] {
        let mapper = "nameMapper: !<com.example.Prefixed> {}";
        let yaml = format!("clusterServersConfig:\n  nodeAddresses: [redis://a:1]\n  {section}\n{mapper}\n{root}\n");
        let read = reader().name_prefix("x".repeat(longest)).read(&yaml).unwrap();
        assert_eq!(read.into_builder().in_force().validate().map_err(|error| error.to_string()), Ok(()), "{yaml}");
        assert!(reader().name_prefix("x".repeat(longest + 1)).read(&yaml).is_err());
    }
    for wrong in [
        format!("lockWatchdogTimeout: {below}"),
        format!("lockWatchdogTimeout: {}", ten_years + 1),
        format!("fairLockWaitTimeout: {}", ten_years + 1),
    ] {
        assert!(refused(&reader(), &format!("{}{wrong}", with(""))).contains("cannot be: "));
    }
}

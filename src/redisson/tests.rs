use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::error::Error;

fn reader() -> RedissonYaml {
    RedissonYaml::new().variables([
        ("HOST", "10.0.0.1"),
        ("PASSWORD", "secret"),
        ("NODES", "[\"redis://a:1\", \"redis://b:2\"]"),
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
fn the_urls_of_all_kinds() {
    for (yaml, told) in [
        (
            "singleServerConfig: {address: 'redis://${HOST}:6379', password: '${PASSWORD}', database: 3}",
            "redis://10.0.0.1:6379 :secret /3",
        ),
        ("singleServerConfig: {address: 'rediss://u:secret@a:1', password: other}", "rediss://a:1 u:secret"),
        ("singleServerConfig: {address: 'redis+uds:///run/my redis.sock'}", "unix:///run/my%20redis.sock"),
        (
            "clusterServersConfig: {nodeAddresses: ${NODES}, username: u, password: secret}",
            "redis-cluster://a:1,b:2 u:secret",
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
        // Since Redisson 4 the root may have these options, and overrides the section.
        (
            "singleServerConfig: {address: 'redis://a:1', username: u, password: p}\npassword: secret",
            "redis://a:1 u:secret",
        ),
        (
            "singleServerConfig: {address: 'redis://:secret@a:1', password: p}\npassword: q\nusername: u",
            "redis://a:1 u:secret",
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
fn options_are_taken_over() {
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
    assert_eq!((options.scan_interval, options.sharded, options.script_cache), (ms(700), crate::Sharded::Off, false));
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
fn what_cannot_be_taken_over_is_listed_by_name() {
    let yaml = "singleServerConfig:
  address: rediss://a:1
  sslVerificationMode: NONE
  sslTruststore: file:/secret.jks
  commandMapper: !<com.example.Renamed> {}
  timeout: 20000
nonsense: 1
";
    let what = refused(&reader(), yaml);
    for part in [
        "line 3, column 24: singleServerConfig.sslVerificationMode: certificates are verified",
        "line 4, column 18: singleServerConfig.sslTruststore: Java key stores",
        "line 5, column 18: singleServerConfig.commandMapper",
        "line 6, column 12: singleServerConfig.timeout: a command's 20s are more than a third",
        "line 7, column 1: nonsense: Redisson has no such option",
    ] {
        assert!(what.contains(part), "{part}: {what}");
    }
    let read = reader().lenient(true).read(yaml).unwrap();
    let lines: Vec<_> = read.left_out().iter().map(|left| left.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7]);
    assert_eq!(read.builder.in_force().command_timeout, Duration::from_secs(10));
    // With a TLS configuration, Java's certificates are ignored.
    let told = reader().tls(crate::Tls::new().ca_file("ca.pem")).lenient(true).read(yaml).unwrap();
    assert_eq!(told.left_out().iter().map(|left| left.line).collect::<Vec<_>>(), [3, 5, 6, 7]);
    // Without TLS these options are ignored.
    let plain = yaml.replace("rediss:", "redis:").replace("nonsense: 1\n", "");
    assert_eq!(reader().lenient(true).read(&plain).unwrap().left_out().len(), 2);
    assert!(refused(&reader(), &with("lockWatchdogTimeout: 1")).contains("belongs to the root"));
}

/// Leaving out one of these would change which lock a name means, or what the lock promises. They are refused, also
/// leniently.
#[test]
fn what_locks_hang_on_is_never_left_out() {
    for (yaml, what) in [
        (
            with("nameMapper: !<com.example.Prefixed> {prefix: 'secret:'}"),
            "line 3, column 15: singleServerConfig.nameMapper",
        ),
        (format!("nameMapper: !<com.example.P> {{}}\n{}", with("")), "line 1, column 13: nameMapper"),
        (with("database: 256"), "line 3, column 13: singleServerConfig.database"),
        (format!("{}lockWatchdogTimeout: 50", with("")), "line 4, column 22: lockWatchdogTimeout: 50ms cannot be"),
        (format!("{}fairLockWaitTimeout: 0", with("")), "line 4, column 22: fairLockWaitTimeout"),
        ("clusterServersConfig:\n  nodeAddresses: [redis://a:1]\n  database: 1".to_owned(), "line 3, column 13"),
        (
            "clusterServersConfig:\n  nodeAddresses: [redis://a:1]\n  shardedSubscriptionMode: never".to_owned(),
            "line 3, column 28",
        ),
        (with("password: ${NOT_SET}"), "the variable NOT_SET is not set"),
        (with("password: \"${PASSWORD:-}\""), "an empty default"),
        (with("timeout: secret"), "line 3, column 12: singleServerConfig.timeout: a whole number"),
        (with("timeout:"), "a whole number"),
        (with("password: [secret]"), "one value is expected"),
        (with("address: redis://b:1"), "line 3, column 3: this key occurs twice"),
        (
            format!("{}clusterServersConfig: {{}}", with("")),
            "line 4, column 1: clusterServersConfig: servers are named by singleServerConfig",
        ),
        ("threads: 3".to_owned(), "no servers are named"),
        ("singleServerConfig: {}".to_owned(), "address is missing"),
        (
            "singleServerConfig: {address: 'redis://secret@a'}".to_owned(),
            "line 1, column 31: singleServerConfig.address: an address ends",
        ),
        ("singleServerConfig: []".to_owned(), "a map of options"),
        ("- 1".to_owned(), "a map of options"),
        ("clusterServersConfig: {nodeAddresses: redis://a:1}".to_owned(), "a list of addresses"),
        ("clusterServersConfig: {nodeAddresses: []}".to_owned(), "at least one"),
        ("clusterServersConfig: {nodeAddresses: [redis://a:1, rediss://b:1]}".to_owned(), "the same scheme"),
        (
            "clusterServersConfig: {nodeAddresses: ['redis://:secret@a:1', 'redis://:other@b:1']}".to_owned(),
            "the same login",
        ),
        ("sentinelServersConfig: {sentinelAddresses: [redis://a:1]}".to_owned(), "masterName is missing"),
        (with("retryDelay: !<org.redisson.config.ConstantDelay> {delay: 5}"), "such as PT1.5S"),
        (with("retryDelay: !<org.redisson.config.ConstantDelay> {wait: PT1S}"), "ConstantDelay has delay"),
    ] {
        for reader in [reader(), reader().lenient(true)] {
            let why = refused(&reader, &yaml);
            assert!(why.contains(what), "{yaml}: {why}");
        }
    }
}

#[test]
fn a_prefix_is_told_where_there_is_a_mapper_and_nowhere_else() {
    let reader = reader().name_prefix("app:");
    let read = reader.read(&with("nameMapper: !<com.example.Prefixed> {}")).unwrap();
    assert_eq!(read.builder.in_force().name_prefix, "app:");
    for yaml in [with(""), with("nameMapper: !<org.redisson.api.DefaultNameMapper> {}"), with("nameMapper: null")] {
        assert!(refused(&reader, &yaml).contains("no nameMapper"));
        assert!(RedissonYaml::new().read(&yaml).is_ok());
    }
}

#[test]
fn a_secret_put_in_place_breaks_nothing_but_the_text() {
    let reader = RedissonYaml::new().variables([("PASSWORD", "se\"cret: [\n*secret\n\t")]);
    let what = refused(&reader, "singleServerConfig:\n  password: \"${PASSWORD}\"\n  address: redis://a:1\n");
    assert!(what.contains("line 2, column 14"), "{what}");
}

#[test]
fn texts_too_long_are_refused() {
    let long = format!("{}# {}", with(""), "x".repeat(300_000));
    assert!(refused(&reader(), &long).contains("longer than 256 KiB"));
    // Would grow to 60 000 times 100 000 bytes; the reader stops long before.
    let grown = RedissonYaml::new().variables([("X", "x".repeat(100_000))]);
    assert!(refused(&grown, &format!("{}# {}", with(""), "${X}".repeat(60_000))).contains("longer than"));
}

/// Each text has the largest allowed size. All of them took 6 s, unoptimised, on a busy machine.
#[test]
fn hostile_texts_are_read_in_time() {
    let parts = [
        "${A:-", "${", "${A}", "[", "{", "- ", "? ", "'", "\"", "!", "!a ", "&a ", "*a ", "#", "# x\n", "\n", "\t",
        " ", "a", "a: ", "a:\n", "- a\n", "a b ", "|\n", ">\n", "%", "---\n", "...\n", "\r", "\u{85}", "ä", "\u{0}",
        "0", "a: b\n", "[a, b],", "{a: b},", "{}", "[]", "<<: ", "\\", "\"\\x", "'a' ",
    ];
    for part in parts {
        for before in ["", "singleServerConfig: ", "a: \"", "a: ["] {
            let text = format!("{before}{}", part.repeat(260_000 / part.len()));
            let began = std::time::Instant::now();
            let read = reader().lenient(true).read(&text);
            let took = began.elapsed();
            assert!(read.is_err() && took < Duration::from_secs(20), "{before}{part:?}: {took:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any text the reader returns a builder, or an error with a line.
    #[test]
    fn no_text_makes_it_panic(parts in proptest::collection::vec(part(), 0..40), is_lenient: bool) {
        match reader().lenient(is_lenient).read(&parts.concat()) {
            Ok(read) => drop(read.into_builder()),
            Err(Error::Config { what }) => prop_assert!(what.contains("line ") && !what.contains("secret"), "{}", what),
            Err(error) => prop_assert!(false, "{error:?}"),
        }
    }

    #[test]
    fn no_value_of_an_option_makes_it_panic(option in 0..table::OPTIONS.len(), section in 0..5_usize, value in value_text()) {
        let (name, sections, _) = table::OPTIONS[option];
        let (of, bit) = table::SECTIONS[section];
        let servers = match of {
            "singleServerConfig" => "address: redis://a:1",
            "masterSlaveServersConfig" => "masterAddress: redis://a:1",
            "sentinelServersConfig" => "masterName: m\n  sentinelAddresses: [redis://a:1]",
            _ => "nodeAddresses: [redis://a:1]",
        };
        let yaml = match sections & bit {
            0 => format!("{name}: {value}\n{of}:\n  {servers}\n"),
            _ => format!("{of}:\n  {servers}\n  {name}: {value}\n"),
        };
        match reader().lenient(true).read(&yaml) {
            Ok(read) => prop_assert!(read.into_builder().in_force().validate().is_ok()),
            Err(Error::Config { what }) => prop_assert!(what.contains("line "), "{}", what),
            Err(error) => prop_assert!(false, "{error:?}"),
        }
    }
}

fn value_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        (0_i64..100_000).prop_map(|number| number.to_string()),
        "[ -~]{0,20}",
        "\\PC{0,12}",
        Just("!<org.redisson.config.ConstantDelay> {delay: PT1S}".to_owned()),
        Just("{a: b}".to_owned()),
        Just("[redis://a:1]".to_owned()),
        Just("true".to_owned()),
    ]
}

fn part() -> impl Strategy<Value = String> {
    let known = [
        "singleServerConfig:",
        "clusterServersConfig: ",
        "\n  ",
        "\n",
        "address: redis://a:1",
        "nodeAddresses: [redis://a:1]",
        "timeout: ",
        "${HOST}",
        "${PASSWORD}",
        "${",
        "}",
        "{",
        "[",
        "]",
        ": ",
        "- ",
        "!<a.b.C> ",
        "&a ",
        "*a",
        "\t",
        "'",
        "\"",
        "# ",
        "---\n",
        "null",
        "3000",
        "retryDelay: ",
        "password: ",
        "natMap: ",
        "\u{feff}",
        "<<",
        "|\n",
        ">-\n",
        "? ",
        "%YAML 1.2\n",
        "ä",
        "\u{0}",
        "\u{85}",
    ];
    prop_oneof![4 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

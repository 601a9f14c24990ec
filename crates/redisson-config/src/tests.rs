use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Reads with these variables, and without a prefix or a TLS configuration.
fn read_with(variables: &[(&str, &str)], yaml: &str) -> Result<Config, Error> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    let value = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    Reader { variables: &value, name_prefix: None, has_tls: false }.read(yaml)
}

fn read(yaml: &str) -> Result<Config, Error> {
    read_with(&[("HOST", "10.0.0.1"), ("PASSWORD", "secret")], yaml)
}

fn refused(outcome: Result<Config, Error>) -> String {
    let what = outcome.expect_err("refused").to_string();
    assert!(!what.contains("secret"), "{what}");
    what
}

fn lines(config: &Config) -> Vec<usize> {
    config.left_out.iter().map(|option| option.line).collect()
}

/// A `singleServerConfig` with `line` as its third line.
fn with(line: &str) -> String {
    format!("singleServerConfig:\n  address: redis://a:1\n  {line}\n")
}

#[test]
fn login_is_read_from_address_root_or_section() {
    let login = |username: Option<&str>, password: Option<&str>| Login {
        username: username.map(str::to_owned),
        password: password.map(str::to_owned),
    };
    for (yaml, servers, sentinels) in [
        ("singleServerConfig: {address: 'redis://a:1', username: u, password: ''}", (Some("u"), None), (None, None)),
        // Since Redisson 4 the root may have these options, and overrides the section.
        (
            "singleServerConfig: {address: 'redis://a:1', username: u, password: p}\npassword: secret",
            (Some("u"), Some("secret")),
            (None, None),
        ),
        (
            "singleServerConfig: {address: 'redis://:secret@a:1', password: p}\npassword: q\nusername: u",
            (Some("u"), Some("secret")),
            (None, None),
        ),
        (
            "sentinelServersConfig: {sentinelAddresses: ['redis://:secret@a:1'], masterName: m, password: p, \
             sentinelUsername: s, sentinelPassword: q}",
            (None, Some("p")),
            (Some("s"), Some("secret")),
        ),
    ] {
        let config = read(yaml).unwrap();
        assert_eq!(
            (&config.login, &config.sentinel_login),
            (&login(servers.0, servers.1), &login(sentinels.0, sentinels.1))
        );
        assert!(!format!("{config:?}").contains("secret"));
    }
}

#[test]
fn unset_option_is_none_unless_default_must_be_shortened() {
    let config = read(&with("")).unwrap();
    assert_eq!((config.lock_watchdog_timeout, config.timeout, config.check_lock_synced_slaves), (None, None, None));
    // Redisson's default timeout is too long for this watchdog.
    let config = read(&format!("{}lockWatchdogTimeout: 3000", with(""))).unwrap();
    assert_eq!(config.timeout, Some(Duration::from_secs(1)));
    assert!(config.left_out.is_empty());
    // A time out of its bounds is listed once, and the default is shortened.
    let config = read(&format!("{}lockWatchdogTimeout: 3000", with("timeout: 99999999999"))).unwrap();
    assert_eq!((config.timeout, config.left_out.len()), (Some(Duration::from_secs(1)), 1));
}

#[test]
fn unusable_options_are_listed_by_name() {
    let yaml = "singleServerConfig:
  address: rediss://a:1
  sslVerificationMode: NONE
  sslTruststore: file:/secret.jks
  commandMapper: !<com.example.Renamed> {}
  timeout: 20000
nonsense: 1
";
    let config = read(yaml).unwrap();
    let left_out: Vec<_> = config.left_out.iter().map(ToString::to_string).collect();
    for (said, part) in left_out.iter().zip([
        "line 3, column 24: singleServerConfig.sslVerificationMode: certificates are verified",
        "line 4, column 18: singleServerConfig.sslTruststore: Java key stores",
        "line 5, column 18: singleServerConfig.commandMapper",
        "line 6, column 12: singleServerConfig.timeout: a command's 20s are more than a third",
        "line 7, column 1: nonsense: Redisson has no such option",
    ]) {
        assert!(said.starts_with(part), "{part}: {said}");
    }
    assert_eq!((config.left_out.len(), config.timeout), (5, Some(Duration::from_secs(10))));
    // With a TLS configuration, Java's certificates are ignored.
    let reader = Reader { variables: &|_| None, name_prefix: None, has_tls: true };
    assert_eq!(lines(&reader.read(yaml).unwrap()), [3, 5, 6, 7]);
    // Without TLS these options are ignored.
    let plain = yaml.replace("rediss:", "redis:").replace("nonsense: 1\n", "");
    assert_eq!(lines(&read(&plain).unwrap()), [5, 6]);
    let misplaced = read(&with("lockWatchdogTimeout: 1")).unwrap();
    assert!(misplaced.left_out[0].why.contains("belongs to the root"));
    let hidden = read(&format!("{}se cret: 1", with(""))).unwrap();
    assert_eq!(hidden.left_out[0].to_string(), "line 4, column 1: : Redisson has no such option");
}

/// Leaving out one of these would change which lock a name means, or what the lock promises.
#[test]
fn invalid_options_that_locks_depend_on_are_refused() {
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
        let why = refused(read(&yaml));
        assert!(why.contains(what), "{yaml}: {why}");
    }
}

#[test]
fn name_prefix_requires_name_mapper() {
    let reader = Reader { variables: &|_| None, name_prefix: Some("app:"), has_tls: false };
    assert!(reader.read(&with("nameMapper: !<com.example.Prefixed> {}")).is_ok());
    for yaml in [with(""), with("nameMapper: !<org.redisson.api.DefaultNameMapper> {}"), with("nameMapper: null")] {
        assert!(refused(reader.read(&yaml)).contains("line 1, column 1: nameMapper: the reader has a name prefix"));
        assert!(read(&yaml).is_ok());
    }
    let long = "x".repeat(2049);
    let reader = Reader { name_prefix: Some(&long), ..reader };
    let what = refused(reader.read(&with("nameMapper: !<com.example.Prefixed> {}")));
    assert!(what.contains("line 1, column 1: singleServerConfig: the name prefix is longer"), "{what}");
}

#[test]
fn error_inside_variable_value_has_line_of_variable() {
    let yaml = "singleServerConfig:\n  password: \"${PASSWORD}\"\n  address: redis://a:1\n";
    let what = refused(read_with(&[("PASSWORD", "se\"cret: [\n*secret\n\t")], yaml));
    assert!(what.contains("line 2, column 14"), "{what}");
}

#[test]
fn texts_too_long_are_refused() {
    let long = format!("{}# {}", with(""), "x".repeat(300_000));
    assert!(refused(read(&long)).contains("longer than 256 KiB"));
    // Would grow to 60 000 times 100 000 bytes; the reader stops long before.
    let yaml = format!("{}# {}", with(""), "${X}".repeat(60_000));
    assert_eq!(read_with(&[("X", &"x".repeat(100_000))], &yaml).unwrap_err(), Error::TooLong);
}

/// Each text has the largest allowed size. All of them took 6 s, unoptimised, on a busy machine.
#[test]
fn hostile_texts_are_refused_in_time() {
    let parts = [
        "${A:-", "${", "${A}", "[", "{", "- ", "? ", "'", "\"", "!", "!a ", "&a ", "*a ", "#", "# x\n", "\n", "\t",
        " ", "a", "a: ", "a:\n", "- a\n", "a b ", "|\n", ">\n", "%", "---\n", "...\n", "\r", "\u{85}", "ä", "\u{0}",
        "0", "a: b\n", "[a, b],", "{a: b},", "{}", "[]", "<<: ", "\\", "\"\\x", "'a' ",
    ];
    for part in parts {
        for before in ["", "singleServerConfig: ", "a: \"", "a: ["] {
            let text = format!("{before}{}", part.repeat(260_000 / part.len()));
            let began = std::time::Instant::now();
            let read = read(&text);
            let took = began.elapsed();
            assert!(read.is_err() && took < Duration::from_secs(20), "{before}{part:?}: {took:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any text the reader returns data, or an error with a line.
    #[test]
    fn random_texts_do_not_panic(parts in proptest::collection::vec(part(), 0..40)) {
        if let Err(error) = read(&parts.concat()) {
            let what = error.to_string();
            prop_assert!(what.contains("line ") && !what.contains("secret"), "{}", what);
        }
    }

    #[test]
    fn random_option_values_do_not_panic(
        option in 0..table::options().count(),
        section in 0..5_usize,
        value in value_text(),
    ) {
        let (name, sections, _) = table::options().nth(option).expect("in bounds");
        let section = &table::SECTIONS[section];
        let (of, addresses) = (section.name, section.servers);
        let servers = match section.kind {
            Kind::Single | Kind::MasterSlave => format!("{addresses}: redis://a:1"),
            Kind::Sentinel => format!("masterName: m\n  {addresses}: [redis://a:1]"),
            Kind::Cluster | Kind::Replicated => format!("{addresses}: [redis://a:1]"),
        };
        let yaml = match sections & section.bit {
            0 => format!("{name}: {value}\n{of}:\n  {servers}\n"),
            _ => format!("{of}:\n  {servers}\n  {name}: {value}\n"),
        };
        match read(&yaml) {
            Ok(config) => prop_assert!(!config.addresses.is_empty()),
            Err(error) => prop_assert!(error.to_string().contains("line "), "{}", error),
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

use std::time::Duration;

use super::*;
use crate::config::{Acks, Prefer, Sharded};

const TOML: &str = r#"
url = "redis-sentinel://app:secret@s1,s2:26380/locks"
database = 3
sentinel_password = "secret"
tls_ca_file = "/etc/ca.pem"
tls_client_certificate = "cert.pem"
tls_client_key = "key.pem"
watchdog = "20s"
watchdog_batch = 50
command_timeout = 1500
retry_delay = ["100ms", "1s"]
name_prefix = "app:"
prefer = "writers"
sharded = "off"
batching = false
use_fred = false
scan_interval = "5s"
acks = 2
ack_timeout = "250ms"

[address_map]
"10.0.0.1:6379" = "localhost:7000"
"#;

const YAML: &str = r#"
url: redis-sentinel://app:secret@s1,s2:26380/locks
database: "3"
sentinel_password: secret
tls_ca_file: /etc/ca.pem
tls_client_certificate: cert.pem
tls_client_key: key.pem
watchdog: 20s
watchdog_batch: 50
command_timeout: 1500
retry_delay: [100ms, 1s]
name_prefix: "app:"
prefer: writers
sharded: "off"
batching: false
use_fred: false
scan_interval: 5000
acks: {at-least: 2}
ack_timeout: 250
address_map: {"10.0.0.1:6379": "localhost:7000"}
"#;

const VARIABLES: &[(&str, &str)] = &[
    ("APP_URL", "redis-sentinel://app:secret@s1,s2:26380/locks"),
    ("APP_DATABASE", "3"),
    ("APP_SENTINEL_PASSWORD", "secret"),
    ("APP_TLS_CA_FILE", "/etc/ca.pem"),
    ("APP_TLS_CLIENT_CERTIFICATE", "cert.pem"),
    ("APP_TLS_CLIENT_KEY", "key.pem"),
    ("APP_WATCHDOG", "20s"),
    ("APP_WATCHDOG_BATCH", "50"),
    ("app_command_timeout", "1500"),
    ("APP_RETRY_DELAY", "100ms,1s"),
    ("APP_NAME_PREFIX", "app:"),
    ("APP_PREFER", "writers"),
    ("APP_SHARDED", "off"),
    ("APP_BATCHING", "false"),
    ("APP_USE_FRED", "false"),
    ("APP_SCAN_INTERVAL", "5s"),
    ("APP_ACKS", "2"),
    ("APP_ACK_TIMEOUT", "250ms"),
    ("APP_ADDRESS_MAP", "10.0.0.1:6379=localhost:7000"),
    ("APP_PASSWORD", ""),
    // Kubernetes sets these for a service `app`.
    ("APP_SERVICE_HOST", "10.0.0.1"),
    ("APP_SERVICE_PORT_REDIS", "6379"),
    ("APP_PORT", "tcp://10.0.0.1:6379"),
    ("APP_PORT_6379_TCP_ADDR", "10.0.0.1"),
    ("APPENDIX_URL", "no"),
    ("OTHER", "no"),
];

fn from(variables: &[(&str, &str)]) -> Result<Settings> {
    Settings::from_variables("APP", variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
}

fn said(options: &Options) -> String {
    format!("{options:?}")
}

#[test]
fn toml_yaml_json_and_environment_give_same_settings() {
    let toml: Settings = toml::from_str(TOML).unwrap();
    let json = serde_json::to_string(&toml::from_str::<toml::Table>(TOML).unwrap()).unwrap();
    let all =
        [toml, serde_saphyr::from_str(YAML).unwrap(), serde_json::from_str(&json).unwrap(), from(VARIABLES).unwrap()];
    for settings in all {
        let options = &settings.options;
        assert_eq!(settings.url.0, "redis-sentinel://app:secret@s1,s2:26380/locks");
        let server = &settings.server;
        assert_eq!((server.database, server.password.is_some()), (Some(3), false));
        assert_eq!(server.sentinel_password.as_ref().unwrap().0, "secret");
        let map = server.address_map.as_ref().unwrap();
        assert_eq!(map.get("10.0.0.1:6379").map(String::as_str), Some("localhost:7000"));
        let tls = settings.clone().into_builder().target.tls;
        assert_eq!(tls, Some(Tls::new().ca_file("/etc/ca.pem").client_certificate("cert.pem", "key.pem")));
        let written = Options {
            watchdog: Duration::from_secs(20),
            watchdog_batch: 50,
            command_timeout: Duration::from_millis(1500),
            retry_delay: (Duration::from_millis(100), Duration::from_secs(1)),
            name_prefix: "app:".to_owned(),
            prefer: Prefer::Writers,
            sharded: Sharded::Off,
            batching: false,
            use_fred: false,
            scan_interval: Some(Duration::from_secs(5)),
            acks: Acks::AtLeast(2),
            ack_timeout: Duration::from_millis(250),
            ..Options::default()
        };
        assert_eq!(said(options), said(&written));
        let shown = format!("{settings:?} {:?}", settings.clone().into_builder());
        assert!(!shown.contains("secret") && shown.contains("app@s1"), "{shown}");
    }
}

#[test]
fn settings_survive_serialization_without_secrets() {
    let settings: Settings = toml::from_str(TOML).unwrap();
    let written = [
        toml::to_string(&settings).unwrap(),
        serde_json::to_string(&settings).unwrap(),
        serde_saphyr::to_string(&settings).unwrap(),
    ];
    let again: [Settings; 3] = [
        toml::from_str(&written[0]).unwrap(),
        serde_json::from_str(&written[1]).unwrap(),
        serde_saphyr::from_str(&written[2]).unwrap(),
    ];
    for (text, again) in written.iter().zip(again) {
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(again.url.0, "redis-sentinel://app@s1,s2:26380/locks");
        assert_eq!(said(&again.options), said(&settings.options));
        assert_eq!(again.server.address_map, settings.server.address_map);
        assert_eq!(again.into_builder().target.tls, settings.clone().into_builder().target.tls);
    }
    let options = Options { max_reader_delay: Duration::from_micros(1_500), ..settings.options };
    let text = serde_json::to_string(&options).unwrap();
    assert_eq!(said(&serde_json::from_str(&text).unwrap()), said(&options), "{text}");
    for acks in [Acks::Off, Acks::Redisson, Acks::All, Acks::AtLeast(1)] {
        let text = toml::to_string(&Options { acks, ..Options::default() }).unwrap();
        assert_eq!(toml::from_str::<Options>(&text).unwrap().acks, acks, "{text}");
    }
    assert_eq!(said(&toml::from_str("").unwrap()), said(&Options::default()));
}

#[test]
fn password_is_removed_from_url() {
    for (url, left) in [
        ("redis://a:1", "redis://a:1"),
        ("redis://:secret@a:1/2", "redis://a:1/2"),
        ("redis-cluster://u:se@cret@a:1,b:2", "redis-cluster://u@a:1,b:2"),
        ("unix://u:secret@/run/r.sock", "unix://u@/run/r.sock"),
        ("no url, but a secret", ""),
    ] {
        assert_eq!(without_password(url), left);
    }
}

#[test]
fn settings_errors_describe_mistake_without_secrets() {
    for (toml, what) in [
        ("watchdgo = '30s'", "unknown field `watchdgo`"),
        ("watchdog = '30 parsecs'", "no time"),
        ("watchdog = 2.5", "fraction"),
        ("watchdog = -1", "no time"),
        ("watchdog = '1s'", "too short for the command timeout"),
        ("pool_size = 0", "the pool size is 0"),
        ("retry_delay = ['1s']", "two times"),
        ("retry_delay = ['1s', '2s', '3s']", "two times"),
        ("prefer = 'both'", "unknown variant"),
        ("batching = 'perhaps'", "not the kind of value"),
        ("database = 256", "out of its bounds"),
        ("acks = 'most'", "a number of replicas"),
        ("acks = 0", "use Acks::Off"),
        ("acks = -1", "a number of replicas"),
        ("tls_client_key = 'k'", "go together"),
        ("password = ['secret']", "a text"),
        ("password = 2.5", "fraction"),
        ("address_map = 'secret'", "pairs with an ="),
        ("watchdog = '20s'\nwatchdog = '30s'", "duplicate"),
    ] {
        let error = toml::from_str::<Settings>(&format!("url = 'redis://a:1'\n{toml}")).unwrap_err();
        // The TOML parser shows the user's own line. Only serde's message is this crate's.
        let error = error.message().to_owned();
        assert!(error.contains(what) && !error.contains("secret"), "{toml}: {error}");
    }
    let missing = toml::from_str::<Settings>("watchdog = '30s'").unwrap_err().to_string();
    assert!(missing.contains("the url is missing"), "{missing}");
    for (variable, value, what) in [
        ("APP_WATCHDGO", "secret", "the variable APP_WATCHDGO: unknown field"),
        ("APP_WATCHDOG", "secret", "the variable APP_WATCHDOG: no time"),
        ("APP_DATABASE", "secret", "the variable APP_DATABASE: not the kind"),
        ("APP_POOL_SIZE", "0", "APP_..: the pool size"),
    ] {
        let error = from(&[("APP_URL", "redis://a:1"), (variable, value)]).unwrap_err();
        let Error::Config { what: text } = &error else { panic!("{error:?}") };
        assert!(text.contains(what) && !text.contains("secret"), "{text}");
    }
    assert!(matches!(from(&[]), Err(Error::Config { .. })));
}

#[test]
fn from_env_reads_process_environment() {
    // Cargo sets variables with this prefix, and none of them is an option.
    let error = Settings::from_env("CARGO_PKG").unwrap_err().to_string();
    assert!(error.contains("the variable CARGO_PKG_") && error.contains("unknown field"), "{error}");
}

#[test]
fn yaml_null_means_unset_and_off_and_numeric_password_need_no_quotes() {
    let yaml =
        "url: redis://a:1\nwatchdog:\npassword: null\nretry_delay: ~\nprefer:\naddress_map:\nacks: off\nsharded: off\n";
    let settings: Settings = serde_saphyr::from_str(yaml).unwrap();
    assert!(settings.server.password.is_none() && settings.server.address_map.is_none());
    let written = Options { acks: Acks::Off, sharded: Sharded::Off, ..Options::default() };
    assert_eq!(said(&settings.options), said(&written));
    let settings: Settings = serde_saphyr::from_str("url: redis://a:1\npassword: 12345\n").unwrap();
    assert_eq!(settings.server.password.unwrap().0, "12345");
}

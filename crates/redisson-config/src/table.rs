//! All options of Redisson, and how each is handled. `docs/redisson-yaml.md` gives the reasons.

use crate::Kind;
use crate::read::Reading;
use crate::take::{self, MS, VERIFIED, Why, cannot, choice, class, lease, name, number, over_tls, time, word};
use crate::tree::Node;

/// Bits for the places where an option is allowed.
pub(crate) const ROOT: u8 = 1;
const SINGLE: u8 = 1 << 1;
const CLUSTER: u8 = 1 << 2;
const SENTINEL: u8 = 1 << 3;
const REPLICATED: u8 = 1 << 4;
const MASTER_SLAVE: u8 = 1 << 5;

const SEVERAL: u8 = CLUSTER | SENTINEL | REPLICATED | MASTER_SLAVE;
const SERVERS: u8 = SINGLE | SEVERAL;
/// For options that Redisson 4 also allows at the root.
const BOTH: u8 = ROOT | SERVERS;

/// A section that names servers.
pub(crate) struct Section {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) bit: u8,
    /// The option with the addresses of the servers.
    pub(crate) servers: &'static str,
}

pub(crate) const SECTIONS: [Section; 5] = [
    Section { kind: Kind::Single, name: "singleServerConfig", bit: SINGLE, servers: "address" },
    Section { kind: Kind::Cluster, name: "clusterServersConfig", bit: CLUSTER, servers: "nodeAddresses" },
    Section { kind: Kind::Sentinel, name: "sentinelServersConfig", bit: SENTINEL, servers: "sentinelAddresses" },
    Section { kind: Kind::Replicated, name: "replicatedServersConfig", bit: REPLICATED, servers: "nodeAddresses" },
    Section { kind: Kind::MasterSlave, name: "masterSlaveServersConfig", bit: MASTER_SLAVE, servers: "masterAddress" },
];

/// How an option is handled.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    /// This function uses the option, or refuses it.
    Take(fn(&mut Reading<'_>, &Node) -> Result<(), Why>),
    /// The option has no meaning for locks.
    Ignore,
    /// The option names certificates in a format that is not read here. The option is ignored if its value is null, if
    /// the file does not use TLS, or if the reader has a TLS configuration.
    Certificates,
}

use Fate::{Certificates, Ignore, Take};

/// Sets a field of the configuration.
macro_rules! set {
    ($($field:ident).+, $node:ident => $value:expr) => {
        Take(|to, $node| {
            to.config.$($field).+ = $value?;
            Ok(())
        })
    };
}

/// Options of Redisson 3.52 and 4.7 that locks depend on.
#[rustfmt::skip]
const USED: &[(&str, u8, Fate)] = &[
    ("lockWatchdogTimeout", ROOT, set!(lock_watchdog_timeout, node => lease(node, 100 * MS))),
    ("lockWatchdogBatchSize", ROOT, set!(lock_watchdog_batch_size, node => {
        number(node, 1..=5_000, cannot("1 to 5000 are possible here"))
    })),
    ("fairLockWaitTimeout", ROOT, set!(fair_lock_wait_timeout, node => lease(node, MS))),
    ("checkLockSyncedSlaves", ROOT, set!(check_lock_synced_slaves, node => node.truth().map(Some))),
    ("slavesSyncTimeout", ROOT, set!(slaves_sync_timeout, node => time(node, MS))),
    ("useScriptCache", ROOT, set!(use_script_cache, node => node.truth().map(Some))),

    ("username", BOTH, set!(login.username, node => word(node))),
    ("password", BOTH, set!(login.password, node => word(node))),
    ("credentialsResolver", BOTH, Take(|_, node| {
        class(node, "DefaultCredentialsResolver",
            "it names Java code, which cannot run here: give the login by other means")
    })),
    ("nameMapper", BOTH, Take(take::name_mapper)),
    ("commandMapper", BOTH, Take(|_, node| {
        class(node, "DefaultCommandMapper",
            "commands have their own names here: it names Java code, which cannot run here")
    })),
    ("sslVerificationMode", BOTH, Take(|_, node| {
        let modes = [("STRICT", true), ("CA_ONLY", false), ("NONE", false)];
        over_tls(choice(node, &modes, "STRICT, CA_ONLY or NONE is expected here")?, VERIFIED)
    })),
    ("sslProtocols", BOTH, Take(take::ssl_protocols)),
    ("sslCiphers", BOTH, Take(|_, node| over_tls(node.is_null(), "which ciphers may be used cannot be said here"))),
    ("sslTruststore", BOTH, Certificates),
    ("sslKeystore", BOTH, Certificates),
    ("sslTrustManagerFactory", BOTH, Certificates),
    ("sslKeyManagerFactory", BOTH, Certificates),

    ("timeout", SERVERS, set!(timeout, node => time(node, MS))),
    ("connectTimeout", SERVERS, set!(connect_timeout, node => time(node, MS))),
    ("subscriptionTimeout", SERVERS, set!(subscription_timeout, node => time(node, MS))),
    // In Redisson 0 means never. distlock checks the connection for messages nevertheless.
    ("pingConnectionInterval", SERVERS, set!(ping_connection_interval, node => {
        if node.integer()? == 0 { Ok(None) } else { time(node, 10 * MS) }
    })),
    ("retryAttempts", SERVERS, set!(retry_attempts, node => {
        number(node, 0..=u32::MAX.into(), "a number of attempts is expected here, 0 or more")
    })),
    ("retryInterval", SERVERS, set!(retry_delay, node => time(node, MS).map(|pause| pause.zip(pause)))),
    ("retryDelay", SERVERS, Take(take::retry_delay)),
    ("clientName", SERVERS, set!(client_name, node => {
        name(node, |name| name.bytes().all(|byte| byte.is_ascii_graphic()),
            cannot("servers refuse names with a space in them, or what is no printable ASCII"))
    })),
    ("sslEnableEndpointIdentification", SERVERS, Take(|_, node| over_tls(node.truth()?, VERIFIED))),

    ("address", SINGLE, Take(take::address)),
    ("nodeAddresses", CLUSTER | REPLICATED, Take(take::addresses)),
    ("scanInterval", CLUSTER | SENTINEL | REPLICATED, set!(scan_interval, node => time(node, 10 * MS))),
    ("natMap", CLUSTER | SENTINEL, Take(take::nat_map)),
    ("natMapper", CLUSTER | SENTINEL | REPLICATED, Take(take::nat_mapper)),
    ("shardedSubscriptionMode", CLUSTER, set!(sharded_subscription_mode, node => {
        choice(node, &[("AUTO", None), ("ON", Some(true)), ("OFF", Some(false))], "AUTO, ON or OFF is expected here")
    })),
    ("database", CLUSTER, Take(|_, node| number::<u8>(node, 0..=0, "a cluster has only database 0").map(drop))),
    ("database", SERVERS & !CLUSTER, set!(database, node => number(node, 0..=255, "0 to 255 are possible here"))),
    ("sentinelAddresses", SENTINEL, Take(take::addresses)),
    ("masterName", SENTINEL, set!(master_name, node => {
        name(node, |name| !name.is_empty() && !name.chars().any(char::is_control), "the name of a primary is expected here")
    })),
    ("sentinelUsername", SENTINEL, set!(sentinel_login.username, node => word(node))),
    ("sentinelPassword", SENTINEL, set!(sentinel_login.password, node => word(node))),
    ("masterAddress", MASTER_SLAVE, Take(take::address)),
    ("slaveAddresses", MASTER_SLAVE, Take(|_, node| take::servers(node).map(drop))),
];

/// Options without a meaning for locks, by the places where they are allowed. The second group of a place has options
/// that only versions before Redisson 3.52 have.
#[rustfmt::skip]
const IGNORED: &[(u8, &[&str])] = &[
    (ROOT, &[
        "threads", "nettyThreads", "executor", "nettyExecutor", "eventLoopGroup", "nettyHook", "transportMode", "codec",
        "referenceEnabled", "keepPubSubOrder", "minCleanUpDelay", "maxCleanUpDelay", "cleanUpKeysAmount",
        "useThreadClassLoader", "reliableTopicWatchdogTimeout", "lazyInitialization", "protocol", "valkeyCapabilities",
        "connectionListener", "addressResolverGroupFactory", "tcpKeepAlive",
    ]),
    (ROOT, &["redissonReferenceEnabled", "useLinuxNativeEpoll", "decodeInExecutor", "codecProvider", "resolverProvider"]),
    (BOTH, &[
        "sslProvider", "sslTruststorePassword", "sslKeystorePassword", "sslKeystoreType", "tcpKeepAliveCount",
        "tcpKeepAliveIdle", "tcpKeepAliveInterval", "tcpUserTimeout", "tcpNoDelay",
    ]),
    (SERVERS, &[
        "reconnectionDelay", "subscriptionsPerConnection", "subscriptionConnectionPoolSize",
        "subscriptionConnectionMinimumIdleSize", "idleConnectionTimeout", "keepAlive", "dnsMonitoringInterval",
        "dnsMonitoringTimes",
    ]),
    (SERVERS, &["pingTimeout", "reconnectionTimeout", "failedAttempts", "dnsMonitoring"]),
    (SINGLE, &["connectionPoolSize", "connectionMinimumIdleSize"]),
    (SEVERAL, &[
        "masterConnectionPoolSize", "masterConnectionMinimumIdleSize", "slaveConnectionPoolSize",
        "slaveConnectionMinimumIdleSize", "slaveSubscriptionConnectionPoolSize",
        "slaveSubscriptionConnectionMinimumIdleSize", "failedSlaveReconnectionInterval", "failedSlaveCheckInterval",
        "failedSlaveNodeDetector", "fallbackLoadingToMaster", "loadBalancer", "readMode", "subscriptionMode",
    ]),
    (CLUSTER, &["checkSlotsCoverage", "checkMasterLinkStatus"]),
    (SENTINEL, &["sentinelsDiscovery", "checkSentinelsList", "checkSlaveStatusWithSyncing"]),
    (REPLICATED, &["monitorIPChanges"]),
];

/// Every option: its name, the places where it is allowed, and how it is handled.
pub(crate) fn options() -> impl Iterator<Item = (&'static str, u8, Fate)> {
    let ignored = IGNORED.iter().flat_map(|(sections, names)| names.iter().map(|name| (*name, *sections, Ignore)));
    USED.iter().copied().chain(ignored)
}

/// How the option of this name is handled in a section. None if Redisson has no such option there.
pub(crate) fn fate(name: &str, section: u8) -> Option<Fate> {
    options().find(|(known, sections, _)| *known == name && sections & section != 0).map(|(.., fate)| fate)
}

/// Another place where an option of this name is allowed.
pub(crate) fn elsewhere(name: &str) -> Option<&'static str> {
    let (_, sections, _) = options().find(|(known, ..)| *known == name)?;
    if sections & ROOT != 0 {
        return Some("the root");
    }
    SECTIONS.iter().find(|section| sections & section.bit != 0).map(|section| section.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_listed_in_docs() {
        let docs = include_str!("../../../docs/redisson-yaml.md");
        for (name, ..) in options() {
            assert!(docs.contains(&format!("`{name}`")), "{name} is not in docs/redisson-yaml.md");
        }
    }

    #[test]
    fn option_is_listed_once_per_section() {
        for (n, (name, sections, _)) in options().enumerate() {
            let again = options().take(n).any(|(other, others, _)| other == name && others & sections != 0);
            assert!(!again, "{name}");
        }
    }
}

//! All options of Redisson, and how each is handled. `docs/redisson-yaml.md` gives the reasons.

use super::take::{self, Taken, Why};
use super::tree::Node;

/// Places where an option is allowed.
pub(super) const ROOT: u8 = 1;
pub(super) const SINGLE: u8 = 1 << 1;
pub(super) const CLUSTER: u8 = 1 << 2;
pub(super) const SENTINEL: u8 = 1 << 3;
pub(super) const REPLICATED: u8 = 1 << 4;
pub(super) const MASTER_SLAVE: u8 = 1 << 5;

const SEVERAL: u8 = CLUSTER | SENTINEL | REPLICATED | MASTER_SLAVE;
const SERVERS: u8 = SINGLE | SEVERAL;
/// Since Redisson 4 also allowed at the root.
const BOTH: u8 = ROOT | SERVERS;

pub(super) const SECTIONS: [(&str, u8); 5] = [
    ("singleServerConfig", SINGLE),
    ("clusterServersConfig", CLUSTER),
    ("sentinelServersConfig", SENTINEL),
    ("replicatedServersConfig", REPLICATED),
    ("masterSlaveServersConfig", MASTER_SLAVE),
];

/// How an option is handled.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    /// This function uses the option, or refuses it.
    Take(fn(&mut Taken, &Node) -> Result<(), Why>),
    /// The option has no meaning here, and locks are the same without it.
    Ignore,
    /// The option names certificates in a format that is not read here. Ignored if its value is null, without TLS, or
    /// if the reader has a TLS configuration.
    Certificates,
}

use Fate::{Certificates, Ignore, Take};

/// Every option of Redisson 3.52 and 4.7, and of older versions.
#[rustfmt::skip]
pub(super) const OPTIONS: &[(&str, u8, Fate)] = &[
    ("lockWatchdogTimeout", ROOT, Take(take::watchdog)),
    ("lockWatchdogBatchSize", ROOT, Take(take::watchdog_batch)),
    ("fairLockWaitTimeout", ROOT, Take(take::java_fair_wait)),
    ("checkLockSyncedSlaves", ROOT, Take(take::check_synced)),
    ("slavesSyncTimeout", ROOT, Take(take::sync_timeout)),
    ("useScriptCache", ROOT, Take(take::script_cache)),
    ("threads", ROOT, Ignore),
    ("nettyThreads", ROOT, Ignore),
    ("executor", ROOT, Ignore),
    ("nettyExecutor", ROOT, Ignore),
    ("eventLoopGroup", ROOT, Ignore),
    ("nettyHook", ROOT, Ignore),
    ("transportMode", ROOT, Ignore),
    ("codec", ROOT, Ignore),
    ("referenceEnabled", ROOT, Ignore),
    ("keepPubSubOrder", ROOT, Ignore),
    ("minCleanUpDelay", ROOT, Ignore),
    ("maxCleanUpDelay", ROOT, Ignore),
    ("cleanUpKeysAmount", ROOT, Ignore),
    ("useThreadClassLoader", ROOT, Ignore),
    ("reliableTopicWatchdogTimeout", ROOT, Ignore),
    ("lazyInitialization", ROOT, Ignore),
    ("protocol", ROOT, Ignore),
    ("valkeyCapabilities", ROOT, Ignore),
    ("connectionListener", ROOT, Ignore),
    ("addressResolverGroupFactory", ROOT, Ignore),
    ("tcpKeepAlive", ROOT, Ignore),
    // Older than 3.52.
    ("redissonReferenceEnabled", ROOT, Ignore),
    ("useLinuxNativeEpoll", ROOT, Ignore),
    ("decodeInExecutor", ROOT, Ignore),
    ("codecProvider", ROOT, Ignore),
    ("resolverProvider", ROOT, Ignore),

    ("username", BOTH, Take(take::username)),
    ("password", BOTH, Take(take::password)),
    ("credentialsResolver", BOTH, Take(take::credentials_resolver)),
    ("nameMapper", BOTH, Take(take::name_mapper)),
    ("commandMapper", BOTH, Take(take::command_mapper)),
    ("sslVerificationMode", BOTH, Take(take::ssl_verification)),
    ("sslProtocols", BOTH, Take(take::ssl_protocols)),
    ("sslProvider", BOTH, Ignore),
    ("sslTruststore", BOTH, Certificates),
    ("sslTruststorePassword", BOTH, Ignore),
    ("sslKeystore", BOTH, Certificates),
    ("sslKeystorePassword", BOTH, Ignore),
    ("sslKeystoreType", BOTH, Ignore),
    ("sslCiphers", BOTH, Take(take::ssl_ciphers)),
    ("sslTrustManagerFactory", BOTH, Certificates),
    ("sslKeyManagerFactory", BOTH, Certificates),
    ("tcpKeepAliveCount", BOTH, Ignore),
    ("tcpKeepAliveIdle", BOTH, Ignore),
    ("tcpKeepAliveInterval", BOTH, Ignore),
    ("tcpUserTimeout", BOTH, Ignore),
    ("tcpNoDelay", BOTH, Ignore),

    ("timeout", SERVERS, Take(take::timeout)),
    ("connectTimeout", SERVERS, Take(take::connect_timeout)),
    ("subscriptionTimeout", SERVERS, Take(take::subscribe_timeout)),
    ("pingConnectionInterval", SERVERS, Take(take::ping_interval)),
    ("retryAttempts", SERVERS, Take(take::retry_attempts)),
    ("retryInterval", SERVERS, Take(take::retry_interval)),
    ("retryDelay", SERVERS, Take(take::retry_delay)),
    ("clientName", SERVERS, Take(take::client_name)),
    ("sslEnableEndpointIdentification", SERVERS, Take(take::ssl_identification)),
    ("reconnectionDelay", SERVERS, Ignore),
    ("subscriptionsPerConnection", SERVERS, Ignore),
    ("subscriptionConnectionPoolSize", SERVERS, Ignore),
    ("subscriptionConnectionMinimumIdleSize", SERVERS, Ignore),
    ("idleConnectionTimeout", SERVERS, Ignore),
    ("keepAlive", SERVERS, Ignore),
    ("dnsMonitoringInterval", SERVERS, Ignore),
    ("dnsMonitoringTimes", SERVERS, Ignore),
    // Older than 3.52.
    ("pingTimeout", SERVERS, Ignore),
    ("reconnectionTimeout", SERVERS, Ignore),
    ("failedAttempts", SERVERS, Ignore),
    ("dnsMonitoring", SERVERS, Ignore),

    ("address", SINGLE, Take(take::address)),
    ("connectionPoolSize", SINGLE, Ignore),
    ("connectionMinimumIdleSize", SINGLE, Ignore),

    ("masterConnectionPoolSize", SEVERAL, Ignore),
    ("masterConnectionMinimumIdleSize", SEVERAL, Ignore),
    ("slaveConnectionPoolSize", SEVERAL, Ignore),
    ("slaveConnectionMinimumIdleSize", SEVERAL, Ignore),
    ("slaveSubscriptionConnectionPoolSize", SEVERAL, Ignore),
    ("slaveSubscriptionConnectionMinimumIdleSize", SEVERAL, Ignore),
    ("failedSlaveReconnectionInterval", SEVERAL, Ignore),
    ("failedSlaveCheckInterval", SEVERAL, Ignore),
    ("failedSlaveNodeDetector", SEVERAL, Ignore),
    ("fallbackLoadingToMaster", SEVERAL, Ignore),
    ("loadBalancer", SEVERAL, Ignore),
    ("readMode", SEVERAL, Ignore),
    ("subscriptionMode", SEVERAL, Ignore),

    ("nodeAddresses", CLUSTER | REPLICATED, Take(take::addresses)),
    ("scanInterval", CLUSTER | SENTINEL | REPLICATED, Take(take::scan_interval)),
    ("natMap", CLUSTER | SENTINEL, Take(take::nat_map)),
    ("natMapper", CLUSTER | SENTINEL | REPLICATED, Take(take::nat_mapper)),
    ("shardedSubscriptionMode", CLUSTER, Take(take::sharded)),
    ("database", CLUSTER, Take(take::database_of_cluster)),
    ("checkSlotsCoverage", CLUSTER, Ignore),
    ("checkMasterLinkStatus", CLUSTER, Ignore),

    ("database", SINGLE | SENTINEL | REPLICATED | MASTER_SLAVE, Take(take::database)),

    ("sentinelAddresses", SENTINEL, Take(take::addresses)),
    ("masterName", SENTINEL, Take(take::master_name)),
    ("sentinelUsername", SENTINEL, Take(take::sentinel_username)),
    ("sentinelPassword", SENTINEL, Take(take::sentinel_password)),
    ("sentinelsDiscovery", SENTINEL, Ignore),
    ("checkSentinelsList", SENTINEL, Ignore),
    ("checkSlaveStatusWithSyncing", SENTINEL, Ignore),

    ("monitorIPChanges", REPLICATED, Ignore),

    ("masterAddress", MASTER_SLAVE, Take(take::address)),
    ("slaveAddresses", MASTER_SLAVE, Take(take::replica_addresses)),
];

/// How the option of this name is handled in a section. None if Redisson has no such option there.
pub(super) fn fate(name: &str, section: u8) -> Option<Fate> {
    OPTIONS.iter().find(|(known, sections, _)| *known == name && sections & section != 0).map(|(.., fate)| *fate)
}

/// Another place where an option of this name is allowed.
pub(super) fn elsewhere(name: &str) -> Option<&'static str> {
    let (_, sections, _) = OPTIONS.iter().find(|(known, ..)| *known == name)?;
    if sections & ROOT != 0 {
        return Some("the root");
    }
    SECTIONS.iter().find(|(_, section)| sections & section != 0).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_explained_in_the_docs() {
        let docs = include_str!("../../docs/redisson-yaml.md");
        for (name, ..) in OPTIONS {
            assert!(docs.contains(&format!("`{name}`")), "{name} is not in docs/redisson-yaml.md");
        }
    }

    #[test]
    fn no_option_stands_twice_for_the_same_section() {
        for (n, (name, sections, _)) in OPTIONS.iter().enumerate() {
            let again = OPTIONS[..n].iter().any(|(other, others, _)| other == name && others & sections != 0);
            assert!(!again, "{name}");
        }
    }
}

#![doc = include_str!("../README.md")]
//!
//! # How a text is read
//!
//! ```text
//! text ─ variables ─► text ─ tree ─► nodes with places ─ read ─► Config
//!        ${NAME:-x}                        table: how each option is handled; take, address, value
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod address;
mod read;
mod table;
mod take;
mod tree;
mod value;
mod variables;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Reader of a file's text.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// Returns the value of a variable, or `None` if the variable is not set.
    pub variables: &'a dyn Fn(&str) -> Option<String>,
    /// Prefix that the file's `nameMapper` adds to every name, if the caller knows it. A file with a mapper is refused
    /// without a prefix, and a file without a mapper is refused with a prefix.
    pub name_prefix: Option<&'a str>,
    /// True if the caller has a TLS configuration. Options for Java's certificates are then ignored.
    pub has_tls: bool,
}

impl Reader<'_> {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// [`Error`] if the text is not valid, or if an unusable option would change what a lock means.
    pub fn read(&self, text: &str) -> Result<Config, Error> {
        read::read(text, *self)
    }
}

/// Contents of a file. `None` means that the file does not set the option.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// Kind of the servers.
    pub kind: Kind,
    /// Servers or sentinels, each as `host:port`, with brackets around an IPv6 address. [`Kind::Single`] may have the
    /// absolute path of a unix socket instead. Never empty.
    pub addresses: Vec<String>,
    /// True if all connections use TLS.
    pub is_tls: bool,
    /// Login for the servers.
    pub login: Login,
    /// Login for the sentinels.
    pub sentinel_login: Login,
    /// Name by which the sentinels know the primary. Set for [`Kind::Sentinel`].
    pub master_name: Option<String>,
    /// Number of the database.
    pub database: Option<u8>,
    /// Addresses that servers report, and the addresses to use instead; all as `host:port`.
    pub nat_map: HashMap<String, String>,
    /// `lockWatchdogTimeout`: 100 ms to ten years.
    pub lock_watchdog_timeout: Option<Duration>,
    /// `lockWatchdogBatchSize`: 1 to 5000.
    pub lock_watchdog_batch_size: Option<usize>,
    /// `fairLockWaitTimeout`: 1 ms to ten years.
    pub fair_lock_wait_timeout: Option<Duration>,
    /// `checkLockSyncedSlaves`.
    pub check_lock_synced_slaves: Option<bool>,
    /// `slavesSyncTimeout`: 1 ms to a day.
    pub slaves_sync_timeout: Option<Duration>,
    /// `useScriptCache`.
    pub use_script_cache: Option<bool>,
    /// `timeout` of a command: 1 ms to a third of the watchdog timeout. A longer timeout is shortened to that third. If
    /// the file sets no timeout, Redisson's default of 3 s is shortened in the same way.
    pub timeout: Option<Duration>,
    /// `connectTimeout`: 1 ms to a day.
    pub connect_timeout: Option<Duration>,
    /// `subscriptionTimeout`: 1 ms to a day.
    pub subscription_timeout: Option<Duration>,
    /// `pingConnectionInterval`: 10 ms to a day. `None` also for 0, which means "never" in Redisson.
    pub ping_connection_interval: Option<Duration>,
    /// `retryAttempts`.
    pub retry_attempts: Option<u32>,
    /// `retryDelay` or `retryInterval`: shortest and longest pause, 1 ms to a day.
    pub retry_delay: Option<(Duration, Duration)>,
    /// `scanInterval`: 10 ms to a day.
    pub scan_interval: Option<Duration>,
    /// `shardedSubscriptionMode`: true for `ON`, false for `OFF`, `None` for `AUTO`.
    pub sharded_subscription_mode: Option<bool>,
    /// `clientName`: printable ASCII without spaces.
    pub client_name: Option<String>,
    /// Options that cannot be used, in the order of the file.
    pub left_out: Vec<LeftOut>,
}

/// Kind of servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// `singleServerConfig`.
    #[default]
    Single,
    /// `clusterServersConfig`.
    Cluster,
    /// `sentinelServersConfig`.
    Sentinel,
    /// `replicatedServersConfig`.
    Replicated,
    /// `masterSlaveServersConfig`. Only the address of the primary is kept.
    MasterSlave,
}

/// User name and password. `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
}

impl Login {
    fn or(self, other: Self) -> Self {
        Self { username: self.username.or(other.username), password: self.password.or(other.password) }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A Redisson option that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Full name of the option, such as `singleServerConfig.sslTruststore`.
    pub path: String,
    /// Line of the option or its value, from 1.
    pub line: usize,
    /// Column of the option or its value, from 1.
    pub column: usize,
    /// Why, and what to do instead.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, column, why } = self;
        write!(f, "line {line}, column {column}: {path}: {why}")
    }
}

/// Reason to refuse a file. Never repeats a value of the file or of a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is too long, before or after its variables are replaced.
    #[error("Redisson's configuration is longer than {} KiB", tree::LONGEST / 1024)]
    TooLong,
    /// The text is wrong at one place.
    #[error("Redisson's configuration, line {line}, column {column}: {what}")]
    At {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The reason, after the full name of the option if it concerns one.
        what: String,
    },
}

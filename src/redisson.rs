//! Creates a builder from Redisson's YAML, which `distlock-redisson-config` reads (feature `redisson-yaml`).

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

pub use distlock_redisson_config::LeftOut;
use distlock_redisson_config::{Config, Kind, Reader};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::client::{Builder, Client};
use crate::config::{Acks, Options, Secret, Sharded, Tls};
use crate::error::{Error, Result};

/// Characters that are percent-encoded in a URL: in the path of a Unix socket, and in the primary's name for sentinels.
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#').add(b'@');
const NAME: &AsciiSet = &PATH.add(b'/').add(b',').add(b':');

/// Reader of Redisson's YAML configuration. It accepts what `Config.fromYAML` of Redisson 3.52 and 4.x accepts, and
/// older spellings.
///
/// - Servers, logins, timeouts and options that affect locks are used. Options without a meaning here, such as
///   threads and codecs, are ignored.
/// - If any option cannot be used, reading fails with an error that lists all such options by name and line. With
///   [`lenient`](Self::lenient) these options are left out instead, and [`RedissonConfig::left_out`] lists them.
/// - Options that decide which lock a name means, or how safe the lock is, are never left out. So this client and the
///   Java processes that use the same file exclude each other.
///
/// [`guide::redisson_yaml`](crate::guide::redisson_yaml) describes each option.
///
/// # Examples
///
/// ```
/// use distlock::RedissonYaml;
///
/// let yaml = "
/// singleServerConfig:
///   address: \"redis://${REDIS_HOST:-localhost}:6379\"
///   timeout: 2000
///   nameMapper: !<com.example.Prefixed> {}
/// codec: !<org.redisson.codec.JsonJacksonCodec> {}
/// lockWatchdogTimeout: 20000
/// ";
/// let builder = RedissonYaml::new().name_prefix("app:").read(yaml)?.into_builder();
/// # Ok::<(), distlock::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct RedissonYaml {
    lenient: bool,
    name_prefix: Option<String>,
    tls: Option<Tls>,
    variables: Option<HashMap<String, String>>,
}

impl RedissonYaml {
    /// Returns a strict reader that uses the environment variables of this process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out options that cannot be used, unless that would change the meaning of a lock.
    /// [`RedissonConfig::left_out`] lists the options that were left out, and a warning is logged for each. Wrong
    /// values are still errors. Defaults to false.
    #[must_use]
    pub fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// Sets the prefix that the file's `nameMapper` adds to every name. The mapper is Java code, which cannot be read
    /// here, so a file with a mapper is refused without this call. A file without a mapper is refused *with* this
    /// call, because Java would add no prefix.
    #[must_use]
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.name_prefix = Some(prefix.into());
        self
    }

    /// Sets the TLS configuration. It replaces the file's `sslTruststore`, `sslKeystore` and other options for Java's
    /// certificates, which this crate cannot read. Use PEM files: `openssl pkcs12` or `keytool -exportcert -rfc` can
    /// write them.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Replaces `${NAME}` by these values, instead of by this process's environment variables. Redisson also reads
    /// Java's system properties.
    #[must_use]
    pub fn variables<K: Into<String>, V: Into<String>>(mut self, variables: impl IntoIterator<Item = (K, V)>) -> Self {
        self.variables = Some(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect());
        self
    }

    /// Reads the text of a file.
    ///
    /// # Cost
    ///
    /// None: nothing is connected.
    ///
    /// # Errors
    ///
    /// [`Error::Config`](crate::Error::Config) with the line and the column, and never with a value of the file:
    ///
    /// - the text is no YAML, or larger than 256 KiB;
    /// - a key is duplicate or unknown, or a value has the wrong type;
    /// - a variable is not set;
    /// - the file names no servers, or servers of two kinds;
    /// - an option cannot be used.
    pub fn read(&self, text: &str) -> Result<RedissonConfig> {
        let set = |name: &str| match &self.variables {
            Some(variables) => variables.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        let reader = Reader { variables: &set, name_prefix: self.name_prefix.as_deref(), has_tls: self.tls.is_some() };
        let mut config = reader.read(text).map_err(|error| Error::config(error.to_string()))?;
        let left_out = std::mem::take(&mut config.left_out);
        let builder = self.builder(config);
        if !left_out.is_empty() && !self.lenient {
            let all = left_out.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(Error::config(format!(
                "Redisson's configuration has what cannot be taken over: {all}. Take it out, or read leniently (RedissonYaml::lenient) to go \
                 on without it"
            )));
        }
        for LeftOut { path, line, why, .. } in &left_out {
            tracing::warn!(option = %path, line, why = %why, "an option of Redisson's configuration was not taken over");
        }
        Ok(RedissonConfig { builder, left_out })
    }

    fn builder(&self, config: Config) -> Builder {
        let url = url(&config);
        let mut options = Options { scan_interval: config.scan_interval, ..Options::default() };
        macro_rules! set {
            ($($option:ident: $value:expr,)*) => {
                $(if let Some(value) = $value {
                    options.$option = value;
                })*
            };
        }
        set! {
            watchdog: config.lock_watchdog_timeout,
            watchdog_batch: config.lock_watchdog_batch_size,
            java_fair_wait: config.fair_lock_wait_timeout,
            acks: config.check_lock_synced_slaves.map(|is_on| if is_on { Acks::Redisson } else { Acks::Off }),
            ack_timeout: config.slaves_sync_timeout,
            script_cache: config.use_script_cache,
            command_timeout: config.timeout,
            connect_timeout: config.connect_timeout,
            subscribe_timeout: config.subscription_timeout,
            ping_interval: config.ping_connection_interval,
            retry_attempts: config.retry_attempts,
            retry_delay: config.retry_delay,
            sharded: config.sharded_subscription_mode.map(|is_on| if is_on { Sharded::On } else { Sharded::Off }),
            client_name: config.client_name,
            name_prefix: self.name_prefix.clone(),
        }
        let mut builder = Client::builder(&url).options(options).address_map(config.nat_map);
        builder.target.database = config.database;
        builder.target.username = config.login.username.map(Secret);
        builder.target.password = config.login.password.map(Secret);
        builder.target.tls = self.tls.clone();
        builder.sentinel_login.username = config.sentinel_login.username.map(Secret);
        builder.sentinel_login.password = config.sentinel_login.password.map(Secret);
        builder
    }
}

/// The URL without a login or a database.
fn url(config: &Config) -> String {
    let (hosts, secure) = (config.addresses.join(","), if config.is_tls { "s" } else { "" });
    let name = utf8_percent_encode(config.master_name.as_deref().unwrap_or_default(), NAME);
    match config.kind {
        Kind::Single if hosts.starts_with('/') => format!("unix://{}", utf8_percent_encode(&hosts, PATH)),
        Kind::Single => format!("redis{secure}://{hosts}"),
        Kind::Cluster => format!("redis{secure}-cluster://{hosts}"),
        Kind::Sentinel => format!("redis{secure}-sentinel://{hosts}/{name}"),
        // `masterSlaveServersConfig` uses this URL too, with the primary only. With this URL replicas acknowledge
        // acquires, as in Redisson; with `redis://` they do not.
        Kind::Replicated | Kind::MasterSlave => format!("redis{secure}-replicated://{hosts}"),
    }
}

impl fmt::Debug for RedissonYaml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Variables are often secrets.
        let Self { lenient, name_prefix, tls, variables: _ } = self;
        f.debug_struct("RedissonYaml")
            .field("lenient", lenient)
            .field("name_prefix", name_prefix)
            .field("tls", tls)
            .finish_non_exhaustive()
    }
}

/// Result of reading Redisson's configuration.
#[derive(Clone, Debug)]
pub struct RedissonConfig {
    builder: Builder,
    left_out: Vec<LeftOut>,
}

impl RedissonConfig {
    /// Returns a builder, to set more options and to connect.
    pub fn into_builder(self) -> Builder {
        self.builder
    }

    /// Returns the options that were left out, in the order of the file. Empty unless the reader is lenient.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

impl Client {
    /// Connects with Redisson's YAML configuration, read strictly. [`RedissonYaml`] has more options. (Feature
    /// `redisson-yaml`.)
    ///
    /// # Cost
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// The errors of [`RedissonYaml::read`] and of [`connect`](Self::connect).
    pub async fn from_redisson_yaml(text: &str) -> Result<Self> {
        RedissonYaml::new().read(text)?.into_builder().connect().await
    }
}

//! Redisson's YAML configuration (feature `config`).
//!
//! ```text
//! text ─ variables ─► text ─ tree ─► nodes with places ─ read ─► Builder
//!        ${NAME:-x}                        table: what becomes of each option; take: how; address, value
//! ```

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

use crate::client::{Builder, Client};
use crate::config::Tls;
use crate::error::Result;

/// Reader of Redisson's YAML configuration. It accepts what `Config.fromYAML` of Redisson 3.52 and 4.x accepts, and
/// older spellings.
///
/// - Servers, logins, timeouts and options that affect locks are used. Options without a meaning here, such as
///   threads and codecs, are ignored.
/// - Options that cannot be used are an error that lists them all by name and line. With [`lenient`](Self::lenient)
///   they are left out instead, and listed next to the builder.
/// - Options that decide which lock a name means, or how safe the lock is, are never left out. So the client excludes
///   the Java processes that use the same file.
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
/// # drop(builder);
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

    /// Leaves out options that cannot be used, if no lock changes its meaning by that. [`RedissonConfig::left_out`]
    /// lists them, and each is logged as a warning. Wrong values stay errors. Defaults to false.
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

    /// Replaces `${NAME}` by these values instead of this process's environment. Redisson also reads Java's system
    /// properties.
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
        let config = read::read(text, self, &set)?;
        for LeftOut { path, line, why, .. } in &config.left_out {
            tracing::warn!(option = %path, line, why = %why, "an option of Redisson's configuration was not taken over");
        }
        Ok(config)
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

/// An option of Redisson's that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Full name of the option, such as `singleServerConfig.sslTruststore`.
    pub path: String,
    /// Line of its value, from 1.
    pub line: usize,
    /// Column of its value, from 1.
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

impl Client {
    /// Connects with Redisson's YAML configuration, read strictly. [`RedissonYaml`] has more options. (Feature
    /// `config`.)
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
        Builder::from_redisson_yaml(text)?.connect().await
    }
}

impl Builder {
    /// Returns a builder with Redisson's YAML configuration, read strictly. [`RedissonYaml`] has more options.
    /// (Feature `config`.)
    ///
    /// # Errors
    ///
    /// The errors of [`RedissonYaml::read`].
    pub fn from_redisson_yaml(text: &str) -> Result<Self> {
        Ok(RedissonYaml::new().read(text)?.into_builder())
    }
}

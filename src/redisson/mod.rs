//! Redisson's own configuration, as it stands in YAML (feature `config`).
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

/// Reads Redisson's configuration in YAML: what `Config.fromYAML` of Redisson 3.52 and 4.x reads, and spellings of before.
///
/// Servers, logins, timeouts and what locks hang on are taken over; what means nothing here, threads and codecs say, is left alone. What
/// cannot be taken over is an error that lists all of it by name, with the lines; or, [leniently](Self::lenient), a list beside the
/// builder. Without what decides which lock a name is, or how safe it is, nothing is read, leniently neither: so a client that comes of it
/// excludes the Java processes with the same file. [`guide::redisson_yaml`](crate::guide::redisson_yaml) goes through all options.
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
    /// A strict reader, with the variables of this process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Go on without what cannot be taken over and makes no other lock of any: [`RedissonConfig::left_out`] lists it, and each is a
    /// warning in the log. What is wrong is an error all the same. Defaults to false.
    #[must_use]
    pub fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// What the `nameMapper` of the file puts before every name. It is Java code, which cannot be read here: without this a file that
    /// has one is refused. To be told only where there is one; a file without is refused then, as Java would put nothing there.
    #[must_use]
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.name_prefix = Some(prefix.into());
        self
    }

    /// How TLS is spoken, instead of the file's `sslTruststore`, `sslKeystore` and what else names Java's certificates, which is not
    /// read here; with this it is left alone. Certificates in PEM: `openssl pkcs12`, or `keytool -exportcert -rfc`, write such.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Put these in place of `${NAME}`, and nothing of this process's environment. Redisson knows Java's system properties beside that.
    #[must_use]
    pub fn variables<K: Into<String>, V: Into<String>>(mut self, variables: impl IntoIterator<Item = (K, V)>) -> Self {
        self.variables = Some(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect());
        self
    }

    /// Reads the text of a file.
    ///
    /// *Cost*: none; nothing is connected to. *Errors*: [`Error::Config`](crate::Error::Config), which says the line and the column, and
    /// never what stands there: no YAML, a key that stands twice or is unknown, a value of the wrong type, a variable that is not set, no
    /// servers or those of two kinds, an option that cannot be taken over; also a text above 256 KiB.
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
        // Variables are secrets, often.
        let Self { lenient, name_prefix, tls, variables: _ } = self;
        f.debug_struct("RedissonYaml")
            .field("lenient", lenient)
            .field("name_prefix", name_prefix)
            .field("tls", tls)
            .finish_non_exhaustive()
    }
}

/// What was read of Redisson's configuration.
#[derive(Clone, Debug)]
pub struct RedissonConfig {
    builder: Builder,
    left_out: Vec<LeftOut>,
}

impl RedissonConfig {
    /// The options, to set more of, and to connect.
    pub fn into_builder(self) -> Builder {
        self.builder
    }

    /// What could not be taken over, in the order of the file. Empty unless read leniently.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

/// An option of Redisson's that was not taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its full name: `singleServerConfig.sslTruststore`.
    pub path: String,
    /// The line of its value, from 1.
    pub line: usize,
    /// The column of its value, from 1.
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
    /// Connects as Redisson's configuration says, read strictly. More by [`RedissonYaml`]. (Feature `config`.)
    ///
    /// *Cost*, *Cancel safety*: as [`connect`](Self::connect). *Errors*: those of [`RedissonYaml::read`], and of
    /// [`connect`](Self::connect).
    pub async fn from_redisson_yaml(text: &str) -> Result<Self> {
        Builder::from_redisson_yaml(text)?.connect().await
    }
}

impl Builder {
    /// Options as Redisson's configuration says, read strictly. More by [`RedissonYaml`]. (Feature `config`.)
    ///
    /// *Errors*: those of [`RedissonYaml::read`].
    pub fn from_redisson_yaml(text: &str) -> Result<Self> {
        Ok(RedissonYaml::new().read(text)?.into_builder())
    }
}

//! Settings of a client in files and the environment (feature `serde`).

mod raw;
#[cfg(test)]
mod tests;
mod value;
mod variable;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;

use serde::de::value::{Error as ValueError, MapDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::client::{Builder, Client};
use crate::config::{Options, Secret, Tls};
use crate::error::{Error, Result};
use variable::Variable;

/// All settings of a client: its servers, login and [`Options`]. Read from TOML, YAML, JSON or any other format of
/// serde, or from the [environment](Self::from_env).
///
/// All fields are on one level, with the names of the methods of [`Builder`]:
///
/// - `url`, which is required;
/// - `username`, `password`, `database`, `sentinel_username`, `sentinel_password`;
/// - `address_map` (a map), `direct`;
/// - for [`Tls`]: `tls_ca_file`, `tls_client_certificate`, `tls_client_key`, `tls_server_name`;
/// - every field of [`Options`].
///
/// Times are `"30s"`, `"250ms"`, `"1m 30s"`, or a number of milliseconds. Unknown names and values out of the bounds
/// of [`Options`] are refused. [`guide::configuration`](crate::guide::configuration) has examples.
///
/// Settings that serde writes have no passwords, also not in the URL.
///
/// # Examples
///
/// ```
/// use distlock::Settings;
///
/// let json = r#"{"url": "redis://app:secret@localhost:6379/2", "watchdog": "20s", "command_timeout": 1500, "prefer": "writers"}"#;
/// let settings: Settings = serde_json::from_str(json).unwrap();
/// assert_eq!(settings.options().command_timeout.as_millis(), 1500);
/// assert!(!format!("{settings:?}").contains("secret"));
/// let builder = settings.into_builder(); // .connect().await
/// # drop(builder);
/// ```
#[derive(Clone)]
pub struct Settings {
    url: Secret,
    username: Option<String>,
    password: Option<Secret>,
    database: Option<u8>,
    sentinel_username: Option<String>,
    sentinel_password: Option<Secret>,
    tls: Option<Tls>,
    address_map: HashMap<String, String>,
    direct: bool,
    options: Options,
}

impl Settings {
    /// Reads the variables whose names start with this prefix and `_`, in upper or lower case. With the prefix
    /// `DISTLOCK`: `DISTLOCK_URL`, `DISTLOCK_WATCHDOG=30s`, `DISTLOCK_RETRY_DELAY=100ms,1s`,
    /// `DISTLOCK_ADDRESS_MAP=10.0.0.1:6379=localhost:7000,..`.
    ///
    /// An empty variable counts as not set. An unknown variable with the prefix is refused, except the ones that
    /// Kubernetes sets for a service of that name (`DISTLOCK_SERVICE_HOST`, `DISTLOCK_PORT_6379_TCP`, ..).
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the name of the variable and never with its value.
    pub fn from_env(prefix: &str) -> Result<Self> {
        Self::from_variables(prefix, std::env::vars_os())
    }

    fn from_variables(prefix: &str, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self> {
        let prefix = format!("{prefix}_").to_ascii_lowercase();
        let mut named: Vec<(String, Variable)> = Vec::new();
        for (variable, value) in variables {
            let Some(variable) = variable.to_str() else { continue };
            let lower = variable.to_ascii_lowercase();
            let Some(name) = lower.strip_prefix(&prefix).filter(|name| !is_of_kubernetes(name)) else { continue };
            let value = value.into_string();
            let value = value.map_err(|_| Error::config(format!("the variable {variable} is no text of UTF-8")))?;
            if value.is_empty() {
                continue;
            }
            // One variable at a time, so that an error can name it.
            let alone =
                MapDeserializer::<_, ValueError>::new(std::iter::once((name.to_owned(), Variable(value.clone()))));
            raw::check(alone).map_err(|error| Error::config(format!("the variable {variable}: {error}")))?;
            named.push((name.to_owned(), Variable(value)));
        }
        Self::deserialize(MapDeserializer::<_, ValueError>::new(named.into_iter()))
            .map_err(|error| Error::config(format!("the variables {}..: {error}", prefix.to_ascii_uppercase())))
    }

    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Returns a builder with these settings, to set more and to connect.
    pub fn into_builder(self) -> Builder {
        let mut builder =
            Client::builder(&self.url.0).options(self.options).address_map(self.address_map).direct(self.direct);
        if let Some(username) = self.username {
            builder = builder.username(username);
        }
        if let Some(password) = self.password {
            builder = builder.password(password.0);
        }
        if let Some(tls) = self.tls {
            builder = builder.tls(tls);
        }
        if let Some(database) = self.database {
            builder = builder.database(database);
        }
        if let Some(username) = self.sentinel_username {
            builder = builder.sentinel_username(username);
        }
        if let Some(password) = self.sentinel_password {
            builder = builder.sentinel_password(password.0);
        }
        builder
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, username, database, sentinel_username, tls, address_map, direct, options, .. } = self;
        f.debug_struct("Settings")
            .field("url", &without_password(&url.0))
            .field("username", username)
            .field("database", database)
            .field("sentinel_username", sentinel_username)
            .field("tls", tls)
            .field("address_map", address_map)
            .field("direct", direct)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        raw::RawSettings::of(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        raw::RawSettings::deserialize(deserializer)?.read().map_err(serde::de::Error::custom)
    }
}

/// Writes a table of its own. When it is read, a missing field has its default.
impl Serialize for Options {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        raw::RawOptions::of(self).serialize(serializer)
    }
}

/// Refuses unknown fields, and values out of the bounds of each field.
impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        raw::RawOptions::deserialize(deserializer)?.read().map_err(serde::de::Error::custom)
    }
}

/// True for `service_host`, `service_port`, `service_port_redis`, `port`, `port_6379_tcp`, `port_6379_tcp_addr`, ..
fn is_of_kubernetes(name: &str) -> bool {
    name == "service_host" || name == "port" || name.starts_with("service_port") || name.starts_with("port_")
}

/// The URL without its password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    let Some((login, rest)) = rest.rsplit_once('@') else { return url.to_owned() };
    match login.split_once(':').map_or(login, |(user, _)| user) {
        "" => format!("{scheme}://{rest}"),
        user => format!("{scheme}://{user}@{rest}"),
    }
}

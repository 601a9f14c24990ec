//! Settings of a client in files and the environment (feature `serde`).

mod raw;
#[cfg(test)]
mod tests;
mod value;
mod variable;

use std::ffi::OsString;
use std::fmt;

use serde::de::value::{Error as ValueError, MapDeserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::client::{Builder, Client};
use crate::config::{Options, Secret, Tls};
use crate::error::{Error, Result};
use raw::{RawSettings, Server};
use variable::Variable;

/// All settings of a client: its servers, login and [`Options`]. They can be read from TOML, YAML, JSON or any other
/// format of serde, or from the [environment](Self::from_env).
///
/// All fields are on one level:
///
/// - `url`, which is required;
/// - `username`, `password`, `database`, `sentinel_username`, `sentinel_password`;
/// - `address_map` (a map);
/// - for [`Tls`]: `tls_ca_file`, `tls_client_certificate`, `tls_client_key`, `tls_server_name`;
/// - every field of [`Options`].
///
/// Times are `"30s"`, `"250ms"`, `"1m 30s"`, or a number of milliseconds. Unknown names and values out of the bounds
/// of [`Options`] are refused. [`guide::configuration`](crate::guide::configuration) has examples.
///
/// Serialized settings contain no passwords, not even the password in the URL.
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
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "RawSettings")]
pub struct Settings {
    url: Url,
    #[serde(flatten)]
    options: Options,
    #[serde(flatten)]
    server: Server,
}

impl Settings {
    /// Reads the variables whose names start with this prefix and `_`, in upper or lower case. With the prefix
    /// `DISTLOCK`: `DISTLOCK_URL`, `DISTLOCK_WATCHDOG=30s`, `DISTLOCK_RETRY_DELAY=100ms,1s`,
    /// `DISTLOCK_ADDRESS_MAP=10.0.0.1:6379=localhost:7000,..`.
    ///
    /// An empty variable counts as not set. An unknown variable with the prefix is refused. Variables that Kubernetes
    /// sets for a service with the prefix as its name are ignored (`DISTLOCK_SERVICE_HOST`, `DISTLOCK_PORT_6379_TCP`,
    /// ..).
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
            RawSettings::deserialize(alone)
                .map_err(|error| Error::config(format!("the variable {variable}: {error}")))?;
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
        let Self { url, options, server } = self;
        let client_certificate = server.tls_client_certificate.zip(server.tls_client_key);
        let mut tls = Tls::new();
        (tls.ca_file, tls.client_certificate, tls.server_name) =
            (server.tls_ca_file, client_certificate, server.tls_server_name);
        let mut builder = Client::builder(&url.0).options(options).address_map(server.address_map.unwrap_or_default());
        builder.target.username = server.username.map(Secret);
        builder.target.password = server.password;
        builder.target.database = server.database;
        builder.target.tls = (tls != Tls::default()).then_some(tls);
        builder.sentinel_login.username = server.sentinel_username.map(Secret);
        builder.sentinel_login.password = server.sentinel_password;
        builder
    }
}

/// A URL that is shown and written without its password.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct Url(String);

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        without_password(&self.0).fmt(f)
    }
}

impl Serialize for Url {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        without_password(&self.0).serialize(serializer)
    }
}

/// True for `service_host`, `service_port`, `service_port_redis`, `port`, `port_6379_tcp`, `port_6379_tcp_addr`, ..
fn is_of_kubernetes(name: &str) -> bool {
    name == "service_host" || name == "port" || name.starts_with("service_port") || name.starts_with("port_")
}

fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return String::new() };
    let Some((login, rest)) = rest.rsplit_once('@') else { return url.to_owned() };
    match login.split_once(':').map_or(login, |(user, _)| user) {
        "" => format!("{scheme}://{rest}"),
        user => format!("{scheme}://{user}@{rest}"),
    }
}

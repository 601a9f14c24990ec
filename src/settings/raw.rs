//! The fields of a settings file. Each may be missing or null.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Settings, Url, value};
use crate::config::{Acks, Options, Prefer, Secret, Sharded};
use crate::error::{Error, Result};

macro_rules! fields {
    (
        server { $($(#[$server_how:meta])* $server:ident: $server_type:ty,)* }
        options { $($(#[$how:meta])? $option:ident: $type:ty,)* }
    ) => {
        /// Logins, TLS and addresses: all settings except the URL and the options.
        #[derive(Clone, Debug, Serialize)]
        pub(super) struct Server {
            $(
                $(#[$server_how])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub(super) $server: Option<$server_type>,
            )*
        }

        /// All settings on one level. `flatten` would do this too, but its errors do not point at the line.
        #[derive(Default, Deserialize)]
        #[serde(default, deny_unknown_fields, rename = "Settings")]
        pub(super) struct RawSettings {
            url: Option<Url>,
            $($(#[$server_how])* $server: Option<$server_type>,)*
            $($(#[$how])? $option: Option<$type>,)*
        }

        #[derive(Default, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields, rename = "Options")]
        struct RawOptions {
            $($(#[$how])? $option: Option<$type>,)*
        }

        impl TryFrom<RawSettings> for Settings {
            type Error = Error;

            fn try_from(raw: RawSettings) -> Result<Self> {
                let url = raw.url.ok_or_else(|| Error::config("the url is missing, such as redis://localhost:6379"))?;
                if raw.tls_client_certificate.is_some() != raw.tls_client_key.is_some() {
                    return Err(Error::config("tls_client_certificate and tls_client_key go together: both, or none"));
                }
                let options = RawOptions { $($option: raw.$option,)* }.read()?;
                Ok(Self { url, options, server: Server { $($server: raw.$server,)* } })
            }
        }

        impl RawOptions {
            fn read(self) -> Result<Options> {
                let mut options = Options::default();
                // `into`, because `scan_interval` is an `Option` in `Options` too.
                $(if let Some(value) = self.$option {
                    options.$option = value.into();
                })*
                options.validate()?;
                Ok(options)
            }
        }

        /// Refuses unknown fields, and values out of the bounds of each field. A missing field has its default.
        impl<'de> Deserialize<'de> for Options {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                RawOptions::deserialize(deserializer)?.read().map_err(D::Error::custom)
            }
        }

        impl Serialize for Options {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // Exhaustive, so that a new option cannot be forgotten here.
                let Self { $($option,)* } = self.clone();
                RawOptions { $($option: $option.into(),)* }.serialize(serializer)
            }
        }
    };
}

fields! {
    server {
        username: String,
        #[serde(skip_serializing, deserialize_with = "value::secret")] password: Secret,
        #[serde(deserialize_with = "value::plain")] database: u8,
        sentinel_username: String,
        #[serde(skip_serializing, deserialize_with = "value::secret")] sentinel_password: Secret,
        tls_ca_file: PathBuf,
        tls_client_certificate: PathBuf,
        tls_client_key: PathBuf,
        tls_server_name: String,
        // Last, because some versions of TOML want tables after values.
        #[serde(deserialize_with = "value::map")] address_map: HashMap<String, String>,
    }
    options {
        #[serde(with = "value::time")] watchdog: Duration,
        #[serde(deserialize_with = "value::plain")] watchdog_batch: usize,
        #[serde(with = "value::time")] command_timeout: Duration,
        #[serde(with = "value::time")] connect_timeout: Duration,
        #[serde(deserialize_with = "value::plain")] retry_attempts: u32,
        #[serde(with = "value::times")] retry_delay: (Duration, Duration),
        #[serde(with = "value::time")] subscribe_timeout: Duration,
        #[serde(with = "value::time")] subscription_linger: Duration,
        #[serde(with = "value::time")] poll_cap: Duration,
        #[serde(with = "value::time")] ping_interval: Duration,
        #[serde(deserialize_with = "value::plain")] local_handoff_limit: u32,
        #[serde(with = "value::time")] local_handoff_time: Duration,
        #[serde(deserialize_with = "value::plain")] yield_after_release: bool,
        #[serde(with = "value::time")] fair_wait: Duration,
        #[serde(with = "value::time")] java_fair_wait: Duration,
        #[serde(with = "value::time")] fair_grace: Duration,
        prefer: Prefer,
        #[serde(with = "value::time")] max_reader_delay: Duration,
        #[serde(deserialize_with = "value::plain")] pool_size: usize,
        name_prefix: String,
        client_name: String,
        label: String,
        #[serde(deserialize_with = "value::plain")] script_cache: bool,
        #[serde(deserialize_with = "value::plain")] batching: bool,
        #[serde(deserialize_with = "value::plain")] use_fred: bool,
        #[serde(with = "value::acks")] acks: Acks,
        #[serde(with = "value::time")] ack_timeout: Duration,
        #[serde(with = "value::time", skip_serializing_if = "Option::is_none")] scan_interval: Duration,
        sharded: Sharded,
        #[serde(deserialize_with = "value::plain")] confirm_primary: bool,
        #[serde(deserialize_with = "value::plain")] preflight: bool,
    }
}

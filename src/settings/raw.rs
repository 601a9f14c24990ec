//! The fields of a file. Each may be missing.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use super::value::{Field, Hidden, Map, Plain, Replicas, Span, Spans};
use super::{Settings, without_password};
use crate::config::{Options, Prefer, Sharded, Tls};
use crate::error::{Error, Result};

/// Passes every option, with its type in a file, to a macro.
macro_rules! with_options {
    ($macro:ident) => {
        $macro! {
            watchdog: Span,
            watchdog_batch: Plain<usize>,
            command_timeout: Span,
            connect_timeout: Span,
            retry_attempts: Plain<u32>,
            retry_delay: Spans,
            subscribe_timeout: Span,
            subscription_linger: Span,
            poll_cap: Span,
            ping_interval: Span,
            handoff_limit: Plain<u32>,
            handoff_time: Span,
            take_turns: Plain<bool>,
            fair_wait: Span,
            java_fair_wait: Span,
            fair_grace: Span,
            prefer: Prefer,
            hold_back: Span,
            pool_size: Plain<usize>,
            name_prefix: String,
            client_name: String,
            script_cache: Plain<bool>,
            coalesce: Plain<bool>,
            acks: Replicas,
            ack_timeout: Span,
            scan_interval: Span,
            sharded: Sharded,
            confirm_primary: Plain<bool>,
            preflight: Plain<bool>,
        }
    };
}

macro_rules! structs {
    ($($field:ident: $type:ty,)*) => {
        #[derive(Default, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields, rename = "Options")]
        pub(super) struct RawOptions {
            $(#[serde(skip_serializing_if = "Option::is_none")] $field: Option<$type>,)*
        }

        impl RawOptions {
            pub(super) fn of(options: &Options) -> Self {
                // Exhaustive, so that a new option cannot be forgotten here.
                let Options { $($field,)* } = options;
                Self { $($field: Some(<$type>::of($field)),)* }
            }

            pub(super) fn read(self) -> Result<Options> {
                let mut options = Options::default();
                $(if let Some(value) = self.$field {
                    options.$field = value.value();
                })*
                options.validate()?;
                Ok(options)
            }
        }

        /// The options and all other settings.
        #[derive(Default, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields, rename = "Settings")]
        pub(super) struct RawSettings {
            #[serde(serialize_with = "written")]
            url: Option<Hidden>,
            #[serde(skip_serializing_if = "Option::is_none")]
            username: Option<String>,
            #[serde(skip_serializing)]
            password: Option<Hidden>,
            #[serde(skip_serializing_if = "Option::is_none")]
            database: Option<Plain<u8>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            sentinel_username: Option<String>,
            #[serde(skip_serializing)]
            sentinel_password: Option<Hidden>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tls_ca_file: Option<PathBuf>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tls_client_certificate: Option<PathBuf>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tls_client_key: Option<PathBuf>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tls_server_name: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            direct: Option<Plain<bool>>,
            $(#[serde(skip_serializing_if = "Option::is_none")] $field: Option<$type>,)*
            // Last, because in TOML tables follow values.
            #[serde(skip_serializing_if = "Option::is_none")]
            address_map: Option<Map>,
        }

        impl RawSettings {
            pub(super) fn of(settings: &Settings) -> Self {
                let RawOptions { $($field,)* } = RawOptions::of(&settings.options);
                let Settings { url, username, database, sentinel_username, tls, address_map, direct, .. } = settings;
                let Tls { ca_file, client_certificate, server_name } = tls.clone().unwrap_or_default();
                let (tls_client_certificate, tls_client_key) = client_certificate.unzip();
                Self {
                    url: Some(Hidden(url.clone())),
                    username: username.clone(),
                    password: None,
                    database: database.as_ref().map(Field::of),
                    sentinel_username: sentinel_username.clone(),
                    sentinel_password: None,
                    tls_ca_file: ca_file,
                    tls_client_certificate,
                    tls_client_key,
                    tls_server_name: server_name,
                    direct: Some(Field::of(direct)),
                    $($field,)*
                    address_map: (!address_map.is_empty()).then(|| Map(address_map.clone())),
                }
            }

            pub(super) fn read(self) -> Result<Settings> {
                let url = self.url.ok_or_else(|| Error::config("the url is missing, such as redis://localhost:6379"))?;
                let client_certificate = match (self.tls_client_certificate, self.tls_client_key) {
                    (Some(certificate), Some(key)) => Some((certificate, key)),
                    (None, None) => None,
                    _ => return Err(Error::config("tls_client_certificate and tls_client_key go together: both, or none")),
                };
                let tls = Tls { ca_file: self.tls_ca_file, client_certificate, server_name: self.tls_server_name };
                Ok(Settings {
                    url: url.0,
                    tls: (tls != Tls::default()).then_some(tls),
                    username: self.username,
                    password: self.password.map(|hidden| hidden.0),
                    database: self.database.map(Field::value),
                    sentinel_username: self.sentinel_username,
                    sentinel_password: self.sentinel_password.map(|hidden| hidden.0),
                    address_map: self.address_map.unwrap_or_default().0,
                    direct: self.direct.is_some_and(Field::value),
                    options: RawOptions { $($field: self.$field,)* }.read()?,
                })
            }
        }
    };
}

with_options!(structs);

fn written<S: serde::Serializer>(url: &Option<Hidden>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_ref().map(|url| without_password(&url.0.0)).serialize(serializer)
}

/// Checks that each value can be parsed, without checking how the values fit together.
pub(super) fn check<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    RawSettings::deserialize(deserializer).map(drop)
}

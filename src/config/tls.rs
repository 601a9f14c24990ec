//! Options of TLS.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// True if a TLS feature is enabled.
pub(crate) const BUILT_IN: bool = cfg!(any(feature = "rustls", feature = "rustls-ring", feature = "native-tls"));

/// TLS configuration, for servers that the defaults do not fit. Set it by [`Builder::tls`](crate::Builder::tls).
///
/// Files are PEM. With rustls the files are read again for each new connection, so replaced files need no restart.
/// Open connections stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "give it to Builder::tls"]
pub struct Tls {
    pub(crate) ca_file: Option<PathBuf>,
    /// The chain, and its private key.
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) server_name: Option<String>,
}

impl Tls {
    /// Returns the defaults: the platform's authorities are trusted, no client certificate is sent, and the server's
    /// certificate must be for the host of the connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts only the authorities in this file. Defaults to the platform's authorities, which are read once, when a
    /// client connects. With rustls, `SSL_CERT_FILE` and `SSL_CERT_DIR` replace those.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Sends this client certificate to a server that asks for one. The file may contain intermediate certificates
    /// after it. The second file has the private key, without a passphrase. Defaults to none.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the name that is checked against the server's certificate and sent to the server (SNI). Needed if it is
    /// not the host of the connection: for a tunnel, or a cluster whose servers report each other by address. It
    /// applies to every server of a cluster. Defaults to the host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Refuses a configuration that cannot work with a URL of this scheme.
    pub(crate) fn check(&self, scheme: &str) -> Result<()> {
        if !BUILT_IN {
            return Err(not_built_in());
        }
        if !matches!(scheme, "rediss" | "valkeys") {
            return Err(Error::config(
                "tls() is for connections over TLS, which the URL does not ask for: use rediss:// (rediss-cluster:// for a cluster), or leave \
                 tls() out",
            ));
        }
        if self.server_name.as_deref() == Some("") {
            return Err(Error::config(
                "the server name of TLS is empty: leave it out for the host that is connected to",
            ));
        }
        Ok(())
    }
}

/// The error for TLS without a TLS feature.
pub(crate) fn not_built_in() -> Error {
    Error::Unsupported {
        what: "TLS is not built in: enable one of the features rustls, rustls-ring, native-tls".into(),
    }
}

//! How TLS is spoken: whom to trust, who one is, and what the server is called.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// TLS is built in.
pub(crate) const BUILT_IN: bool = cfg!(any(feature = "rustls", feature = "rustls-ring", feature = "native-tls"));

/// What connections over TLS are made with, where the defaults will not do. Set it by [`Builder::tls`](crate::Builder::tls).
///
/// Files are in PEM. By rustls they are read again with each connection that is made, so that new ones are used without a restart;
/// nothing that stands is broken off for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "give it to Builder::tls"]
pub struct Tls {
    pub(crate) ca_file: Option<PathBuf>,
    /// The chain, and its private key.
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) server_name: Option<String>,
}

impl Tls {
    /// As without it: the platform's authorities are trusted, no certificate of our own is shown, and the server's has to be for the
    /// host that is connected to.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trust the authorities in this file, and no others. Defaults to the platform's (with rustls, `SSL_CERT_FILE` and `SSL_CERT_DIR`
    /// name others), which are read once, when a client connects.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Show this certificate (and those between it and its authority, behind it in the file) to a server that asks for one; the second
    /// file has its private key, without a passphrase. Defaults to none.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// The name that the server's certificate has to be for, and that it is told (SNI), where that is not the host that is connected
    /// to: a cluster whose servers call themselves by their addresses, a tunnel. Of a cluster it holds for every server. Defaults to
    /// the host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Refuses what cannot work with a URL of this scheme.
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

/// What is told where TLS is asked for.
pub(crate) fn not_built_in() -> Error {
    Error::Unsupported {
        what: "TLS is not built in: enable one of the features rustls, rustls-ring, native-tls".into(),
    }
}

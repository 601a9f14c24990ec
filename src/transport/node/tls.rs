//! TLS by rustls: whose cryptography, and which certificates are trusted.

use std::sync::Arc;

use fred::rustls::crypto::CryptoProvider;
use fred::rustls::{ClientConfig, RootCertStore};
use fred::rustls_native_certs::load_native_certs;
use fred::types::config::TlsConfig;

use crate::error::{Error, Result};

#[cfg(feature = "rustls")]
use fred::rustls::crypto::aws_lc_rs as built_in;
#[cfg(not(feature = "rustls"))]
use fred::rustls::crypto::ring as built_in;

/// Trusts what the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name other certificates), and whoever it signed for the
/// host of the URL.
pub(super) fn config() -> Result<TlsConfig> {
    let found = load_native_certs();
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(found.certs);
    if trusted == 0 {
        let why = found.errors.first().map_or_else(|| "it has none".to_owned(), ToString::to_string);
        return Err(Error::config(format!(
            "TLS needs certificates of authorities that this system trusts: {why}; install them (ca-certificates), or name a \
             file of them in SSL_CERT_FILE"
        )));
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::config(format!("the cryptography that rustls was given cannot be used: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config.into())
}

/// What the program has chosen for all users of rustls in it; else what this crate was built with. Asked to choose by
/// itself, rustls panics where several are in the build, be it by the wish of some other crate.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(built_in::default_provider()))
}

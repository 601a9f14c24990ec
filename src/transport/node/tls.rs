//! TLS of fred's connections: by rustls, configured as for our own connections, or by the platform's library.

use fred::types::config::Config;

use distlock_wire::tls::Secured;

use crate::config::Tls;
use crate::error::Result;

/// Configures TLS for fred, with the settings of our own connections.
#[cfg(all(any(feature = "rustls", feature = "rustls-ring"), not(feature = "native-tls")))]
pub(super) fn apply(config: &mut Config, _tls: Option<&Tls>, secured: Option<&Secured>) -> Result<()> {
    use fred::types::config::{ServerConfig, TlsConnector};

    let (ServerConfig::Centralized { server }, Some(secured)) = (&mut config.server, secured) else { return Ok(()) };
    // The same name as for connections of our own.
    server.tls_server_name = Some(secured.name.to_str().into_owned().into());
    config.tls = Some(TlsConnector::from((*secured.config).clone()).into());
    Ok(())
}

/// Like the function above, with the platform's library. The files are read here, once.
///
/// # Errors
///
/// [`Error::Config`](crate::Error::Config) for a file that cannot be read or used.
#[cfg(feature = "native-tls")]
pub(super) fn apply(config: &mut Config, tls: Option<&Tls>, _secured: Option<&Secured>) -> Result<()> {
    use crate::error::Error;
    use fred::native_tls::{Certificate, Identity, TlsConnector};
    use fred::types::config::ServerConfig;

    let ServerConfig::Centralized { server } = &mut config.server else { return Ok(()) };
    let tls = tls.cloned().unwrap_or_default();
    let read = |file: &std::path::Path| {
        std::fs::read(file).map_err(|error| Error::config(format!("TLS: {} cannot be read: {error}", file.display())))
    };
    let wrong = |file: &std::path::Path| {
        Error::config(format!("TLS: {} has nothing in PEM that the platform's library takes", file.display()))
    };
    let mut connector = TlsConnector::builder();
    if let Some(file) = &tls.ca_file {
        connector.disable_built_in_roots(true);
        let authorities = Certificate::stack_from_pem(&read(file)?).map_err(|_| wrong(file))?;
        if authorities.is_empty() {
            return Err(wrong(file));
        }
        for authority in authorities {
            connector.add_root_certificate(authority);
        }
    }
    if let Some((certificate, key)) = &tls.client_certificate {
        let identity = Identity::from_pkcs8(&read(certificate)?, &read(key)?).map_err(|_| wrong(certificate))?;
        connector.identity(identity);
    }
    if let Some(name) = &tls.server_name {
        server.tls_server_name = Some(name.as_str().into());
    }
    let connector =
        connector.build().map_err(|error| Error::config(format!("TLS cannot be set up by the platform: {error}")))?;
    config.tls = Some(fred::types::config::TlsConnector::from(connector).into());
    Ok(())
}

/// Never called, because a request for TLS is refused earlier.
#[cfg(not(any(feature = "rustls", feature = "rustls-ring", feature = "native-tls")))]
pub(super) fn apply(_config: &mut Config, _tls: Option<&Tls>, _secured: Option<&Secured>) -> Result<()> {
    Err(crate::config::not_built_in())
}

//! The rustls configuration of the connections to one server.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};

use super::files::Files;
use super::{UNTRUSTED, quoted};
use crate::Tls;

#[cfg(feature = "rustls")]
use rustls::crypto::aws_lc_rs as built_in;
#[cfg(not(feature = "rustls"))]
use rustls::crypto::ring as built_in;

/// The TLS configuration of the connections to one server.
#[derive(Clone, Debug)]
pub struct Secured {
    /// Configuration for rustls.
    pub config: Arc<ClientConfig>,
    /// Name that the server's certificate must be valid for.
    pub name: ServerName<'static>,
}

impl Secured {
    /// Builds the settings for the server at `host`.
    ///
    /// # Errors
    ///
    /// A text for a file that cannot be read or used, and for a name that no certificate can have.
    pub fn new(tls: &Tls, host: &str) -> Result<Self, String> {
        let name = tls.server_name.as_deref().unwrap_or(host);
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("TLS: no server's certificate can be for the name {name:?}"))?;
        let files = Files::new(tls.clone(), provider()).map_err(|why| format!("TLS: {why}"))?;
        let checks = Arc::new(Checks(files));
        let mut config = ClientConfig::builder_with_provider(Arc::clone(checks.0.provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: the cryptography that rustls was given cannot be used: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<Checks>::clone(&checks))
            .with_client_cert_resolver(checks);
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name })
    }
}

/// Returns the crypto provider that the program has installed for all users of rustls, or else the built-in one. The
/// choice is not left to rustls, which panics if other crates have added further providers to the build.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(built_in::default_provider()))
}

/// Reads the files whenever rustls verifies the server or needs the client's certificate. Certificates are verified by
/// rustls' own verifier.
#[derive(Debug)]
struct Checks(Files);

impl ServerCertVerifier for Checks {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // `load` also checks the client's certificate, because `resolve` below cannot report errors.
        let loaded = self.0.load().map_err(|why| told(&why))?;
        loaded.trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now).map_err(|error| {
            match error {
                rustls::Error::InvalidCertificate(error) => told(&wrong(&error, server_name, &self.0.authorities())),
                error => error,
            }
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.provider().signature_verification_algorithms.supported_schemes()
    }
}

impl ResolvesClientCert for Checks {
    fn resolve(&self, _authorities: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // An error in the files is reported by `verify_server_cert`.
        let client = self.0.load().ok()?.client?;
        client.key.choose_scheme(schemes).is_some().then_some(client)
    }

    fn has_certs(&self) -> bool {
        self.0.has_client_certificate()
    }
}

/// A text of this crate inside an error of rustls. Its `Debug` prints the text unescaped, so that `tls::explain` finds
/// it.
struct Told(String);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Told {}

fn told(what: &str) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Told(what.to_owned())))))
}

fn wrong(error: &CertificateError, name: &ServerName<'_>, authorities: &str) -> String {
    let days = |seconds: u64| match seconds / 86_400 {
        0 => "less than a day".to_owned(),
        days => format!("{days} days"),
    };
    match error {
        // If an impostor uses the name of a trusted authority, the signature is wrong.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{UNTRUSTED}: trusted are {authorities}")
        }
        CertificateError::Expired => "the server's certificate has expired".to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            let since = time.as_secs().saturating_sub(not_after.as_secs());
            format!("the server's certificate has expired ({} ago by the clock here)", days(since))
        }
        CertificateError::NotValidYet => "the server's certificate is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => {
            let until = not_before.as_secs().saturating_sub(time.as_secs());
            format!("the server's certificate is not valid yet (in {} by the clock here)", days(until))
        }
        CertificateError::NotValidForName => {
            format!("the server's certificate is not for {}", plain(name))
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| readable(name)).collect();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!(
                "the server's certificate is not for {}, but for {names}: where it is the right server, name it by Tls::server_name",
                plain(expected)
            )
        }
        error => format!("the server's certificate cannot be used: {error}"),
    }
}

fn plain(name: &ServerName<'_>) -> String {
    match name {
        ServerName::IpAddress(address) => IpAddr::from(*address).to_string(),
        name => name.to_str().into_owned(),
    }
}

/// Extracts a name from rustls' notation: `DnsName("localhost")`, `IpAddress(127.0.0.1)`.
fn readable(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

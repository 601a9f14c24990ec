//! Certificate and key files, read at each handshake.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::Tls;

#[derive(Clone)]
pub(super) struct Loaded {
    pub(super) trusted: Arc<WebPkiServerVerifier>,
    pub(super) client: Option<Arc<CertifiedKey>>,
}

/// The files, and their content when they were last read.
pub(super) struct Files {
    tls: Tls,
    provider: Arc<CryptoProvider>,
    /// Verifier with the authorities that the platform trusts. Loaded only without a `ca_file`.
    platform: Option<Arc<WebPkiServerVerifier>>,
    known: Mutex<Option<(Contents, Loaded)>>,
}

#[derive(PartialEq, Eq)]
struct Contents {
    authorities: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl Files {
    /// Reads all files. Errors say what is wrong, and with which file.
    pub(super) fn new(tls: Tls, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let platform = if tls.ca_file.is_none() { Some(platform(&provider)?) } else { None };
        let files = Self { tls, provider, platform, known: Mutex::default() };
        files.load()?;
        Ok(files)
    }

    pub(super) const fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    pub(super) const fn has_client_certificate(&self) -> bool {
        self.tls.client_certificate.is_some()
    }

    /// Describes the trusted authorities, for error messages.
    pub(super) fn authorities(&self) -> String {
        match &self.tls.ca_file {
            Some(file) => format!("those in {}", file.display()),
            None => "those of the platform".to_owned(),
        }
    }

    /// Returns the current content.
    pub(super) fn load(&self) -> Result<Loaded, String> {
        let authorities =
            self.tls.ca_file.as_deref().map(|file| read(file, "authorities that are trusted")).transpose()?;
        let client = match &self.tls.client_certificate {
            Some((certificate, key)) => {
                Some((read(certificate, "the client certificate")?, read(key, "the client certificate's key")?))
            }
            None => None,
        };
        let contents = Contents { authorities, client };
        let mut known = self.known.lock();
        if let Some((known, loaded)) = &*known
            && *known == contents
        {
            return Ok(loaded.clone());
        }
        let loaded = self.parse(&contents)?;
        *known = Some((contents, loaded.clone()));
        Ok(loaded)
    }

    fn parse(&self, contents: &Contents) -> Result<Loaded, String> {
        let trusted = match (&contents.authorities, &self.tls.ca_file, &self.platform) {
            (Some(text), Some(file), _) => {
                let mut roots = RootCertStore::empty();
                let mut odd = None;
                // An unusable certificate among others does no harm.
                for certificate in certificates(text, file)? {
                    odd = roots.add(certificate).err().or(odd);
                }
                if let (true, Some(error)) = (roots.is_empty(), odd) {
                    return Err(format!("{} has no certificate that can be used: {error}", file.display()));
                }
                verifier(roots, &self.provider)?
            }
            (_, _, Some(platform)) => Arc::clone(platform),
            _ => return Err("nobody is trusted".to_owned()),
        };
        let client = match (&contents.client, &self.tls.client_certificate) {
            (Some(text), Some(files)) => Some(Arc::new(self.certified(text, files)?)),
            _ => None,
        };
        Ok(Loaded { trusted, client })
    }

    fn certified(
        &self,
        (certificate, key): &(Vec<u8>, Vec<u8>),
        (certificate_file, key_file): &(PathBuf, PathBuf),
    ) -> Result<CertifiedKey, String> {
        let chain = certificates(certificate, certificate_file)?;
        // The parser's error is left out: it may quote the key.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| format!("{} has no private key in PEM without a passphrase", key_file.display()))?;
        let key = self
            .provider
            .key_provider
            .load_private_key(key)
            .map_err(|_| format!("{} has a private key of a kind that cannot be used", key_file.display()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => Err(format!(
                "the private key in {} is not that of the certificate in {}",
                key_file.display(),
                certificate_file.display()
            )),
            Err(rustls::Error::InvalidCertificate(error)) => {
                Err(format!("{} has a certificate that cannot be used: {error}", certificate_file.display()))
            }
            _ => Ok(certified),
        }
    }
}

fn read(file: &Path, what: &str) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{} ({what}) cannot be read: {error}", file.display()))
}

fn certificates(text: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(format!("{} has no certificate in PEM", file.display())),
        Ok(found) => Ok(found),
        // The parser's error is left out: the file may be a key by mistake.
        Err(_) => Err(format!("{} is no PEM, or is cut off", file.display())),
    }
}

fn platform(provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(found.certs);
    if trusted == 0 {
        let why = found.errors.first().map_or_else(|| "it has none".to_owned(), ToString::to_string);
        return Err(format!(
            "certificates of authorities that this system trusts are needed: {why}; install them (ca-certificates), or name a file of \
             them by Tls::ca_file or in SSL_CERT_FILE"
        ));
    }
    verifier(roots, provider)
}

fn verifier(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| format!("the authorities that are trusted cannot be used: {error}"))
}

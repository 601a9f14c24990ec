//! TLS: the configuration of connections, and the meaning of TLS failures.
//!
//! A client has one configuration for its whole life. The files of certificates are read at each handshake. Sessions
//! are never resumed, because a resumed session would skip the files.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[cfg(any(feature = "rustls", feature = "rustls-ring"))]
mod files;
#[cfg(any(feature = "rustls", feature = "rustls-ring"))]
mod secured;

#[cfg(any(feature = "rustls", feature = "rustls-ring"))]
pub use secured::Secured;

/// Without rustls there is no configuration, so this type has no values.
#[cfg(not(any(feature = "rustls", feature = "rustls-ring")))]
#[derive(Clone, Debug)]
pub enum Secured {}

/// TLS configuration, for servers that the defaults do not fit.
///
/// Files are PEM. With rustls the files are read again for each new connection, so replaced files need no restart. Open
/// connections are not affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a configuration does nothing by itself"]
#[non_exhaustive]
pub struct Tls {
    /// PEM file of the trusted authorities; `None` trusts the platform's authorities.
    #[doc(hidden)]
    pub ca_file: Option<PathBuf>,
    /// The chain, and its private key.
    #[doc(hidden)]
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The name to check; `None` for the host.
    #[doc(hidden)]
    pub server_name: Option<String>,
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

    /// Sets the name that is checked against the server's certificate and sent to the server (SNI). Needed if the
    /// certificate does not name the host of the connection: for a tunnel, or a cluster whose servers report each other
    /// by address. It applies to every server of a cluster. Defaults to the host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

/// Delimiters of a text of this crate inside the error of a library.
const QUOTES: (char, char) = ('\u{ab}', '\u{bb}');

/// Quotes a text, so that [`explain`] finds it in the error of a library.
pub fn quoted(text: &str) -> String {
    format!("{}TLS: {text}{}", QUOTES.0, QUOTES.1)
}

/// The failure at a port that does not speak TLS.
pub const PLAIN: &str =
    "the server does not speak TLS at this port: name its port for TLS, or use redis:// without the second s";

/// Hint for a server that closes a plain connection at the first command.
pub const IS_TLS: &str = "as a port for TLS does when it is spoken to in plain; where it is one, use rediss://";

/// Alerts by which a server refuses a client's certificate, and what they mean.
const REFUSED: [(&str, &str); 9] = [
    ("UnknownCA", "its authority is not trusted there"),
    ("UnknownCa", "its authority is not trusted there"),
    ("CertificateExpired", "it has expired"),
    ("CertificateRevoked", "it was revoked"),
    ("UnsupportedCertificate", "it is of a kind that is not taken there"),
    ("CertificateUnknown", "it is not taken there"),
    ("BadCertificate", "it is broken, or not taken there"),
    ("AccessDenied", "it may not come in"),
    ("DecryptError", "its signature does not hold"),
];

const BROKEN_OFF: &str = "the server has broken off the handshake";
const CLOSED: &str =
    "the server has closed the connection during the handshake: perhaps it does not speak TLS at this port";

const UNTRUSTED: &str = "the server's certificate is signed by an authority that is not trusted";

/// The failure at a server that does not answer the handshake.
pub const SILENT: &str = "the server does not answer to the handshake";

/// Failures that may pass by themselves, for example while a server starts or stops.
const PASSES: [&str; 3] = [BROKEN_OFF, CLOSED, SILENT];

/// Other error texts of libraries, and what they mean.
const MEANT: [(&str, &str); 8] = [
    ("InvalidContentType", PLAIN),
    ("wrong version number", PLAIN),
    ("tls handshake eof", CLOSED),
    ("certificate has expired", "the server's certificate has expired"),
    ("certificate is not yet valid", "the server's certificate is not valid yet"),
    ("ostname mismatch", "the server's certificate is not for the name that it is reached by"),
    ("self-signed certificate", UNTRUSTED),
    ("local issuer certificate", UNTRUSTED),
];

/// The meaning of a TLS failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Text for errors and logs.
    pub text: String,
    /// True if waiting does not help: the setup has to be fixed.
    pub lasts: bool,
}

/// Returns the meaning of a TLS failure, or `None` for any other failure. `text` is the error as the library's `Debug`
/// prints it.
pub fn explain(text: &str) -> Option<Meaning> {
    let text = words(text)?;
    let lasts = !PASSES.iter().any(|passes| text.contains(passes));
    Some(Meaning { text, lasts })
}

fn words(text: &str) -> Option<String> {
    if let (Some(from), Some(to)) = (text.find(QUOTES.0), text.rfind(QUOTES.1)) {
        return text.get(from + QUOTES.0.len_utf8()..to).map(str::to_owned);
    }
    let tls = |text: &str| Some(format!("TLS: {text}"));
    if let Some((_, alert)) = text.split_once("AlertReceived(") {
        let alert = alert.split(')').next().unwrap_or_default();
        if alert == "CertificateRequired" {
            return tls(
                "the server asks for a client certificate, and there is none: set one by Tls::client_certificate",
            );
        }
        if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == alert) {
            return tls(&format!("the server refuses the client certificate: {why} ({alert})"));
        }
        return tls(&format!("{BROKEN_OFF} ({alert}): it wants another version or cipher, or a client certificate"));
    }
    MEANT.iter().find(|(name, _)| text.contains(name)).and_then(|(_, meant)| tls(meant))
}

/// Returns true if the server at this port answers a command without TLS. Called if a handshake gets no answer.
///
/// # Cancel safety
///
/// Dropping the future closes the connection.
pub async fn accepts_without_tls(host: &str, port: u16, within: Duration) -> bool {
    let answer = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    // `+PONG`, or an error because there was no login.
    matches!(tokio::time::timeout(within, answer).await, Ok(Ok(b'+' | b'-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explain_finds_the_meaning_of_failures() {
        let ours = format!("Custom {{ kind: InvalidData, error: Other({}) }}", quoted("the file /x/\u{bb} is gone"));
        for (text, part) in [
            (ours.as_str(), Some("TLS: the file /x/\u{bb} is gone")),
            ("InvalidData, error: AlertReceived(CertificateRequired) }", Some("asks for a client certificate")),
            ("AlertReceived(UnknownCA)", Some("refuses the client certificate: its authority")),
            ("AlertReceived(HandshakeFailure)", Some("broken off the handshake (HandshakeFailure)")),
            ("InvalidMessage(InvalidContentType)", Some("does not speak TLS")),
            ("Os { code: 104, kind: ConnectionReset, message: \"Connection reset by peer\" }", None),
        ] {
            let told = explain(text).map(|meaning| meaning.text);
            let fits = part.map_or(told.is_none(), |part| told.as_ref().is_some_and(|told| told.contains(part)));
            assert!(fits, "{text}: {told:?}");
        }
        assert!(explain(&quoted(PLAIN)).is_some_and(|meaning| meaning.lasts));
        assert!(explain(&quoted(SILENT)).is_some_and(|meaning| !meaning.lasts));
        assert!(explain("tls handshake eof").is_some_and(|meaning| !meaning.lasts));
    }
}

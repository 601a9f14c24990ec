//! Options of TLS.

pub use distlock_wire::Tls;

use crate::error::{Error, Result};

/// True if a TLS feature is enabled.
pub(crate) const BUILT_IN: bool = cfg!(any(feature = "rustls", feature = "rustls-ring", feature = "native-tls"));

/// Refuses a configuration that cannot work with a URL of this scheme.
pub(crate) fn check(tls: &Tls, scheme: &str) -> Result<()> {
    if !BUILT_IN {
        return Err(not_built_in());
    }
    if !matches!(scheme, "rediss" | "valkeys") {
        return Err(Error::config(
            "tls() is for connections over TLS, which the URL does not ask for: use rediss:// (rediss-cluster:// for a cluster), or leave \
             tls() out",
        ));
    }
    if tls.server_name.as_deref() == Some("") {
        return Err(Error::config("the server name of TLS is empty: leave it out for the host that is connected to"));
    }
    Ok(())
}

/// The error for TLS without a TLS feature.
pub(crate) fn not_built_in() -> Error {
    Error::Unsupported {
        what: "TLS is not built in: enable one of the features rustls, rustls-ring, native-tls".into(),
    }
}

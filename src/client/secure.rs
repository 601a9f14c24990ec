//! Logins and TLS of a builder.

use super::Builder;
use crate::config::{Credentials, Provider, Tls};
use crate::error::{Error, Result, Step};

/// Turns a connect timeout into the provider's error, if the credentials provider caused it.
pub(super) fn with_trouble(error: Error, provider: Option<&Provider>) -> Error {
    match (&error, provider.and_then(Provider::trouble)) {
        (Error::Timeout { step: Step::Connect, .. }, Some(message)) => Error::connection(message, false, None),
        _ => error,
    }
}

impl Builder {
    /// Sets a provider of credentials that is called before each login, for passwords or tokens that change or
    /// expire. It overrides the login of the URL, `username` and `password`.
    ///
    /// The provider is called once for each connection and each retry, so it should cache credentials that are still
    /// valid. Open connections keep their login. If the server closes a connection or refuses the login, the client
    /// calls the provider again for the next connection.
    ///
    /// If the provider fails, or does not answer within three quarters of
    /// [`Options::connect_timeout`](crate::Options::connect_timeout), the connection fails with [`Error::Connection`],
    /// at connect and later. The error's message contains the provider's error. The client retries with the usual
    /// pauses of a reconnect.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use distlock::{Client, Credentials};
    ///
    /// # async fn token() -> std::io::Result<String> { Ok(String::new()) }
    /// # async fn example() -> distlock::Result<()> {
    /// let client = Client::builder("rediss://locks.example.com:6379")
    ///     .credentials(|| async { Ok::<_, std::io::Error>(Credentials::new("locks", token().await?)) })
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, Fut, E>(mut self, provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.target.credentials = Some(Provider::new(provider));
        self
    }

    /// Sets the TLS configuration. Needed only if the server's certificate is not signed by an authority of the
    /// platform, or is not for the host that the client connects to; see [`guide::tls`](crate::guide::tls). Defaults to
    /// [`Tls::new`].
    ///
    /// Needs a URL with TLS (`rediss://`, `rediss-cluster://`, `rediss-sentinel://`, `rediss-replicated://`). With
    /// another URL, connecting fails with [`Error::Config`]; without a TLS feature, with [`Error::Unsupported`].
    pub fn tls(mut self, tls: Tls) -> Self {
        self.target.tls = Some(tls);
        self
    }

    /// Sets the TLS configuration for sentinels. Needs `rediss-sentinel://`, where sentinels and servers all use TLS.
    /// Defaults to [`tls`](Self::tls).
    pub fn sentinel_tls(mut self, tls: Tls) -> Self {
        self.sentinel_tls = Some(tls);
        self
    }

    /// Sets the login for sentinels, such as [`Credentials::password`]. Defaults to none: the login of the URL is for
    /// the servers.
    pub fn sentinel_login(mut self, login: Credentials) -> Self {
        self.sentinel_login.username = login.username;
        self.sentinel_login.password = Some(login.password);
        self
    }

    /// Refuses options for sentinels if the URL names no sentinels.
    pub(super) fn check_no_sentinels(&self) -> Result<()> {
        self.options.check_no_sentinels()?;
        let login = &self.sentinel_login;
        if login.username.is_none() && login.password.is_none() && self.sentinel_tls.is_none() {
            return Ok(());
        }
        Err(Error::config(
            "sentinel_login (sentinel_username, sentinel_password) and sentinel_tls need redis-sentinel:// or rediss-sentinel://",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Client;

    #[tokio::test]
    async fn confirm_primary_is_refused_without_sentinels() {
        let urls = ["redis://", "redis-cluster://", "redis-replicated://", "redis-sentinel://"]
            .map(|url| format!("{url}127.0.0.1:1"));
        for url in urls {
            let is_sentinel = url.starts_with("redis-sentinel");
            let url = if is_sentinel { format!("{url}/main") } else { url };
            let builder = Client::builder(&url)
                .configure(|options| options.confirm_primary = true)
                .connect_timeout(Duration::from_millis(50));
            let error = builder.connect_lazily().await.map(drop).expect_err(&url);
            let is_refused = matches!(&error, Error::Config { what } if what.starts_with("confirm_primary"));
            assert_eq!(is_refused, !is_sentinel, "{url}: {error:?}");
        }
    }
}

//! How a client makes itself known, and knows whom it speaks to: the builder's part of that.

use super::Builder;
use crate::config::{Credentials, Provider, Secret, Tls};
use crate::error::{Error, Result, Step};

/// What has run out of time over a provider of credentials is told so.
pub(super) fn with_trouble(error: Error, provider: Option<&Provider>) -> Error {
    match (&error, provider.and_then(Provider::trouble)) {
        (Error::Timeout { step: Step::Connect, .. }, Some(message)) => Error::connection(message, false, None),
        _ => error,
    }
}

impl Builder {
    /// Ask for the login before each connection is made, for passwords that change or end: tokens, say. What the URL, `username` and
    /// `password` say does not count then.
    ///
    /// The provider is asked once for each connection and each try to make one, so it had better remember what still holds. Connections
    /// that stand are not told of new credentials; a server that ends them finds the new ones at the next. While the provider fails, or
    /// does not answer within three quarters of [`Options::connect_timeout`](crate::Options::connect_timeout), there is no connection: connecting fails with
    /// [`Error::Connection`], which repeats what the provider's error says, and so do operations later; it is asked again and again, with
    /// the pauses of every reconnect. A login that the server refuses is an error as any other: asked for anew with the next connection.
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

    /// How TLS is spoken, where the platform's authorities and the host's name will not do. Only with a URL of TLS (`rediss://`,
    /// `rediss-cluster://`, `rediss-sentinel://`, `rediss-replicated://`); with another, connecting is [`Error::Config`], and without one of the TLS features [`Error::Unsupported`].
    /// Defaults to what [`Tls::new`] says. More in [`guide::tls`](crate::guide::tls).
    pub fn tls(mut self, tls: Tls) -> Self {
        self.target.tls = Some(tls);
        self
    }

    /// How sentinels speak TLS, where that is not as the servers do: only with `rediss-sentinel://`, by which both speak it. Defaults to
    /// what [`tls`](Self::tls) says.
    pub fn sentinel_tls(mut self, tls: Tls) -> Self {
        self.sentinel_tls = Some(tls);
        self
    }

    /// Log in to sentinels as this user. Defaults to none: the login in the URL is that of the servers which they look after.
    pub fn sentinel_username(mut self, username: impl Into<String>) -> Self {
        self.sentinel_login.username = Some(Secret(username.into()));
        self
    }

    /// Log in to sentinels with this password. Defaults to none.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_login.password = Some(Secret(password.into()));
        self
    }

    /// Refuses what is told of sentinels where there are none.
    pub(super) fn check_no_sentinels(&self) -> Result<()> {
        self.options.check_no_sentinels()?;
        let login = &self.sentinel_login;
        if login.username.is_none() && login.password.is_none() && self.sentinel_tls.is_none() {
            return Ok(());
        }
        Err(Error::config(
            "sentinel_username, sentinel_password and sentinel_tls are of use with redis-sentinel:// and rediss-sentinel:// only",
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
            let builder = Client::builder(&url).confirm_primary(true).connect_timeout(Duration::from_millis(50));
            let error = builder.connect_lazily().await.map(drop).expect_err(&url);
            let is_refused = matches!(&error, Error::Config { what } if what.starts_with("confirm_primary"));
            assert_eq!(is_refused, !is_sentinel, "{url}: {error:?}");
        }
    }
}

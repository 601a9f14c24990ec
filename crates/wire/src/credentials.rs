//! Logins: fixed, or from a provider that is called before each login.

use std::error::Error as StdError;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

/// Text that never appears in `Debug`, errors or logs.
#[derive(Clone, Default)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A user name and password from a credentials provider. Neither appears in `Debug`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Credentials {
    /// The user; `None` for the default user.
    #[doc(hidden)]
    pub username: Option<Secret>,
    /// The password.
    #[doc(hidden)]
    pub password: Secret,
}

impl Credentials {
    /// Returns the login of this user.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: Some(Secret(username.into())), password: Secret(password.into()) }
    }

    /// Returns the login of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { username: None, password: Secret(password.into()) }
    }
}

type Failure = Box<dyn StdError + Send + Sync>;
type Answer = BoxFuture<'static, Result<Credentials, Failure>>;

/// The callback that returns the credentials for each login.
#[derive(Clone)]
pub struct Provider(Arc<Asked>);

struct Asked {
    ask: Box<dyn Fn() -> Answer + Send + Sync>,
    /// Why the last request failed.
    trouble: Mutex<Option<String>>,
}

/// A request in flight. If dropped, it counts as unanswered.
struct Asking<'a> {
    of: &'a Asked,
    is_answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            *self.of.trouble.lock() = Some(SILENT.to_owned());
        }
    }
}

const SILENT: &str = "the provider of credentials does not answer";

impl Provider {
    /// Creates a provider from a callback.
    pub fn new<F, Fut, E>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Failure>,
    {
        let ask = move || {
            let asked = provider();
            async move { asked.await.map_err(Into::into) }.boxed()
        };
        Self(Arc::new(Asked { ask: Box::new(ask), trouble: Mutex::default() }))
    }

    /// Requests credentials. `within` is the time limit for connecting. The request gets three quarters of that time,
    /// so that a failure can be reported before the limit.
    ///
    /// # Cancel safety
    ///
    /// A dropped request counts as one without an answer.
    ///
    /// # Errors
    ///
    /// A text that says why there are no credentials: the callback failed, panicked, or did not answer.
    pub async fn ask(&self, within: Duration) -> Result<Credentials, String> {
        let mut asking = Asking { of: &self.0, is_answered: false };
        // A panic in the user's callback must not end the task that owns the connection.
        let asked = AssertUnwindSafe(async { (self.0.ask)().await }).catch_unwind();
        let answer = match tokio::time::timeout(within * 3 / 4, asked).await {
            Ok(Ok(Ok(credentials))) => Ok(credentials),
            Ok(Ok(Err(error))) => Err(format!("the provider of credentials has failed: {error}")),
            Ok(Err(_)) => Err("the provider of credentials has panicked".to_owned()),
            Err(_) => Err(SILENT.to_owned()),
        };
        *self.0.trouble.lock() = answer.as_ref().err().cloned();
        asking.is_answered = true;
        answer
    }

    /// Returns why the last request failed, for a caller whose connect has timed out.
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble.lock().clone()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

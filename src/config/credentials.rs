//! Logins that change while a client lives.

use std::error::Error as StdError;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::Secret;

/// A user's name and password, as a provider of credentials gives them: [`Builder::credentials`](crate::Builder::credentials).
///
/// Neither shows in `Debug`.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) username: Option<Secret>,
    pub(crate) password: Secret,
}

impl Credentials {
    /// The login of this user.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: Some(Secret(username.into())), password: Secret(password.into()) }
    }

    /// The login of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { username: None, password: Secret(password.into()) }
    }
}

type Failure = Box<dyn StdError + Send + Sync>;
type Answer = BoxFuture<'static, Result<Credentials, Failure>>;

/// Whoever is asked for credentials before each login.
#[derive(Clone)]
pub(crate) struct Provider(Arc<Asked>);

struct Asked {
    ask: Box<dyn Fn() -> Answer + Send + Sync>,
    /// Why there were none when they were asked for last.
    trouble: Mutex<Option<String>>,
}

/// A question that is under way. One that is given up had no answer.
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
    pub(crate) fn new<F, Fut, E>(provider: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Failure>,
    {
        let ask = move || {
            let asked = provider();
            Box::pin(async move { asked.await.map_err(Into::into) }) as Answer
        };
        Self(Arc::new(Asked { ask: Box::new(ask), trouble: Mutex::default() }))
    }

    /// Asks. `within`: how long connecting may take, of which a quarter is kept, so that the reason is told. An error says why there
    /// are none.
    pub(crate) async fn ask(&self, within: Duration) -> Result<Credentials, String> {
        let mut asking = Asking { of: &self.0, is_answered: false };
        // A panic of somebody else's code is not to end the task that keeps a connection.
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

    /// Why there were no credentials when they were asked for last, for whoever has run out of time over it.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.trouble.lock().clone()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}

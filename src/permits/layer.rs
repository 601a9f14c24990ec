//! An admission gate for services: a `tower` layer over permits.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use tower_layer::Layer;
use tower_service::Service;

use super::Permits;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Limits concurrent requests across all replicas to the number of permits. Made by [`Permits::layer`].
#[derive(Clone, Debug)]
pub struct PermitsLayer {
    permits: Permits,
    wait: Duration,
}

/// A service behind a [`PermitsLayer`].
#[derive(Clone, Debug)]
pub struct Gated<S> {
    inner: S,
    permits: Permits,
    wait: Duration,
}

/// The error of a request that got no permit within the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overloaded {
    name: Arc<str>,
}

impl Overloaded {
    /// Returns the name of the permits.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all permits of {:?} are taken: the request was shed; try again later", self.name)
    }
}

impl StdError for Overloaded {}

impl Permits {
    /// Returns a `tower` layer: each request acquires one permit, and waits for it for at most `wait`. A wait of zero
    /// means one try. Needs the feature `tower`.
    ///
    /// The permit is released when the response future ends, so a streamed body runs without it.
    ///
    /// # Cost
    ///
    /// Two commands per request if a permit is free: the request waits for the acquire, and the release is sent in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the response future releases the permit in the background.
    ///
    /// # Errors
    ///
    /// The response future fails with:
    ///
    /// - [`Overloaded`]: no permit was free within `wait`.
    /// - [`Error::Lost`](crate::Error::Lost): the permit was lost. The inner service's future was dropped.
    /// - The errors of [`Permits::acquire`].
    /// - The errors of the inner service.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn example<S>(client: &distlock::Client, service: S) -> impl Sized {
    /// use tower_layer::Layer as _;
    ///
    /// client.permits("checkout").layer(Duration::from_millis(200)).layer(service)
    /// # }
    /// ```
    #[must_use]
    pub fn layer(&self, wait: Duration) -> PermitsLayer {
        PermitsLayer { permits: self.clone(), wait }
    }
}

impl<S> Layer<S> for PermitsLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { inner, permits: self.permits.clone(), wait: self.wait }
    }
}

impl<S, R> Service<R> for Gated<S>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // `poll_ready` prepared this instance, so use it now and keep the clone for the next request.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (permits, wait) = (self.permits.clone(), self.wait);
        Box::pin(async move {
            let Some(guard) = permits.acquire_for(1, wait).await? else {
                return Err(Overloaded { name: Arc::clone(&permits.name.as_written) }.into());
            };
            // The drop of the guard releases the permit in the background.
            guard.run(inner.call(request)).await?.map_err(Into::into)
        })
    }
}

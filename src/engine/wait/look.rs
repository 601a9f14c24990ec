//! Repeats a query until it succeeds: for permits of a semaphore, a latch at zero, or the end of a barrier's round.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::{Asked, Awaited, Beside, Deadline, News, Patience, Pause, Waited, wait};
use crate::engine::Engine;
use crate::engine::registry::Waiter;
use crate::error::{Error, Result};
use crate::names::LockName;
use crate::world::Moment;

/// Sends the query once. Returns `None` if the wait must continue.
pub(crate) type Look<T> = Box<dyn FnMut() -> BoxFuture<'static, Result<Option<T>>> + Send>;

/// The query of a wait.
pub(crate) struct Looking<T> {
    pub(crate) look: Look<T>,
    /// If set, one success ends the waits of all tasks of this process. The function returns the output of each wait.
    pub(crate) for_all: Option<fn() -> T>,
    /// If set, each waiter sends its own queries: at once, after each message, and at this interval at the latest. For
    /// queries that renew a lease of the waiter, or that compare with what this waiter has seen.
    pub(crate) every: Option<Duration>,
}

struct Looks<'a, T> {
    engine: &'a Arc<Engine>,
    name: &'a Arc<LockName>,
    deadline: &'a Deadline,
    looking: Looking<T>,
    patience: Patience,
    failed: Option<Error>,
    has_seen_busy: bool,
    /// When the last query was sent.
    asked: Moment,
}

impl Engine {
    /// Repeats the query until it returns a value. Returns `None` if `wait` has passed. A wait of zero means one query.
    pub(crate) async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        name: &Arc<LockName>,
        wait: Option<Duration>,
        looking: Looking<T>,
    ) -> Result<Option<T>> {
        self.check(name)?;
        self.check_open()?;
        let (engine, name) = (Arc::clone(self), Arc::clone(name));
        let looked = self.home().run(async move {
            let deadline = Deadline::new(engine.topology.world(), wait, Duration::ZERO);
            let looks = Looks {
                engine: &engine,
                name: &name,
                deadline: &deadline,
                looking,
                patience: Patience::new(engine.patience()),
                failed: None,
                has_seen_busy: false,
                asked: deadline.began(),
            };
            looks.run().await.map_err(|error| error.about(&name.as_written))
        });
        looked.await
    }
}

impl<T: Send + 'static> Looks<'_, T> {
    async fn run(mut self) -> Result<Option<T>> {
        if self.deadline.is_once() {
            return self.look().await;
        }
        let (engine, deadline) = (self.engine, self.deadline);
        let mut waiter = engine.registry.enter(self.name, None);
        if self.looking.every.is_some() {
            waiter.hears_for_itself();
        }
        match wait(engine, deadline, &mut waiter, &mut self).await? {
            Waited::Done(output) => {
                if self.looking.for_all.is_some() && waiter.has_turn() {
                    waiter.opened(self.asked);
                }
                Ok(Some(output))
            }
            Waited::Silent => Err(self.missing()),
            Waited::Over | Waited::Displaced => match self.failed.take() {
                Some(error) => Err(error),
                // This waiter may never have had the turn. Then a query of the waiter with the turn counts.
                None if self.has_seen_busy || waiter.knows_busy(deadline.began()) => Ok(None),
                None => self.look().await,
            },
        }
    }

    fn missing(&mut self) -> Error {
        self.failed.take().unwrap_or_else(|| self.engine.topology.missing(self.name))
    }

    /// Sends the query once. A query that is not answered in time is dropped. If it was an acquire of a semaphore, it
    /// is completed and undone in the background.
    async fn look(&mut self) -> Result<Option<T>> {
        self.asked = self.engine.now();
        let timeout = self.engine.options.command_timeout;
        match self.deadline.answered(timeout, (self.looking.look)()).await {
            Some(looked) => looked,
            None if self.has_seen_busy && !self.engine.topology.is_silent(self.name, self.deadline.judged_at()) => {
                Ok(None)
            }
            None => Err(self.missing()),
        }
    }
}

impl<T: Send + 'static> Looks<'_, T> {
    /// Sends the query once. Returns the output, or the pause before the next query.
    async fn ask_once(&mut self) -> Result<std::result::Result<T, Pause>> {
        let error = match self.look().await {
            Ok(Some(output)) => return Ok(Ok(output)),
            Ok(None) => {
                (self.has_seen_busy, self.failed) = (true, None);
                self.patience.answered();
                let most = self.looking.every.unwrap_or(Duration::MAX).min(self.engine.options.poll_cap);
                return Ok(Err(Pause { most, news: News::Announced }));
            }
            Err(error) => error,
        };
        let most = self.engine.pause(self.patience.failures());
        if self.patience.failed(self.deadline.elapsed()) || !error.is_retryable() || self.deadline.is_over() {
            return Err(error);
        }
        self.failed = Some(error);
        Ok(Err(Pause { most, news: News::Connection }))
    }
}

impl<T: Send + 'static> Awaited for Looks<'_, T> {
    type Output = T;

    async fn ask_beside(&mut self, waiter: &mut Waiter) -> Result<Beside<T>> {
        if waiter.joins() {
            if let Some(for_all) = self.looking.for_all.filter(|_| waiter.is_open(self.deadline.began())) {
                return Ok(Beside::Done(for_all()));
            }
            waiter.rejoin();
            return Ok(Beside::Again);
        }
        if self.looking.every.is_none() {
            return Ok(Beside::Wait(Duration::MAX));
        }
        Ok(match self.ask_once().await? {
            Ok(output) => Beside::Done(output),
            Err(pause) => Beside::Wait(pause.most),
        })
    }

    fn received(&mut self, waiter: &Waiter) -> Option<T> {
        // Called only because it clears the wake-up flag: these waits hand nothing over.
        drop(waiter.handed());
        None
    }

    fn pause_before_asking(&mut self, _: &Waiter, _: bool, _: bool) -> Option<Pause> {
        None
    }

    async fn ask(&mut self, waiter: &mut Waiter, _listening: bool) -> Result<Asked<T>> {
        Ok(match self.ask_once().await? {
            Ok(output) => Asked::Done(output),
            Err(pause) => {
                if self.failed.is_none() {
                    waiter.note_busy();
                }
                Asked::Busy(pause)
            }
        })
    }
}

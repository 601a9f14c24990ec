//! Attempts at every segment, side by side.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;

use super::is_everybodys;
use crate::acquire::Acquire;
use crate::engine::wait::{Deadline, pause};
use crate::error::{Error, Result};
use crate::group::{Asking, PAUSES, ask, patience};
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::world::Moment;

/// How a segment is asked for now.
type How = Box<dyn Fn() -> Acquire + Send + Sync>;

/// One attempt under way at each segment. A segment that fails is asked again after a pause, for as long as another one may
/// still come free: its server may be back, or its key be mended, long before that one is.
pub(super) struct Asked<'a> {
    segments: &'a [Arc<dyn DistLock>],
    how: Arc<How>,
    /// When nobody asks any more, and the clock.
    deadline: &'a Deadline,
    asking: Asking,
    /// True when the owner is not to come in again.
    not_reentrant: bool,
    /// How long an attempt that fails may take at the most to say so.
    quiet: Duration,
    /// What each segment has said last.
    said: Vec<Said>,
}

/// What a segment has said.
#[derive(Clone, Default)]
struct Said {
    last: Option<Result<()>>,
    /// How often it has failed since it answered.
    failures: u32,
    /// When the attempt was begun that is under way since it failed.
    again: Option<Moment>,
}

impl Said {
    /// True while it has failed, and the attempt since then may fail as well: one that takes longer than failures do waits
    /// for a holder.
    fn fails(&self, now: Moment, quiet: Duration) -> bool {
        matches!(self.last, Some(Err(_))) && self.again.is_none_or(|again| now.since(again) <= quiet)
    }
}

impl<'a> Asked<'a> {
    /// Asks for all of them, in turn from this one on. `deadline`: until when a segment that fails is asked again.
    pub(super) fn all(segments: &'a [Arc<dyn DistLock>], begin: usize, deadline: &'a Deadline, how: How) -> Self {
        let said = vec![Said::default(); segments.len()];
        // The patience of an attempt begins with its first failure, and ends with its last.
        let (quiet, not_reentrant) = (patience(segments) * 2, how().not_reentrant);
        let asking = Asking::new();
        let mut asked = Self { segments, how: Arc::new(how), deadline, asking, not_reentrant, quiet, said };
        for n in 0..segments.len() {
            asked.ask(begin.wrapping_add(n) % segments.len());
        }
        asked
    }

    /// Asks for one that is not being asked for.
    pub(super) fn ask(&mut self, at: usize) {
        self.asking.push(ask(&self.segments[at], at, (self.how)()));
    }

    /// The next outcome that ends an attempt for good: a segment that was had, or is known to be held by others. None once
    /// there is nothing to wait for: all have failed, or would, or the wait is over.
    pub(super) async fn next(&mut self) -> Option<(usize, Option<Guard>)> {
        while let Some((at, outcome)) = self.asking.next().await {
            let said = &mut self.said[at];
            match outcome {
                Ok(guard) => {
                    *said = Said { last: Some(Ok(())), ..Said::default() };
                    return Some((at, guard));
                }
                Err(error) => {
                    let (passes, ends_all) = (error.is_retryable(), is_everybodys(&error, self.not_reentrant));
                    (said.last, said.again) = (Some(Err(error)), None);
                    let now = self.deadline.world().now();
                    if ends_all || self.said.iter().all(|said| said.fails(now, self.quiet)) {
                        return None;
                    }
                    if !self.deadline.is_over() {
                        self.ask_again(at, passes);
                    }
                }
            }
        }
        None
    }

    /// Asks for one that has failed, after a pause: the longest where the reason does not pass by itself.
    fn ask_again(&mut self, at: usize, passes: bool) {
        let said = &mut self.said[at];
        let world = self.deadline.world();
        let failures = if passes { said.failures } else { u32::MAX };
        let rest = self.deadline.at_most(pause(&**world, PAUSES, failures));
        said.failures = said.failures.saturating_add(1);
        said.again = Some(world.now() + rest);
        let (lock, how, deadline) = (Arc::clone(&self.segments[at]), Arc::clone(&self.how), self.deadline.clone());
        let last = said.last.clone();
        let again: BoxFuture<'static, _> = Box::pin(async move {
            tokio::time::sleep(rest).await;
            match last {
                // Nothing more comes of it.
                Some(Err(error)) if deadline.is_over() => (at, Err(error)),
                _ => ask(&lock, at, how()).await,
            }
        });
        self.asking.push(again);
    }

    /// What the segments have said last; of those that have said nothing yet, nothing.
    pub(super) fn outcomes(self) -> impl Iterator<Item = Result<()>> {
        self.said.into_iter().filter_map(|said| said.last)
    }

    /// Why all have failed: where it is not the same for all, a reason that passes, for it may be worth another try.
    pub(super) fn why(self) -> Option<Error> {
        let not_reentrant = self.not_reentrant;
        let rank = |error: &Error| (is_everybodys(error, not_reentrant), error.is_retryable());
        self.outcomes().filter_map(Result::err).max_by_key(rank)
    }
}

//! Parallel attempts at every segment.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;

use super::tally::applies_to_all_segments;
use crate::acquire::Acquire;
use crate::engine::wait::{Deadline, pause};
use crate::error::{Error, Result};
use crate::group::{Asking, PAUSES, ask, patience};
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::world::Moment;

/// Makes the options of the next attempt.
type How = Box<dyn Fn() -> Acquire + Send + Sync>;

/// One pending attempt at each segment. While another segment may still become free, a failed segment is retried after
/// a pause: its server may recover, or its key may be repaired.
pub(super) struct Asked<'a> {
    segments: &'a [Arc<dyn DistLock>],
    how: Arc<How>,
    /// The end of the retries, and the clock.
    deadline: &'a Deadline,
    asking: Asking,
    /// True if re-entry is refused.
    not_reentrant: bool,
    /// The longest time that a failing attempt may take. An attempt that takes longer is waiting while another owner
    /// holds the segment.
    quiet: Duration,
    said: Vec<Said>,
}

#[derive(Clone, Default)]
struct Said {
    last: Option<Result<()>>,
    /// Failures since the last answer.
    failures: u32,
    /// Start of the pending attempt, if it follows a failure.
    again: Option<Moment>,
}

impl Said {
    /// Returns true if the segment has failed, and its pending attempt may fail as well because it is not older than
    /// `quiet`.
    fn fails(&self, now: Moment, quiet: Duration) -> bool {
        matches!(self.last, Some(Err(_))) && self.again.is_none_or(|again| now.since(again) <= quiet)
    }
}

impl<'a> Asked<'a> {
    /// Starts an attempt at every segment, beginning with number `begin`. `deadline`: the end of retries.
    pub(super) fn all(segments: &'a [Arc<dyn DistLock>], begin: usize, deadline: &'a Deadline, how: How) -> Self {
        let said = vec![Said::default(); segments.len()];
        // Twice the time for retries, because that time starts with the first failure, and one more timeout may follow
        // it.
        let (quiet, not_reentrant) = (patience(segments) * 2, how().not_reentrant);
        let asking = Asking::new();
        let mut asked = Self { segments, how: Arc::new(how), deadline, asking, not_reentrant, quiet, said };
        for n in 0..segments.len() {
            asked.ask(begin.wrapping_add(n) % segments.len());
        }
        asked
    }

    /// Starts an attempt at a segment that has no pending attempt.
    pub(super) fn ask(&mut self, at: usize) {
        self.asking.push(ask(&self.segments[at], at, (self.how)()));
    }

    /// Waits for the next attempt that ends with an answer: a guard, or None for a segment held by others. Returns None
    /// if there is nothing left to wait for: all segments fail, an error applies to all segments, or the wait has
    /// ended.
    pub(super) async fn next(&mut self) -> Option<(usize, Option<Guard>)> {
        while let Some((at, outcome)) = self.asking.next().await {
            let said = &mut self.said[at];
            match outcome {
                Ok(guard) => {
                    *said = Said { last: Some(Ok(())), ..Said::default() };
                    return Some((at, guard));
                }
                Err(error) => {
                    let (passes, ends_all) =
                        (error.is_retryable(), applies_to_all_segments(&error, self.not_reentrant));
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

    /// Retries a failed segment after a pause. If the error is not temporary, this is the longest pause.
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
                // The wait has ended: no retry.
                Some(Err(error)) if deadline.is_over() => (at, Err(error)),
                _ => ask(&lock, at, how()).await,
            }
        });
        self.asking.push(again);
    }

    /// Returns the last outcome of each segment that has one.
    pub(super) fn outcomes(self) -> impl Iterator<Item = Result<()>> {
        self.said.into_iter().filter_map(|said| said.last)
    }

    /// Returns why all segments have failed. Prefers an error that applies to all segments, then a temporary error,
    /// after which the caller may retry.
    pub(super) fn why(self) -> Option<Error> {
        let not_reentrant = self.not_reentrant;
        let rank = |error: &Error| (applies_to_all_segments(error, not_reentrant), error.is_retryable());
        self.outcomes().filter_map(Result::err).max_by_key(rank)
    }
}

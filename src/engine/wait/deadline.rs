//! The time limit of an acquire.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::standstill::{OVERDUE, READING, within_of};
use crate::world::{Moment, World};

/// A reply that arrives at most this long after the end of the wait still counts.
pub(crate) const GRACE: Duration = Duration::from_millis(15);

#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    world: Arc<dyn World>,
    began: Moment,
    wait: Option<Duration>,
    /// Time that the enclosing group acquire had waited before this acquire.
    waited_before: Duration,
}

impl Deadline {
    /// Starts now. `wait`: None for no limit.
    pub(crate) fn new(world: &Arc<dyn World>, wait: Option<Duration>, waited_before: Duration) -> Self {
        Self { world: Arc::clone(world), began: world.now(), wait, waited_before }
    }

    pub(crate) const fn began(&self) -> Moment {
        self.began
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.world.now().since(self.began)
    }

    pub(crate) const fn waited_before(&self) -> Duration {
        self.waited_before
    }

    /// Time that the whole acquire has waited, including the enclosing group acquire.
    pub(crate) fn waited(&self) -> Duration {
        self.waited_before + self.elapsed()
    }

    /// True if the acquire makes a single attempt, without a wait.
    pub(crate) fn is_once(&self) -> bool {
        self.wait == Some(Duration::ZERO)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.wait.is_some_and(|wait| self.elapsed() >= wait)
    }

    /// Remaining time. None without a limit. With a limit above zero it is at least 1 ns, because zero would mean a
    /// single attempt without a wait.
    pub(crate) fn left(&self) -> Option<Duration> {
        let least = if self.is_once() { Duration::ZERO } else { Duration::from_nanos(1) };
        self.wait.map(|wait| wait.saturating_sub(self.elapsed()).max(least))
    }

    /// Remaining time of the first half of the wait. None without a limit.
    pub(crate) fn left_to_half(&self) -> Option<Duration> {
        self.wait.map(|wait| (wait / 2).saturating_sub(self.elapsed()))
    }

    pub(crate) fn at_most(&self, most: Duration) -> Duration {
        self.left().map_or(most, |left| left.min(most))
    }

    /// Remaining time for a reply: until [`GRACE`] after the end of the wait.
    pub(crate) fn left_to_answer(&self) -> Option<Duration> {
        let end = self.wait?.saturating_add(GRACE);
        Some(end.saturating_sub(self.elapsed()))
    }

    /// Remaining time for a reply. For a single attempt (a wait of zero): the rest of `once`, the command's timeout,
    /// plus [`GRACE`].
    pub(crate) fn left_to_answer_within(&self, once: Duration) -> Option<Duration> {
        if !self.is_once() {
            return self.left_to_answer();
        }
        Some(once.saturating_add(GRACE).saturating_sub(self.elapsed()))
    }

    /// The output of `work`, or None if it is not done within [`Self::left_to_answer_within`].
    pub(crate) async fn answered<T>(&self, once: Duration, work: impl Future<Output = T>) -> Option<T> {
        let Some(left) = self.left_to_answer_within(once) else { return Some(work.await) };
        // The command's own timeout is `once`. After a standstill (`runtime/mod.rs`) the command may get extra time,
        // which this limit must allow too.
        let overdue = if self.is_once() { OVERDUE - GRACE } else { OVERDUE };
        within_of(left, overdue, work).await
    }

    /// The moment for which [`Self::finds_silent`] judges servers: the end of the time for replies, or now if that is
    /// earlier. A standstill of this process after that moment does not count against a server.
    pub(crate) fn judged_at(&self) -> Moment {
        let now = self.world.now();
        self.wait.map_or(now, |wait| now.min(self.began + wait + GRACE))
    }

    /// Time to read replies that have arrived unread, at the end of the wait. Longer if the wait's timer fired late,
    /// after a standstill.
    pub(crate) fn reading(&self) -> Duration {
        let overdue = self.wait.map_or(Duration::ZERO, |wait| self.elapsed().saturating_sub(wait));
        if overdue < OVERDUE { GRACE } else { READING }
    }

    /// Returns true if servers are silent at the end of the wait. After a standstill, replies may have arrived unread.
    /// So silent servers are judged again after `reading`, as of the same moment. A single attempt needs no second
    /// judgement, because it ends with its command's timeout.
    pub(crate) async fn finds_silent(&self, reading: Duration, are_silent: impl Fn(Moment) -> bool) -> bool {
        let at = self.judged_at();
        let silent = are_silent(at);
        if self.is_once() || !silent {
            return silent;
        }
        tokio::time::sleep(reading).await;
        are_silent(at)
    }

    pub(crate) fn world(&self) -> &Arc<dyn World> {
        &self.world
    }
}

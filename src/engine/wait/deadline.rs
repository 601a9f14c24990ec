//! How long an acquire may take.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::standstill::{OVERDUE, READING, within_of};
use crate::world::{Moment, World};

/// How long a reply may come after the end of the wait and still count: success beats the deadline.
pub(crate) const GRACE: Duration = Duration::from_millis(15);

/// The wait of one acquire: when it began, when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    world: Arc<dyn World>,
    began: Moment,
    wait: Option<Duration>,
    /// For how long the acquire that this one is a part of had waited before.
    waited_before: Duration,
}

impl Deadline {
    /// Begins now. `wait`: None without a limit. `waited_before`: for how long the acquire that this one is a
    /// part of has waited.
    pub(crate) fn new(world: &Arc<dyn World>, wait: Option<Duration>, waited_before: Duration) -> Self {
        Self { world: Arc::clone(world), began: world.now(), wait, waited_before }
    }

    /// When the wait began.
    pub(crate) const fn began(&self) -> Moment {
        self.began
    }

    /// The time since the wait began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.world.now().since(self.began)
    }

    /// For how long the acquire that this one is a part of had waited before.
    pub(crate) const fn waited_before(&self) -> Duration {
        self.waited_before
    }

    /// For how long the whole acquire has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.waited_before + self.elapsed()
    }

    /// True when there is one attempt and no waiting.
    pub(crate) fn is_once(&self) -> bool {
        self.wait == Some(Duration::ZERO)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.wait.is_some_and(|wait| self.elapsed() >= wait)
    }

    /// What is left. None without a limit. At least 1 ns where there was a wait: nothing would mean one attempt without any.
    pub(crate) fn left(&self) -> Option<Duration> {
        let least = if self.is_once() { Duration::ZERO } else { Duration::from_nanos(1) };
        self.wait.map(|wait| wait.saturating_sub(self.elapsed()).max(least))
    }

    /// The rest of the first half of the wait. None without a limit.
    pub(crate) fn left_to_half(&self) -> Option<Duration> {
        self.wait.map(|wait| (wait / 2).saturating_sub(self.elapsed()))
    }

    /// What is left, `most` at the most.
    pub(crate) fn at_most(&self, most: Duration) -> Duration {
        self.left().map_or(most, |left| left.min(most))
    }

    /// What is left for an answer: until shortly after the end.
    pub(crate) fn left_to_answer(&self) -> Option<Duration> {
        let end = self.wait?.saturating_add(GRACE);
        Some(end.saturating_sub(self.elapsed()))
    }

    /// As `left_to_answer`; for a single attempt (a wait of zero), what is left of `once`, which an answer may take.
    pub(crate) fn left_to_answer_within(&self, once: Duration) -> Option<Duration> {
        if !self.is_once() {
            return self.left_to_answer();
        }
        Some(once.saturating_add(GRACE).saturating_sub(self.elapsed()))
    }

    /// What some work brings within the time for an answer; None if nothing. As [`Self::left_to_answer_within`].
    pub(crate) async fn answered<T>(&self, once: Duration, work: impl Future<Output = T>) -> Option<T> {
        let Some(left) = self.left_to_answer_within(once) else { return Some(work.await) };
        // The command's own limit is `once`: whoever is given a moment by that is given it here.
        let overdue = if self.is_once() { OVERDUE - GRACE } else { OVERDUE };
        within_of(left, overdue, work).await
    }

    /// The moment at which answers cease to count, or now where that is earlier: a standstill of this process after it says
    /// nothing about a server.
    pub(crate) fn judged_at(&self) -> Moment {
        let now = self.world.now();
        self.wait.map_or(now, |wait| now.min(self.began + wait + GRACE))
    }

    /// How long it takes to read what may be here unread, for one whose timer was that of the wait: longer where that fired
    /// after a standstill.
    pub(crate) fn reading(&self) -> Duration {
        let overdue = self.wait.map_or(Duration::ZERO, |wait| self.elapsed().saturating_sub(wait));
        if overdue < OVERDUE { GRACE } else { READING }
    }

    /// True when servers are found to be silent at the end of the wait. A standstill within it says nothing about them: what
    /// is here unread is read first, and then they are looked at once more, as of the same moment. A single attempt ends
    /// with the timeout of its command in any case.
    pub(crate) async fn finds_silent(&self, reading: Duration, are_silent: impl Fn(Moment) -> bool) -> bool {
        let at = self.judged_at();
        let silent = are_silent(at);
        if self.is_once() || !silent {
            return silent;
        }
        tokio::time::sleep(reading).await;
        are_silent(at)
    }

    /// The world whose clock this is.
    pub(crate) fn world(&self) -> &Arc<dyn World> {
        &self.world
    }
}

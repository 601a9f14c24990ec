//! One acquire of any segment: first one attempt at each segment in turn, then a wait for all segments at once.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::Striped;
use super::asked::Asked;
use super::tally::Tally;
use crate::acquire::Acquire;
use crate::engine::wait::Deadline;
use crate::error::{Deadlock, Error, Result};
use crate::group::{deadline, missing, part};
use crate::guard::Guard;
use crate::owner::Owner;

type Grant = (usize, Guard);

impl Striped {
    pub(super) async fn carry_out(&self, how: Acquire) -> Result<Option<Grant>> {
        how.check()?;
        how.check_no_lock_delay("striped")?;
        self.check()?;
        let deadline = &deadline(&self.segments, &how);
        let given = how.owner.clone().or_else(Owner::current);
        if let Some(owner) = given.as_ref().filter(|_| how.not_reentrant) {
            self.refuse_reentry(owner, deadline).await?;
        }
        let begin = self.next.fetch_add(1, Ordering::Relaxed);
        // If tasks of this process already wait, this acquire queues behind them.
        let behind = given.is_none() && !deadline.is_once() && self.queues.is_waiting(how.lease);
        let mut tally = Tally::new(how.not_reentrant);
        if !behind && let Some(grant) = self.try_each(&how, begin, deadline, &mut tally).await? {
            return Ok(Some(grant));
        }
        if deadline.is_over() || (!behind && tally.is_hopeless()) {
            return tally.verdict();
        }
        // After temporary errors, an acquire with a time limit waits on its own, because at the end of its wait it must
        // know the outcomes of its own attempts. An acquire with a given owner waits on its own too, because the
        // attempts of other tasks have other owners.
        if given.is_none() && (tally.passing.is_none() || how.wait.is_none()) {
            return self.queues.wait(&self.segments, begin, how.lease, deadline).await;
        }
        self.wait_alone(how, given, begin, deadline).await
    }

    async fn refuse_reentry(&self, owner: &Owner, deadline: &Deadline) -> Result<()> {
        let Some(holds) = self.within(deadline, self.holds_any(owner)).await else {
            return Err(missing(&self.segments));
        };
        if holds? {
            return Err(Error::WouldDeadlock { name: Arc::clone(&self.name), why: Deadlock::NotReentrant });
        }
        Ok(())
    }

    /// Tries each segment once, one after another, beginning with number `begin`. Adds the outcomes of segments that
    /// were not acquired to `tally`.
    async fn try_each(
        &self,
        how: &Acquire,
        begin: usize,
        deadline: &Deadline,
        tally: &mut Tally,
    ) -> Result<Option<Grant>> {
        for n in 0..self.segments.len() {
            let at = begin.wrapping_add(n) % self.segments.len();
            let once = Acquire { waited_before: deadline.waited(), ..how.clone().wait(Duration::ZERO) };
            let segment = &self.segments[at];
            match self.within(deadline, segment.acquire(once)).await {
                Some(Ok(Some(guard))) => return Ok(Some((at, guard))),
                Some(outcome) => tally.note(outcome.map(drop))?,
                // The wait ended before the reply, so no holder was seen.
                None => tally.note(Err(missing(slice::from_ref(segment))))?,
            }
            let over =
                if deadline.is_once() { self.left(deadline) == Some(Duration::ZERO) } else { deadline.is_over() };
            // The wait that follows asks all segments in parallel, and retries.
            if over || (tally.passing.is_some() && !deadline.is_once()) {
                break;
            }
        }
        Ok(None)
    }

    /// Waits for any segment by attempts of this acquire alone.
    async fn wait_alone(
        &self,
        how: Acquire,
        owner: Option<Owner>,
        begin: usize,
        deadline: &Deadline,
    ) -> Result<Option<Grant>> {
        let mut tally = Tally::new(how.not_reentrant);
        let end = deadline.clone();
        let how = Box::new(move || Acquire {
            wait: end.left(),
            owner: owner.clone(),
            waited_before: end.waited(),
            ..how.clone()
        });
        let mut asked = Asked::all(&self.segments, begin, deadline, how);
        while let Some((at, guard)) = asked.next().await {
            if let Some(guard) = guard {
                // The other attempts are dropped: they give up their places in queues, and late grants are released.
                return Ok(Some((at, guard)));
            }
        }
        for outcome in asked.outcomes() {
            tally.note(outcome)?;
        }
        tally.verdict()
    }

    /// Time left for answers. If the acquire makes only one attempt, all segments together get one command timeout.
    fn left(&self, deadline: &Deadline) -> Option<Duration> {
        deadline.left_to_answer_within(self.once())
    }

    /// Time limit of one attempt: the client's command timeout.
    fn once(&self) -> Duration {
        let part = self.segments.first().and_then(part);
        part.map_or(Duration::MAX, |part| part.client.engine().options.command_timeout)
    }

    /// Returns the output of `work`, or None if the time for answers ends first.
    async fn within<T>(&self, deadline: &Deadline, work: impl Future<Output = T>) -> Option<T> {
        deadline.answered(self.once(), work).await
    }

    /// Returns true if this owner holds any segment. Skips keys that are no locks.
    async fn holds_any(&self, owner: &Owner) -> Result<bool> {
        let mut asking: FuturesUnordered<_> = self.segments.iter().map(|segment| segment.is_held_by(owner)).collect();
        let mut tally = Tally::new(false);
        while let Some(held) = asking.next().await {
            match held {
                Ok(true) => return Ok(true),
                outcome => tally.note(outcome.map(drop))?,
            }
            if tally.passing.is_some() {
                break;
            }
        }
        tally.passing.map_or(Ok(false), Err)
    }
}

//! Lanes: connections for calls that replicas must acknowledge.
//!
//! `WAIT` blocks its connection, and covers only the writes of that connection. So these calls have connections of
//! their own, called lanes:
//!
//! 1. A call is queued. If all lanes are busy, another lane is opened, up to three.
//! 2. A free lane takes a group: the queued calls, and one `WAIT` behind them, written at once.
//! 3. Each reply is passed on as it arrives, before the `WAIT` has ended.
//! 4. The number of replicas that `WAIT` returns is passed on to the calls whose writes must be acknowledged
//!    ([`Script::gains`]).
//!
//! [`Script::gains`]: crate::Script::gains
//!
//! ```text
//!    calls ──► queue ──► lane 1   EVALSHA EVALSHA EVALSHA WAIT │ next group
//!                   ╰──► lane 2   EVALSHA WAIT                 │
//!                   ╰──► lane 3   (made when both others are busy)
//! ```
//!
//! A group is sent as a whole on one connection, or not at all (`Pipeline::push_together`). If the connection breaks,
//! the unanswered part of the group fails, with its `WAIT`. Nothing is sent again on another connection, where a `WAIT`
//! would not cover the first writes.
//!
//! A script that the server does not know is sent again, by its source, in a second group with a `WAIT` of its own.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::dial::{Dialer, Target};
use crate::standstill::within;
use crate::{Acknowledge, Call, Demotions, Fault, FaultKind, Replied, Settings};
use queue::{Queue, Queued};

mod group;
mod queue;

/// The lanes to one server. They are opened when they are needed.
pub struct Lanes {
    queue: Arc<Queue>,
}

impl Lanes {
    pub(super) fn over(dialer: Arc<Dialer>, demotions: Demotions) -> Self {
        Self { queue: Arc::new(Queue::new(dialer, demotions)) }
    }

    /// Creates the lanes to this server. Must be called within a tokio runtime. All connections to the server share
    /// `demotions`, where they report that the server became a replica.
    pub fn to(target: Target, settings: &Settings, demotions: Demotions) -> Self {
        Self::over(Arc::new(Dialer::new(target, settings)), demotions)
    }

    /// Runs a call once, and reports how many replicas have its writes. Nothing is sent before the first poll.
    ///
    /// `sent` is notified when a lane takes the call: from then on an answer is expected.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a call that no lane has taken is not sent. A call that a lane has taken may run.
    ///
    /// # Errors
    ///
    /// The errors of a command ([`FaultKind`]). [`FaultKind::NotSent`] also means that no lane took the call in time.
    pub fn run(
        &self,
        call: Call,
        how: Acknowledge,
        sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        let queue = Arc::clone(&self.queue);
        Box::pin(async move {
            let (answer, mut replied) = oneshot::channel();
            let limit = queue.limit(how.within);
            let number = queue.push(|number| Queued { number, call, how, sent: Some(sent), answer })?;
            let mut outcome = within(limit, &mut replied).await;
            if outcome.is_none() {
                if queue.give_up(number) {
                    return Err(Fault::new(FaultKind::NotSent, "what was sent before is not acknowledged yet"));
                }
                // A lane has taken the call, perhaps just now. So the wait starts again, for the whole group.
                outcome = within(limit, replied).await;
            }
            match outcome {
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) => Err(queue.ended()),
                None => Err(Fault::no_answer()),
            }
        })
    }

    /// Ends the lanes, and returns their tasks. A lane's socket is closed when its task has ended.
    pub fn end(&self) -> Vec<JoinHandle<()>> {
        self.queue.end()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.end();
    }
}

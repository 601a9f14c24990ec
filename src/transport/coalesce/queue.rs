//! The queue: decides whether a call is sent at once or in a batch, and when a batch is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Outcome;
use super::batch::has_shape;
use crate::config::Options;
use crate::runtime::reaper::Reaper;
use crate::transport::script::Script;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Call, Transport};

/// Maximum single calls in flight per connection. Further calls queue. Below this number, batches cost more than they
/// save.
const SINGLES: usize = 4;

/// Maximum batches in flight per connection. More than one, so that the server has a batch to run while this client
/// reads the replies of another.
const WINDOW: usize = 3;

/// Lower limit of a batch's share of the work.
const LEAST: usize = 4;

/// If the last batch to a server of a cluster had at least this many calls, the next batch waits for its reply. Reason:
/// the calls are spread over the servers, so each queue fills more slowly, and many small commands cost more than a few
/// large ones.
const CROWD: usize = 4;

/// Maximum work in one command (see `work` in `batch.rs`). Limited because a script blocks the server, for about 4
/// to 10 µs a call.
const MOST: usize = 64;

/// A queue with a larger capacity than this shrinks once less than an eighth of the capacity is used.
const LONG: usize = 256;

pub(super) struct Core {
    pub(super) inner: Arc<dyn Transport>,
    /// Set for a server of a cluster, where the calls of one command may be in several slots.
    pub(super) undeclared: Option<Arc<Undeclared>>,
    pub(super) reaper: Reaper,
    singles: usize,
    window: usize,
    pub(super) timeout: Duration,
    /// True once the server has refused a batch with `CROSSSLOT`: it is a cluster behind a proxy.
    pub(super) refused: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of single calls in flight. Each is polled by its caller's task. If that task does not run, the
    /// call stays in flight.
    singles: usize,
    /// Number of batches in flight.
    batches: usize,
    /// Work of all calls, queued or in flight.
    work: usize,
    /// True while a job is about to take a batch from the queue.
    is_due: bool,
    /// True if the last batch had at least `CROWD` calls.
    is_crowded: bool,
    queue: VecDeque<Queued>,
}

pub(super) struct Queued {
    pub(super) call: Call,
    pub(super) many: &'static Script,
    pub(super) work: usize,
    pub(super) answer: oneshot::Sender<Outcome>,
}

/// A command in flight. Its drop, when the command is answered or given up, lets queued calls start.
pub(super) struct InFlight {
    core: Arc<Core>,
    is_single: bool,
    work: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        Core::change(&self.core, |state| {
            state.work -= self.work;
            if self.is_single {
                state.singles -= 1;
            } else {
                state.batches -= 1;
            }
        });
    }
}

/// Held by a job that will take a batch. If the job is dropped unpolled, the runtime has ended, and all queued calls
/// fail.
struct Due(Option<Arc<Core>>);

impl Drop for Due {
    fn drop(&mut self) {
        let Some(core) = self.0.take() else { return };
        let mut state = core.state.lock();
        let failed = std::mem::take(&mut state.queue);
        state.work -= failed.iter().map(|queued| queued.work).sum::<usize>();
        state.is_due = false;
        drop(state);
        drop(failed);
    }
}

impl Core {
    pub(super) fn new(
        inner: Arc<dyn Transport>,
        undeclared: Option<Arc<Undeclared>>,
        options: &Options,
        reaper: Reaper,
    ) -> Self {
        Self {
            inner,
            undeclared,
            reaper,
            singles: SINGLES * options.pool_size,
            window: WINDOW * options.pool_size,
            timeout: options.command_timeout,
            refused: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Admits a single call, if few calls and no batches are in flight, and none are queued.
    pub(super) fn admit(core: &Arc<Self>) -> Option<InFlight> {
        let mut state = core.state.lock();
        if state.singles >= core.singles || state.batches > 0 || !state.queue.is_empty() {
            return None;
        }
        state.singles += 1;
        state.work += 1;
        Some(InFlight { core: Arc::clone(core), is_single: true, work: 1 })
    }

    pub(super) fn enqueue(core: &Arc<Self>, queued: Queued) {
        Self::change(core, |state| {
            state.work += queued.work;
            state.queue.push_back(queued);
        });
    }

    /// Changes the state, then starts a job that sends a batch, if there is room.
    ///
    /// The job takes its batch when it is polled, so calls of tasks that run before the job are in the batch.
    fn change(core: &Arc<Self>, by: impl FnOnce(&mut State)) {
        let mut state = core.state.lock();
        by(&mut state);
        let is_due = !state.queue.is_empty() && core.has_room(&state) && !state.is_due;
        state.is_due |= is_due;
        drop(state);
        if is_due {
            let mut due = Due(Some(Arc::clone(core)));
            // Closing need not wait for this job, because each caller waits for its own call.
            core.reaper.finish_uncounted(Box::pin(async move {
                if let Some(core) = due.0.take() {
                    Self::send(&core).await;
                }
            }));
        }
    }

    async fn send(core: &Arc<Self>) {
        // Calls without callers are dropped after the mutex is unlocked, because a drop may run foreign code.
        let (mut next, mut gone) = (None, Vec::new());
        Self::change(core, |state| {
            state.is_due = false;
            next = core.next(state, &mut gone);
        });
        drop(gone);
        if let Some((batch, work)) = next {
            let in_flight = InFlight { core: Arc::clone(core), is_single: false, work };
            core.run(batch).await;
            drop(in_flight);
        }
    }

    fn has_room(&self, state: &State) -> bool {
        state.batches < self.window(state)
    }

    /// Maximum batches in flight.
    fn window(&self, state: &State) -> usize {
        if self.undeclared.is_some() && state.is_crowded { 1 } else { self.window }
    }

    /// Takes the next batch from the queue if there is room. Calls whose callers are gone are moved to `gone`.
    fn next(&self, state: &mut State, gone: &mut Vec<Queued>) -> Option<(Vec<Queued>, usize)> {
        if !self.has_room(state) {
            return None;
        }
        // An equal share of all calls for each batch.
        let most = state.work.div_ceil(self.window(state)).clamp(LEAST, MOST);
        let (mut batch, mut work): (Vec<Queued>, usize) = (Vec::new(), 0);
        while let Some(queued) = state.queue.front() {
            let fits = |first: &Queued| work + queued.work <= most && std::ptr::eq(first.many, queued.many);
            if !batch.first().is_none_or(fits) {
                break;
            }
            let Some(queued) = state.queue.pop_front() else { break };
            if queued.answer.is_closed() {
                state.work -= queued.work;
                gone.push(queued);
                continue;
            }
            work += queued.work;
            batch.push(queued);
        }
        if state.queue.capacity() > LONG && state.queue.len() < state.queue.capacity() / 8 {
            let room = state.queue.len() * 2;
            state.queue.shrink_to(room);
        }
        if batch.is_empty() {
            return None;
        }
        state.is_crowded = batch.len() >= CROWD;
        state.batches += 1;
        Some((batch, work))
    }

    /// True for a call that may share a command with others.
    pub(super) fn is_shared(&self, call: &Call) -> bool {
        if self.refused.load(Ordering::Relaxed) || !has_shape(call) {
            return false;
        }
        // In a cluster, only calls with one key are shared. With several keys, some may have moved and others not.
        let is_of_one_key = call.keys == 1 && !call.script.reaches_beyond;
        self.undeclared.as_ref().is_none_or(|undeclared| is_of_one_key && undeclared.is_taken())
    }
}

//! Which calls are sent at once, and which wait in the queue for a shared command.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Outcome;
use crate::config::Options;
use crate::runtime::reaper::Reaper;
use crate::transport::script::Script;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Call, Transport};

/// With this many commands in flight per connection, further calls queue.
const WINDOW: usize = 3;

/// After a command with at least this many calls, a server of a cluster gets one command at a time. Reason: calls are
/// spread over the servers of a cluster, so each queue fills more slowly. Many small commands cost more than a few
/// large commands.
const CROWD: usize = 4;

/// Maximum work in one command (see `work` in `batch.rs`). A script blocks the server while it runs, for about 4 to 10
/// µs a call.
const MOST: usize = 64;

/// A queue with a larger capacity than this frees memory when its calls are sent.
const LONG: usize = 256;

pub(super) struct Core {
    pub(super) inner: Arc<dyn Transport>,
    /// Set for a server of a cluster, where the calls of one command may be in several slots.
    pub(super) undeclared: Option<Arc<Undeclared>>,
    pub(super) reaper: Reaper,
    window: usize,
    pub(super) timeout: Duration,
    /// True once the server has refused calls of several names in one command, as a cluster behind a proxy does.
    pub(super) refused: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Numbers of the commands in flight.
    in_flight: Vec<u64>,
    sent: u64,
    /// True if the last command had at least `CROWD` calls.
    is_crowded: bool,
    pub(super) queue: VecDeque<Queued>,
}

pub(super) struct Queued {
    pub(super) call: Call,
    pub(super) many: &'static Script,
    pub(super) work: usize,
    pub(super) answer: oneshot::Sender<Outcome>,
}

impl State {
    fn admit(&mut self) -> u64 {
        self.sent += 1;
        self.in_flight.push(self.sent);
        self.sent
    }

    /// Stops counting the commands up to this number as in flight.
    pub(super) fn forget(&mut self, sent: u64) {
        self.in_flight.retain(|number| *number > sent);
    }
}

/// A command in flight. Dropped when the command is answered or given up, which makes room for queued calls.
pub(super) struct InFlight {
    core: Arc<Core>,
    number: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        Core::change(&self.core, |state| state.in_flight.retain(|number| *number != self.number));
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
            window: WINDOW * options.pool_size,
            timeout: options.command_timeout,
            refused: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Admits a command for one call, if there is room and no call is queued.
    pub(super) fn admit(core: &Arc<Self>) -> Option<InFlight> {
        let mut state = core.state.lock();
        let may_go = core.has_room(&state) && state.queue.is_empty();
        may_go.then(|| InFlight { core: Arc::clone(core), number: state.admit() })
    }

    /// Changes the state, then sends queued calls if there is room. Returns the number of the latest command.
    pub(super) fn change(core: &Arc<Self>, by: impl FnOnce(&mut State)) -> u64 {
        let (batch, sent) = {
            let mut state = core.state.lock();
            by(&mut state);
            (core.next(&mut state), state.sent)
        };
        if let Some(batch) = batch {
            Self::send(core, batch);
        }
        sent
    }

    fn has_room(&self, state: &State) -> bool {
        let is_crowded = self.undeclared.is_some() && state.is_crowded;
        state.in_flight.len() < if is_crowded { 1 } else { self.window }
    }

    /// Takes the next batch from the queue if there is room. Calls whose callers are gone are removed unsent.
    fn next(&self, state: &mut State) -> Option<(u64, Vec<Queued>)> {
        if !self.has_room(state) {
            return None;
        }
        let (mut batch, mut work): (Vec<Queued>, usize) = (Vec::new(), 0);
        while let Some(queued) = state.queue.front() {
            let fits = |first: &Queued| work + queued.work <= MOST && std::ptr::eq(first.many, queued.many);
            if !batch.first().is_none_or(fits) {
                break;
            }
            let Some(queued) = state.queue.pop_front().filter(|queued| !queued.answer.is_closed()) else { continue };
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
        Some((state.admit(), batch))
    }

    fn send(core: &Arc<Self>, (number, batch): (u64, Vec<Queued>)) {
        let in_flight = InFlight { core: Arc::clone(core), number };
        // Closing need not wait for this job, because each caller waits for its own call.
        core.reaper.finish_uncounted(Box::pin(async move {
            in_flight.core.run(batch).await;
            drop(in_flight);
        }));
    }

    /// True for a call that may share a command with others.
    pub(super) fn is_shared(&self, call: &Call) -> bool {
        // In a cluster, a call is shared only if it touches one key, because some of several keys may have moved.
        let is_of_one_key = call.keys == 1 && !call.script.reaches_beyond;
        self.undeclared.as_ref().is_none_or(|undeclared| is_of_one_key && undeclared.is_taken())
    }
}

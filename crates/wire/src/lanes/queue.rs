//! The queue of calls, and the lanes that take groups of calls from it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::group::carry;
use crate::connection::Connection;
use crate::dial::Dialer;
use crate::driver::drive;
use crate::resp::Naming;
use crate::{Acknowledge, Call, Demotions, Fault, FaultKind, ListenerSlot, Replied};

/// Maximum number of lanes.
const MOST: usize = 3;

/// Maximum number of calls in a group, and of their bytes, exceeded by one call at most. While a group runs, the
/// server's other clients wait.
const CALLS: usize = 64;
const BYTES: usize = 64 << 10;

pub(super) struct Queue {
    dialer: Arc<Dialer>,
    demotions: Demotions,
    runtime: Handle,
    state: Mutex<State>,
    /// Notified when a call is queued.
    came: Notify,
}

#[derive(Default)]
struct State {
    calls: VecDeque<Queued>,
    /// Number of calls so far.
    count: u64,
    /// One task per lane.
    lanes: Vec<JoinHandle<()>>,
    /// Number of lanes that carry a group.
    busy: usize,
    is_ended: bool,
}

pub(super) struct Queued {
    pub(super) number: u64,
    pub(super) call: Call,
    pub(super) how: Acknowledge,
    /// Notified when a lane takes the call.
    pub(super) sent: Option<oneshot::Sender<()>>,
    pub(super) answer: oneshot::Sender<Result<Replied, Fault>>,
}

/// Counts a lane as busy until this value is dropped.
struct Busy<'a>(&'a Queue);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
    }
}

impl Queue {
    pub(super) fn new(dialer: Arc<Dialer>, demotions: Demotions) -> Self {
        let (runtime, state, came) = (Handle::current(), Mutex::default(), Notify::new());
        Self { dialer, demotions, runtime, state, came }
    }

    /// Queues a call, and returns its number. Opens another lane if all lanes are busy.
    pub(super) fn push(self: &Arc<Self>, queued: impl FnOnce(u64) -> Queued) -> Result<u64, Fault> {
        let mut state = self.state.lock();
        // `end` has cleared the queue, so no call may be queued any more.
        if state.is_ended {
            return Err(Fault::closed());
        }
        self.open_lane(&mut state);
        state.count += 1;
        let number = state.count;
        state.calls.push_back(queued(number));
        drop(state);
        self.came.notify_one();
        Ok(number)
    }

    /// Time limit of a group: the command timeout, and the time `within` which replicas must acknowledge.
    pub(super) fn limit(&self, within: Duration) -> Duration {
        self.dialer.settings.command_timeout.saturating_add(within)
    }

    /// The fault after the lanes have ended, with the client or with its runtime.
    pub(super) fn ended(&self) -> Fault {
        if self.state.lock().is_ended { Fault::closed() } else { Fault::runtime_gone() }
    }

    /// Removes a call that its caller has given up. Returns false if a lane has taken the call.
    pub(super) fn give_up(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let at = state.calls.iter().position(|queued| queued.number == number);
        let removed = at.and_then(|at| state.calls.remove(at));
        drop(state);
        removed.is_some()
    }

    pub(super) fn end(&self) -> Vec<JoinHandle<()>> {
        let (lanes, calls) = {
            let mut state = self.state.lock();
            state.is_ended = true;
            (std::mem::take(&mut state.lanes), std::mem::take(&mut state.calls))
        };
        for lane in &lanes {
            lane.abort();
        }
        // These calls have not run, so the client may send them to another server.
        for queued in calls {
            let fault = Fault::new(FaultKind::NotSent, "the connections to this server have ended");
            // Fails if the caller is gone.
            let _ = queued.answer.send(Err(fault));
        }
        lanes
    }

    /// Opens another lane if all lanes are busy, up to `MOST`.
    fn open_lane(self: &Arc<Self>, state: &mut State) {
        if !state.is_ended && state.lanes.len() < MOST && state.busy == state.lanes.len() {
            state.lanes.push(self.runtime.spawn(keep(Arc::clone(self))));
        }
    }

    async fn next_group(self: &Arc<Self>) -> (Vec<Queued>, Busy<'_>) {
        loop {
            let came = self.came.notified();
            if let Some(group) = self.take_group() {
                return (group, Busy(self));
            }
            came.await;
        }
    }

    /// Takes the next group, and counts its lane as busy.
    fn take_group(self: &Arc<Self>) -> Option<Vec<Queued>> {
        let mut state = self.state.lock();
        let group = state.take_group();
        if group.is_empty() {
            return None;
        }
        state.busy += 1;
        // Another lane carries the calls that do not fit into this group.
        if !state.calls.is_empty() {
            self.open_lane(&mut state);
            self.came.notify_one();
        }
        Some(group)
    }
}

impl State {
    /// Takes the next group from the queue. Calls whose callers are gone are removed unsent.
    fn take_group(&mut self) -> Vec<Queued> {
        let (mut group, mut bytes): (Vec<Queued>, usize) = (Vec::new(), 0);
        while group.len() < CALLS && bytes < BYTES {
            let Some(mut queued) = self.calls.pop_front() else { break };
            if !queued.answer.is_closed() {
                if let Some(sent) = queued.sent.take() {
                    // Fails if the caller is gone.
                    let _ = sent.send(());
                }
                bytes += queued.call.size();
                group.push(queued);
            }
        }
        group
    }
}

/// The task of one lane.
async fn keep(queue: Arc<Queue>) {
    let connection = Connection::new(queue.dialer.settings.command_timeout);
    let (dialer, demotions) = (Arc::clone(&queue.dialer), queue.demotions.clone());
    let driving = drive(Arc::clone(&connection), dialer, ListenerSlot::default(), None, demotions);
    let carrying = async {
        let (naming, mut known) = (Naming::first(queue.dialer.settings.script_cache), HashSet::new());
        loop {
            let (group, _busy) = queue.next_group().await;
            let unknown = carry(&queue, &connection, group, naming, &mut known).await;
            if !unknown.is_empty() {
                carry(&queue, &connection, unknown, Naming::Source, &mut known).await;
            }
        }
    };
    // Both run in one task, so that a reply is read and passed on in one poll.
    tokio::select! {
        biased;
        () = driving => {}
        () = carrying => {}
    }
}

//! Lanes: connections for calls that replicas must acknowledge.
//!
//! `WAIT` blocks its connection, and covers only the writes of that connection. So these calls have connections of
//! their own, called lanes:
//!
//! 1. A call is queued. If all lanes are busy, another one is opened.
//! 2. A free lane takes a group: the queued calls, and one `WAIT` behind them, written at once.
//! 3. Each reply is passed on as it arrives, before the `WAIT` has ended.
//! 4. The number of replicas from `WAIT` is passed on to the calls that acquired or prolonged a hold.
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
//! A script that the server does not know is sent by its source, in a second group with a `WAIT` of its own.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connection::Connection;
use super::dial::{Dialer, Target};
use super::driver::drive;
use super::exchange::refusal;
use super::pipeline::{Outcome, Ticket};
use super::resp::{write_call, write_words};
use crate::demotions::Demotions;
use crate::standstill::within;
use crate::{Acknowledge, Call, Fault, FaultKind, Replied, Reply, Settings};

/// Maximum number of lanes.
const MOST: usize = 3;

/// Maximum number of calls in a group, and their approximate maximum in bytes. While a group runs, the server's other
/// clients wait.
const CALLS: usize = 64;
const BYTES: usize = 64 << 10;

/// The lanes to one server. They are opened when they are needed.
pub struct Lanes {
    shared: Arc<Shared>,
}

struct Shared {
    dialer: Arc<Dialer>,
    demotions: Demotions,
    script_cache: bool,
    command_timeout: Duration,
    /// One task per lane. `None` once the lanes have ended. Locked before `state`.
    tasks: Mutex<Option<Vec<JoinHandle<()>>>>,
    runtime: Handle,
    state: Mutex<State>,
    /// Notified when a call is queued.
    came: Notify,
    next: AtomicU64,
    is_ended: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    /// Number of lanes that carry a group.
    busy: usize,
}

struct Queued {
    number: u64,
    call: Call,
    how: Acknowledge,
    /// Notified when a lane takes the call.
    sent: Option<oneshot::Sender<()>>,
    answer: oneshot::Sender<Result<Replied, Fault>>,
}

/// How the scripts of a group are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    Hash,
    Source,
}

/// Marks a lane as busy until it is dropped.
struct Busy<'a>(&'a Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state.lock().busy -= 1;
    }
}

impl Lanes {
    /// Lanes to the server of this dialer. `demotions`: reports of all connections to that server.
    pub(super) fn over(dialer: Arc<Dialer>, settings: &Settings, demotions: Demotions) -> Self {
        let shared = Shared {
            dialer,
            demotions,
            script_cache: settings.script_cache,
            command_timeout: settings.command_timeout,
            tasks: Mutex::new(Some(Vec::new())),
            runtime: Handle::current(),
            state: Mutex::default(),
            came: Notify::new(),
            next: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Lanes to this server. They are opened when they are needed.
    pub fn to(target: Target, settings: &Settings, demotions: Demotions) -> Self {
        Self::over(Arc::new(Dialer::new(target, settings)), settings, demotions)
    }

    /// Runs a script once, and reports how many replicas have what it wrote. Nothing is sent before the first poll.
    ///
    /// `sent` is notified when a lane takes the call: from then on an answer is expected.
    pub fn run(
        &self,
        call: Call,
        how: Acknowledge,
        sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (answer, mut replied) = oneshot::channel();
            let limit = shared.limit(how.within);
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            shared.queue(Queued { number, call, how, sent: Some(sent), answer })?;
            let mut outcome = within(limit, &mut replied).await;
            if outcome.is_none() {
                if shared.give_up(number) {
                    return Err(Fault::new(FaultKind::NotSent, "what was sent before is not acknowledged yet"));
                }
                // A lane has taken the call, perhaps just now. The call has the time limit of its group.
                outcome = within(limit, replied).await;
            }
            match outcome {
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) => Err(shared.ended()),
                None => Err(Fault::new(FaultKind::TimedOut, "no answer in time")),
            }
        })
    }

    /// Ends the lanes, and returns their tasks. A lane's socket is closed when its task has ended.
    pub fn end(&self) -> Vec<JoinHandle<()>> {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        let tasks = self.shared.tasks.lock().take().unwrap_or_default();
        for task in &tasks {
            task.abort();
        }
        // These calls have not run. If only this server has left, they are sent to another one.
        let queue = std::mem::take(&mut self.shared.state.lock().queue);
        for queued in queue {
            let fault = Fault::new(FaultKind::NotSent, "the connections to this server have ended");
            // Fails if the caller is gone.
            let _ = queued.answer.send(Err(fault));
        }
        tasks
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.end();
    }
}

/// The task of one lane.
async fn keep(shared: Arc<Shared>) {
    let connection = Connection::new(shared.command_timeout);
    let (dialer, demotions) = (Arc::clone(&shared.dialer), shared.demotions.clone());
    let driving = drive(Arc::clone(&connection), dialer, Arc::default(), None, demotions);
    let carrying = async {
        let mut known = HashSet::new();
        loop {
            let (group, _busy) = shared.next_group().await;
            let naming = if shared.script_cache { Naming::Hash } else { Naming::Source };
            let unknown = shared.carry(&connection, group, naming, &mut known).await;
            if !unknown.is_empty() {
                shared.carry(&connection, unknown, Naming::Source, &mut known).await;
            }
        }
    };
    // One task for both: a reply is read and passed on in one poll.
    tokio::select! {
        biased;
        () = driving => {}
        () = carrying => {}
    }
}

impl Shared {
    /// Queues a call. Opens another lane if all lanes are busy.
    fn queue(self: &Arc<Self>, queued: Queued) -> Result<(), Fault> {
        let mut tasks = self.tasks.lock();
        // `end` takes the tasks before it clears the queue, so no call is queued after that.
        let Some(tasks) = tasks.as_mut() else { return Err(self.ended()) };
        self.open_lane(tasks);
        self.state.lock().queue.push_back(queued);
        self.came.notify_one();
        Ok(())
    }

    /// Time limit of a group.
    fn limit(&self, within: Duration) -> Duration {
        self.command_timeout.saturating_add(within)
    }

    /// The fault after the lanes have ended, with the client or with its runtime.
    fn ended(&self) -> Fault {
        if self.is_ended.load(Ordering::Relaxed) {
            return Fault::new(FaultKind::Closed, "the client is shut down");
        }
        Fault::new(FaultKind::RuntimeGone, "the client's runtime has ended")
    }

    /// Removes a call that its caller has given up. Returns false if a lane has taken it.
    fn give_up(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let before = state.queue.len();
        state.queue.retain(|queued| queued.number != number);
        state.queue.len() < before
    }

    /// Lets another lane carry the calls that did not fit into a group.
    fn share_rest(self: &Arc<Self>) {
        if !self.state.lock().queue.is_empty() {
            if let Some(tasks) = self.tasks.lock().as_mut() {
                self.open_lane(tasks);
            }
            self.came.notify_one();
        }
    }

    /// Opens another lane if all lanes are busy, up to `MOST`.
    fn open_lane(self: &Arc<Self>, tasks: &mut Vec<JoinHandle<()>>) {
        if tasks.len() < MOST && self.state.lock().busy == tasks.len() {
            tasks.push(self.runtime.spawn(keep(Arc::clone(self))));
        }
    }

    async fn next_group(self: &Arc<Self>) -> (Vec<Queued>, Busy<'_>) {
        loop {
            let came = self.came.notified();
            let group = {
                let mut state = self.state.lock();
                let group = state.take_group();
                state.busy += usize::from(!group.is_empty());
                group
            };
            if !group.is_empty() {
                self.share_rest();
                return (group, Busy(self));
            }
            came.await;
        }
    }

    /// Sends a group, and passes its outcomes on. Returns the calls whose scripts the server does not know by their
    /// hashes.
    ///
    /// `known`: scripts that the server has answered on this lane. Other scripts are sent by their source. A server
    /// that was just promoted knows no scripts and has no replicas yet. It would refuse hashes at once, but the second
    /// group could only follow after the first `WAIT` has timed out.
    async fn carry(
        &self,
        connection: &Connection,
        group: Vec<Queued>,
        naming: Naming,
        known: &mut HashSet<Bytes>,
    ) -> Vec<Queued> {
        let replicas = group.iter().map(|queued| queued.how.replicas).max().unwrap_or(0);
        let span = group.iter().map(|queued| queued.how.within).max().unwrap_or_default();
        let now = Instant::now();
        let deadline = now.checked_add(self.limit(span)).unwrap_or(now);
        let commands: usize = group.iter().map(|queued| 1 + usize::from(queued.how.asking)).sum();
        let write = |out: &mut Vec<u8>| {
            for (at, queued) in group.iter().enumerate() {
                // The first call of a script in a group loads the script for the calls behind it.
                let tells = |before: &Queued| before.script() == queued.script();
                let is_known = known.contains(&queued.script()) || group[..at].iter().any(tells);
                queued.write(out, if is_known { naming } else { Naming::Source });
            }
            let words = [replicas.to_string(), span.as_millis().to_string()];
            write_words(out, &[b"WAIT", words[0].as_bytes(), words[1].as_bytes()]);
        };
        let mut write = Some(write);
        let sent = poll_fn(|context| {
            let sent = write.take().map(|write| connection.send_together(deadline, context, commands + 1, write));
            Poll::Ready(sent.unwrap_or_else(|| Err(self.ended())))
        });
        let mut tickets = match sent.await {
            Ok(tickets) => Tickets { connection, left: tickets.into() },
            Err(fault) => {
                for queued in group {
                    let _ = queued.answer.send(Err(fault.clone()));
                }
                return Vec::new();
            }
        };
        let (mut unknown, mut waiting) = (Vec::new(), Vec::new());
        for queued in group {
            if queued.how.asking {
                // If `ASKING` is refused, the call behind it is refused too.
                let _ = tickets.next().await;
            }
            let outcome = match tickets.next().await {
                Ok(Err(error)) if naming == Naming::Hash && error.starts_with("NOSCRIPT") => {
                    unknown.push(queued);
                    continue;
                }
                outcome => outcome.and_then(|answer| answer.map_err(refusal)),
            };
            if outcome.is_ok() {
                known.insert(queued.script());
            }
            waiting.extend(queued.hand_on(outcome));
        }
        let acknowledged = match tickets.next().await {
            Ok(Ok(Reply::Int(got))) => Ok(usize::try_from(got).unwrap_or(0)),
            Ok(Ok(odd)) => Err(Fault::new(FaultKind::Refused, format!("ERR unexpected reply of WAIT: {odd:?}"))),
            Ok(Err(error)) => Err(Fault::new(FaultKind::Refused, error)),
            Err(fault) => Err(fault),
        };
        for one in waiting {
            // Fails if the caller is gone.
            let _ = one.send(acknowledged.clone());
        }
        unknown
    }
}

impl State {
    /// Takes the next group from the queue. Calls whose callers are gone are removed unsent.
    fn take_group(&mut self) -> Vec<Queued> {
        let (mut group, mut bytes): (Vec<Queued>, usize) = (Vec::new(), 0);
        while group.len() < CALLS && bytes < BYTES {
            let Some(mut queued) = self.queue.pop_front() else { break };
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

impl Queued {
    /// Hash of the call's script.
    fn script(&self) -> Bytes {
        self.call.script.sha()
    }

    fn write(&self, out: &mut Vec<u8>, naming: Naming) {
        let (call, script) = (&self.call, self.call.script);
        if self.how.asking {
            write_words(out, &[b"ASKING"]);
        }
        match (script.command, naming) {
            (Some(command), _) => write_call(out, command, None, call),
            (None, Naming::Hash) => write_call(out, "EVALSHA", Some(&script.sha()), call),
            (None, Naming::Source) => write_call(out, "EVAL", Some(script.source.as_bytes()), call),
        }
    }

    /// Passes the call's outcome on. Returns the sender for the acknowledgement, if the caller needs it.
    fn hand_on(self, outcome: Result<Reply, Fault>) -> Option<oneshot::Sender<Result<usize, Fault>>> {
        let gains = self.call.script.gains.unwrap_or(|_| false);
        let (replied, waiting) = match outcome {
            Ok(reply) if gains(&reply) => {
                let (done, acknowledged) = oneshot::channel();
                let lost = || Fault::new(FaultKind::Lost, "the connection is gone");
                let acknowledged = acknowledged.map(move |outcome| outcome.unwrap_or_else(|_| Err(lost())));
                (Ok(Replied { reply, acknowledged: Some(acknowledged.boxed()) }), Some(done))
            }
            outcome => (outcome.map(|reply| Replied { reply, acknowledged: None }), None),
        };
        // Fails if the caller is gone.
        let _ = self.answer.send(replied);
        waiting
    }
}

/// Commands of a group without an answer. If dropped, the commands still run, and their answers are discarded.
struct Tickets<'a> {
    connection: &'a Connection,
    left: VecDeque<Ticket>,
}

impl Tickets<'_> {
    async fn next(&mut self) -> Outcome {
        let Some(ticket) = self.left.front().copied() else {
            return Err(Fault::new(FaultKind::Lost, "asked for twice"));
        };
        let outcome = poll_fn(|context| self.connection.poll_answer(ticket, context)).await;
        self.left.pop_front();
        outcome
    }
}

impl Drop for Tickets<'_> {
    fn drop(&mut self) {
        for ticket in self.left.drain(..) {
            self.connection.abandon(ticket);
        }
    }
}

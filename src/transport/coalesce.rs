//! Group commit: under load, calls that arrive while others are in flight are sent together, as one command.
//!
//! 1. At first each call is sent at once, by itself. While few calls are in flight, nothing waits.
//! 2. With `WINDOW` commands in flight per connection, further calls queue.
//! 3. When a command is answered, the queued calls share the next one: one trip through the client, the socket and the
//!    server's dispatcher. Each step of that command succeeds or fails by itself.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::config::Options;
use crate::error::passing::{Cause, Passing};
use crate::runtime::reaper::Reaper;
use crate::runtime::standstill::within;
use crate::transport::script::Script;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Acknowledge, Arg, Call, Fault, FaultKind, Listener, Replied, Reply, Transport};
use crate::world::World;

/// Commands in flight per connection before calls queue.
const WINDOW: usize = 3;

/// A server of a cluster gets one command at a time after a command with this many calls. Calls are spread over the
/// servers of a cluster, so each queue fills more slowly, and many small commands cost more than a few large ones.
const CROWD: usize = 4;

/// Maximum work in one command, in calls of the reentrant lock. A script blocks the server while it runs, for about 4
/// to 10 µs a call.
const MOST: usize = 64;

/// This many bytes of arguments count as one more unit of work: lists of holds are read word by word.
const BYTES: usize = 512;

/// After this time, a queued call no longer counts the commands before it as in flight. The place of a command that its
/// own caller polls is freed only when that caller polls again, which may be never.
const STALL: Duration = Duration::from_millis(10);

/// A queue with a larger capacity than this releases it when its calls are sent.
const LONG: usize = 256;

type Outcome = Result<Reply, Fault>;

/// A server that gets calls in batches under load.
pub(crate) struct Coalesced {
    core: Arc<Core>,
}

struct Core {
    inner: Arc<dyn Transport>,
    /// Set for a server of a cluster, where the calls of one command are in several slots.
    undeclared: Option<Arc<Undeclared>>,
    reaper: Reaper,
    window: usize,
    timeout: Duration,
    /// True once the server has refused calls of several names in one command, as a cluster behind a proxy does.
    refused: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Numbers of the commands in flight.
    in_flight: Vec<u64>,
    sent: u64,
    /// True if the last command had at least `CROWD` calls.
    is_crowded: bool,

    queue: VecDeque<Queued>,
}

struct Queued {
    call: Call,
    many: &'static Script,
    work: usize,
    answer: oneshot::Sender<Outcome>,
}

impl Coalesced {
    pub(crate) fn over(inner: Arc<dyn Transport>, options: &Options, reaper: Reaper) -> Arc<dyn Transport> {
        Self::of(inner, None, options, reaper)
    }

    /// As `over`, for a server of a cluster.
    pub(crate) fn over_member(
        inner: Arc<dyn Transport>,
        undeclared: Arc<Undeclared>,
        options: &Options,
        reaper: Reaper,
    ) -> Arc<dyn Transport> {
        Self::of(inner, Some(undeclared), options, reaper)
    }

    fn of(
        inner: Arc<dyn Transport>,
        undeclared: Option<Arc<Undeclared>>,
        options: &Options,
        reaper: Reaper,
    ) -> Arc<dyn Transport> {
        let core = Core {
            inner,
            undeclared,
            reaper,
            window: WINDOW * options.pool_size,
            timeout: options.command_timeout,
            refused: AtomicBool::new(false),
            state: Mutex::default(),
        };
        Arc::new(Self { core: Arc::new(core) })
    }
}

impl fmt::Debug for Coalesced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.inner.fmt(f)
    }
}

impl State {
    fn admit(&mut self) -> u64 {
        self.sent += 1;
        self.in_flight.push(self.sent);
        self.sent
    }
}

/// A command in flight. Dropped when the command is answered or given up, which makes room for queued calls.
struct InFlight {
    core: Arc<Core>,
    number: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        Core::change(&self.core, |state| state.in_flight.retain(|number| *number != self.number));
    }
}

impl Core {
    /// Changes the state, then sends queued calls if there is room. Returns the number of the latest command.
    fn change(core: &Arc<Self>, by: impl FnOnce(&mut State)) -> u64 {
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
        state.in_flight.len() < if self.is_crowded(state) { 1 } else { self.window }
    }

    fn is_crowded(&self, state: &State) -> bool {
        self.undeclared.is_some() && state.is_crowded
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
        // Uncounted, because each caller counts its own call as in flight.
        core.reaper.finish_uncounted(Box::pin(async move {
            in_flight.core.run(batch).await;
            drop(in_flight);
        }));
    }

    async fn run(&self, batch: Vec<Queued>) {
        if batch.len() == 1 || self.refused.load(Ordering::Relaxed) {
            self.run_singly(batch).await;
            return;
        }
        let Some(many) = batch.first().map(|first| first.many) else { return };
        let outcome = self.inner.run(together(many, &batch, self.undeclared.is_none())).await;
        match outcome {
            Ok(Reply::List(replies)) if replies.len() == batch.len() => self.answer(batch, replies).await,
            // Refused before any of it ran. CROSSSLOT is final for this server; NOPERM may be about a single key or
            // command.
            Err(fault)
                if fault.kind == FaultKind::Refused
                    && ["CROSSSLOT", "NOPERM"].iter().any(|code| fault.message.starts_with(code)) =>
            {
                if fault.message.starts_with("CROSSSLOT") {
                    self.refused.store(true, Ordering::Relaxed);
                }
                self.run_singly(batch).await;
            }
            Err(fault)
                if let Some(undeclared) = &self.undeclared
                    && matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere) =>
            {
                // Refused before any of it ran, perhaps because it declares no keys.
                if self.run_singly(batch).await > 0 && !passes(&fault) {
                    undeclared.was_in_vain();
                }
            }
            outcome => {
                let fault = outcome
                    .err()
                    .unwrap_or_else(|| Fault::new(FaultKind::Lost, format!("ERR unexpected reply of {}", many.name)));
                for queued in batch {
                    let _ = queued.answer.send(Err(fault.clone()));
                }
            }
        }
    }

    /// Passes the replies of a command's steps on. A step whose key is elsewhere or not accessible is sent again by
    /// itself, for an answer that says where the key is.
    async fn answer(&self, batch: Vec<Queued>, replies: Vec<Reply>) {
        let mut elsewhere = Vec::new();
        for (queued, reply) in batch.into_iter().zip(replies) {
            match (outcome_of_step(reply), &self.undeclared) {
                (Err(fault), Some(undeclared)) if undeclared.is_elsewhere(&fault.message) => elsewhere.push(queued),
                (outcome, undeclared) => {
                    if let (Ok(_), Some(undeclared)) = (&outcome, undeclared) {
                        undeclared.worked();
                    }
                    // Fails if the caller is gone.
                    let _ = queued.answer.send(outcome);
                }
            }
        }
        if elsewhere.is_empty() {
            return;
        }
        let were_here = self.run_singly(elsewhere).await;
        if let Some(undeclared) = self.undeclared.as_ref().filter(|_| were_here > 0) {
            undeclared.was_in_vain();
        }
    }

    /// Sends each call by itself. Returns how many of them the server carried out.
    async fn run_singly(&self, batch: Vec<Queued>) -> usize {
        let all = batch.into_iter().map(|queued| async move {
            let outcome = self.inner.run(queued.call).await;
            let is_done = outcome.is_ok();
            let _ = queued.answer.send(outcome);
            is_done
        });
        futures::future::join_all(all).await.into_iter().filter(|is_done| *is_done).count()
    }

    /// True for a call that may share a command with others.
    fn is_shared(&self, call: &Call) -> bool {
        // In a cluster, only calls that are safe with undeclared keys while a slot is half moved.
        let is_of_one_key = call.keys == 1 && !call.script.reaches_beyond;
        self.undeclared.as_ref().is_none_or(|undeclared| is_of_one_key && undeclared.is_taken())
    }
}

/// True for a refusal that passes and says nothing about the keys: the server has no room, or serves no commands.
fn passes(fault: &Fault) -> bool {
    Passing::of(&fault.message).is_some_and(|row| row.cause != Cause::Slot)
}

fn work(call: &Call) -> usize {
    let bytes = call.words.iter().map(|word| if let Arg::Text(text) = word { text.len() } else { 0 });
    call.script.work + bytes.sum::<usize>() / BYTES
}

/// Builds one call that runs all of `batch`. `declared`: the call declares its keys.
fn together(many: &'static Script, batch: &[Queued], declared: bool) -> Call {
    let keys = if declared { batch.iter().map(|queued| queued.call.keys).sum() } else { 0 };
    let all: usize = batch.iter().map(|queued| queued.call.words.len() + 3).sum();
    let mut words = Vec::with_capacity(all);
    for Queued { call, .. } in batch.iter().filter(|_| declared) {
        words.extend(call.words[..call.keys].iter().cloned());
    }
    let int = |count: usize| Arg::Int(i64::try_from(count).unwrap_or(i64::MAX));
    for Queued { call, .. } in batch {
        let number = call.script.many.map_or(0, |(_, number)| number);
        words.extend([Arg::Int(number), int(call.keys), int(call.words.len() - call.keys)]);
        words.extend(call.words[if declared { call.keys } else { 0 }..].iter().cloned());
    }
    Call { script: many, keys, words }
}

/// Outcome of one step, from its part of the reply to a shared command.
fn outcome_of_step(reply: Reply) -> Outcome {
    match reply {
        Reply::List(parts) => match parts.as_slice() {
            [Reply::Text(mark), Reply::Text(text)] if mark == "!" => {
                Err(Fault::new(FaultKind::Refused, String::from_utf8_lossy(text)))
            }
            _ => Ok(Reply::List(parts)),
        },
        reply => Ok(reply),
    }
}

impl Transport for Coalesced {
    fn run(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let stays_bare = call.script.command.is_some() && self.core.inner.prefers_bare_commands();
        let is_shared = !stays_bare && self.core.is_shared(&call);
        let Some((many, _)) = call.script.many.filter(|_| is_shared) else { return self.core.inner.run(call) };
        let core = Arc::clone(&self.core);
        {
            let mut state = core.state.lock();
            if core.has_room(&state) && state.queue.is_empty() {
                let number = state.admit();
                drop(state);
                let in_flight = InFlight { core: Arc::clone(&core), number };
                let run = core.inner.run(call);
                return Box::pin(async move {
                    let outcome = run.await;
                    drop(in_flight);
                    outcome
                });
            }
        }
        Box::pin(async move {
            let (answer, mut outcome) = oneshot::channel();
            let work = work(&call);
            let sent = Core::change(&core, |state| state.queue.push_back(Queued { call, many, work, answer }));
            let mut answered = tokio::time::timeout(STALL, &mut outcome).await.ok();
            if answered.is_none() {
                Core::change(&core, |state| state.in_flight.retain(|number| *number > sent));
                answered = within(core.timeout.saturating_sub(STALL), outcome).await;
            }
            match answered {
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) if core.reaper.is_stopped() => {
                    Err(Fault::new(FaultKind::Closed, "the client is shut down"))
                }
                // The runtime is ending: it drops its tasks one by one, and has dropped the task with the command
                // before this caller.
                Some(Err(_)) => Err(Fault::new(FaultKind::RuntimeGone, "the client's runtime has ended")),
                None => Err(Fault::new(FaultKind::TimedOut, "no answer in time")),
            }
        })
    }

    fn acknowledges(&self) -> bool {
        self.core.inner.acknowledges()
    }

    fn trouble(&self) -> Option<String> {
        self.core.inner.trouble()
    }

    /// Not batched here: lanes have groups of their own.
    fn run_acknowledged(
        &self,
        call: Call,
        how: Acknowledge,
        sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        self.core.inner.run_acknowledged(call, how, sent)
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.core.inner.subscribe(channel)
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.core.inner.unsubscribe(channel)
    }

    fn forget(&self, channel: &Bytes) {
        self.core.inner.forget(channel);
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.core.inner.listen(listener);
    }

    fn address(&self) -> &str {
        self.core.inner.address()
    }

    fn world(&self) -> Arc<dyn World> {
        self.core.inner.world()
    }

    fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        self.core.inner.close(within)
    }
}

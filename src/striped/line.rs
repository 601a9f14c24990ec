//! Those of one process who wait for any segment: one line, and one attempt at each segment for whoever stands first in it.
//!
//! Were each of them to wait at every segment by itself, whoever gets one would leave all others, and at each of these the
//! next one in the process would ask anew, in vain: two commands a segment and grant.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::acquire::Acquire;
use crate::engine::suspend::LOOK;
use crate::engine::wait::Deadline;
use crate::error::Result;
use crate::group::{Asking, ask, cut_off};
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::runtime::standstill::within;

/// A segment, and its guard.
type Grant = (usize, Guard);

/// The lines of one striped lock, by the lease that is asked for: only attempts that are alike can be for anybody.
#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<Option<Duration>, Arc<Line>>>);

/// One who stands in a line, and how long it has waited.
struct Waiter {
    tell: oneshot::Sender<Result<Grant>>,
    deadline: Deadline,
}

/// A line. Gone once nobody stands in it.
#[derive(Default)]
struct Line {
    waiting: Mutex<VecDeque<Waiter>>,
    /// Told when somebody has left.
    left: Notify,
}

/// A place in a line, left when dropped.
struct Ticket {
    line: Arc<Line>,
    told: oneshot::Receiver<Result<Grant>>,
}

/// The work for a line, which ends with it however it ends.
struct Serving {
    lines: Arc<Lines>,
    line: Arc<Line>,
    lease: Option<Duration>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.lines.close(&self.line, self.lease);
        // Whoever waits is woken by this, outside of the lock: wakers are somebody else's code.
        let waiting = std::mem::take(&mut *self.line.waiting.lock());
        drop(waiting);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.told.close();
        self.line.left.notify_one();
    }
}

impl Lines {
    /// True when somebody waits already: who comes later stands behind.
    pub(super) fn is_waiting(&self, lease: Option<Duration>) -> bool {
        self.0.lock().contains_key(&lease)
    }

    /// Waits for any segment. Dropped, the place is left; what was granted in this moment goes to the next, or is given back.
    pub(super) async fn wait(
        self: &Arc<Self>,
        segments: &Arc<[Arc<dyn DistLock>]>,
        begin: usize,
        lease: Option<Duration>,
        deadline: &Deadline,
    ) -> Result<Option<Grant>> {
        loop {
            let mut ticket = self.enter(segments, begin, lease, deadline);
            let told = loop {
                let Some(rest) = deadline.left() else { break (&mut ticket.told).await };
                // Timers know nothing of a suspend.
                match within(rest.min(LOOK), &mut ticket.told).await {
                    Some(told) => break told,
                    None if !deadline.is_over() => {}
                    None => {
                        let outcome = cut_off(segments, deadline).await;
                        ticket.told.close();
                        // At the very end: success wins.
                        return match ticket.told.try_recv() {
                            Ok(told) => told.map(Some),
                            Err(_) => outcome.map(|()| None),
                        };
                    }
                }
            };
            // Told nothing: who asked for this line went with its runtime.
            if let Ok(told) = told {
                return told.map(Some);
            }
        }
    }

    fn enter(
        self: &Arc<Self>,
        segments: &Arc<[Arc<dyn DistLock>]>,
        begin: usize,
        lease: Option<Duration>,
        deadline: &Deadline,
    ) -> Ticket {
        let (tell, told) = oneshot::channel();
        let waiter = Waiter { tell, deadline: deadline.clone() };
        let mut lines = self.0.lock();
        if let Some(line) = lines.get(&lease) {
            line.waiting.lock().push_back(waiter);
            return Ticket { line: Arc::clone(line), told };
        }
        let line = Arc::new(Line::default());
        line.waiting.lock().push_back(waiter);
        lines.insert(lease, Arc::clone(&line));
        drop(lines);
        tokio::spawn(Arc::clone(self).serve(Arc::clone(&line), Arc::clone(segments), begin, lease));
        Ticket { line, told }
    }

    /// Asks for every segment for as long as anybody waits, and hands on what is granted.
    async fn serve(
        self: Arc<Self>,
        line: Arc<Line>,
        segments: Arc<[Arc<dyn DistLock>]>,
        begin: usize,
        lease: Option<Duration>,
    ) {
        let serving = Serving { lines: self, line, lease };
        let (lines, line) = (&serving.lines, &serving.line);
        // For whoever stands first.
        let ask_for =
            |at: usize| ask(&segments[at], at, Acquire { lease, waited_before: line.waited(), ..Acquire::new() });
        let mut asking: Asking = (0..segments.len()).map(|n| ask_for(begin.wrapping_add(n) % segments.len())).collect();
        // Those that could not be asked, to be asked again once another one answers.
        let (mut failed, mut why) = (Vec::new(), None);
        loop {
            tokio::select! {
                biased;
                Some((at, outcome)) = asking.next() => match outcome {
                    Ok(Some(guard)) => {
                        line.hand((at, guard));
                        asking.push(ask_for(at));
                        asking.extend(failed.drain(..).map(ask_for));
                        why = None;
                    }
                    Ok(None) => asking.push(ask_for(at)),
                    Err(error) => {
                        // Of several reasons, one that passes: it may be worth another try.
                        let passes = error.is_retryable();
                        if passes {
                            failed.push(at);
                        }
                        if passes || why.is_none() {
                            why = Some(error.clone());
                        }
                        if asking.is_empty() {
                            lines.close(line, lease);
                            let why = why.unwrap_or(error);
                            let waiting = std::mem::take(&mut *line.waiting.lock());
                            for waiter in waiting {
                                let _ = waiter.tell.send(Err(why.clone()));
                            }
                            return;
                        }
                    }
                },
                () = line.left.notified() => {}
            }
            if lines.close_if_empty(line, lease) {
                // Dropped, the attempts leave their queues; what one of them gets meanwhile is given back.
                return;
            }
        }
    }

    fn close(&self, line: &Arc<Line>, lease: Option<Duration>) {
        let mut lines = self.0.lock();
        if lines.get(&lease).is_some_and(|known| Arc::ptr_eq(known, line)) {
            lines.remove(&lease);
        }
    }

    fn close_if_empty(&self, line: &Arc<Line>, lease: Option<Duration>) -> bool {
        let mut lines = self.0.lock();
        let mut waiting = line.waiting.lock();
        waiting.retain(|waiter| !waiter.tell.is_closed());
        let empty = waiting.is_empty();
        if empty {
            lines.remove(&lease);
        }
        empty
    }
}

impl Line {
    /// For how long the first of them has waited.
    fn waited(&self) -> Duration {
        self.waiting.lock().front().map(|first| first.deadline.waited()).unwrap_or_default()
    }

    /// Gives a segment to the first who still waits; to nobody, it is given back.
    fn hand(&self, grant: Grant) {
        let mut grant = Ok(grant);
        loop {
            let Some(first) = self.waiting.lock().pop_front() else { return };
            match first.tell.send(grant) {
                Ok(()) => return,
                Err(back) => grant = back,
            }
        }
    }
}

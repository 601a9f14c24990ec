//! Those of one process who wait for any segment: one queue, and one attempt at each segment for whoever stands first in it.
//!
//! Were each of them to wait at every segment by itself, whoever gets one would leave all others, and at each of these the
//! next one in the process would ask anew, in vain: two commands a segment and grant.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::asked::Asked;
use crate::acquire::Acquire;
use crate::engine::suspend::LOOK;
use crate::engine::wait::Deadline;
use crate::error::{Error, Result};
use crate::group::cut_off;
use crate::guard::Guard;
use crate::lock::DistLock;
use crate::runtime::standstill::within;

/// A segment, and its guard.
type Grant = (usize, Guard);

/// The queues of one striped lock, by the lease that is asked for: only attempts that are alike can be for anybody.
#[derive(Default)]
pub(super) struct LocalQueues(Mutex<HashMap<Option<Duration>, Arc<LocalQueue>>>);

/// A task that stands in a queue, and how long it has waited.
struct Waiter {
    tell: oneshot::Sender<Result<Grant>>,
    deadline: Deadline,
}

/// A queue. Gone once nobody stands in it.
#[derive(Default)]
struct LocalQueue {
    waiting: Mutex<VecDeque<Waiter>>,
    /// So many places at the most were left since it was swept.
    departed: AtomicUsize,
    /// Notified when somebody has left.
    left: Notify,
}

/// A place in a queue, left when dropped.
struct LocalPlace {
    queue: Arc<LocalQueue>,
    answer: oneshot::Receiver<Result<Grant>>,
}

/// The work for a queue, which ends with it however it ends.
struct Serving {
    queues: Arc<LocalQueues>,
    queue: Arc<LocalQueue>,
    lease: Option<Duration>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.queues.close(&self.queue, self.lease);
        // Whoever waits is woken by this, outside of the lock: wakers are somebody else's code.
        let waiting = std::mem::take(&mut *self.queue.waiting.lock());
        drop(waiting);
    }
}

impl Drop for LocalPlace {
    fn drop(&mut self) {
        self.answer.close();
        self.queue.departed.fetch_add(1, Ordering::Relaxed);
        self.queue.left.notify_one();
    }
}

impl LocalQueues {
    /// True when somebody waits already: who comes later stands behind.
    pub(super) fn is_waiting(&self, lease: Option<Duration>) -> bool {
        self.0.lock().contains_key(&lease)
    }

    /// Waits for any segment. A future that is dropped leaves its place; what was granted in this moment goes to the next
    /// waiter, or is given back.
    pub(super) async fn wait(
        self: &Arc<Self>,
        segments: &Arc<[Arc<dyn DistLock>]>,
        begin: usize,
        lease: Option<Duration>,
        deadline: &Deadline,
    ) -> Result<Option<Grant>> {
        loop {
            let mut place = self.enter(segments, begin, lease, deadline);
            let answer = loop {
                let Some(rest) = deadline.left() else { break (&mut place.answer).await };
                // Timers know nothing of a suspend.
                match within(rest.min(LOOK), &mut place.answer).await {
                    Some(answer) => break answer,
                    None if !deadline.is_over() => {}
                    None => {
                        let outcome = cut_off(segments, deadline).await;
                        place.answer.close();
                        // A grant at the very end counts: success wins.
                        return match place.answer.try_recv() {
                            Ok(answer) => answer.map(Some),
                            Err(_) => outcome.map(|()| None),
                        };
                    }
                }
            };
            // Nothing was said: who asked on behalf of this queue went with its runtime.
            if let Ok(answer) = answer {
                return answer.map(Some);
            }
        }
    }

    fn enter(
        self: &Arc<Self>,
        segments: &Arc<[Arc<dyn DistLock>]>,
        begin: usize,
        lease: Option<Duration>,
        deadline: &Deadline,
    ) -> LocalPlace {
        let (tell, answer) = oneshot::channel();
        let waiter = Waiter { tell, deadline: deadline.clone() };
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get(&lease) {
            queue.waiting.lock().push_back(waiter);
            return LocalPlace { queue: Arc::clone(queue), answer };
        }
        let queue = Arc::new(LocalQueue::default());
        queue.waiting.lock().push_back(waiter);
        queues.insert(lease, Arc::clone(&queue));
        drop(queues);
        // The queue has no end of its own: a waiter that comes later may wait for longer than this one.
        let endless = Deadline::new(deadline.world(), None, Duration::ZERO);
        tokio::spawn(Arc::clone(self).serve(Arc::clone(&queue), Arc::clone(segments), begin, lease, endless));
        LocalPlace { queue, answer }
    }

    /// Asks for every segment for as long as anybody waits, and hands on what is granted.
    async fn serve(
        self: Arc<Self>,
        queue: Arc<LocalQueue>,
        segments: Arc<[Arc<dyn DistLock>]>,
        begin: usize,
        lease: Option<Duration>,
        deadline: Deadline,
    ) {
        let serving = Serving { queues: self, queue, lease };
        let (queues, queue) = (&serving.queues, &serving.queue);
        // Each attempt is made for the waiter that stands first then.
        let first = Arc::clone(queue);
        let how = Box::new(move || Acquire { lease, waited_before: first.waited(), ..Acquire::new() });
        let mut asked = Asked::all(&segments, begin, &deadline, how);
        loop {
            tokio::select! {
                biased;
                outcome = asked.next() => match outcome {
                    Some((at, guard)) => {
                        if let Some(guard) = guard {
                            queue.hand((at, guard));
                        }
                        asked.ask(at);
                    }
                    None => {
                        queues.close(queue, lease);
                        let why = asked.why().unwrap_or(Error::Closed);
                        let waiting = std::mem::take(&mut *queue.waiting.lock());
                        for waiter in waiting {
                            let _ = waiter.tell.send(Err(why.clone()));
                        }
                        return;
                    }
                },
                () = queue.left.notified() => {}
            }
            if queues.close_if_empty(queue, lease) {
                // Attempts that are dropped leave their queues; what one of them gets meanwhile is given back.
                return;
            }
        }
    }

    fn close(&self, queue: &Arc<LocalQueue>, lease: Option<Duration>) {
        let mut queues = self.0.lock();
        if queues.get(&lease).is_some_and(|known| Arc::ptr_eq(known, queue)) {
            queues.remove(&lease);
        }
    }

    fn close_if_empty(&self, queue: &Arc<LocalQueue>, lease: Option<Duration>) -> bool {
        let mut queues = self.0.lock();
        let mut waiting = queue.waiting.lock();
        let has_left = |waiter: &Waiter| waiter.tell.is_closed();
        // Those who have left are skipped when their turn comes; too many of them are swept out before.
        let departed = queue.departed.load(Ordering::Relaxed);
        if departed > 32 && departed > waiting.len() / 2 {
            waiting.retain(|waiter| !has_left(waiter));
            queue.departed.store(0, Ordering::Relaxed);
        }
        while waiting.pop_front_if(|first| has_left(first)).is_some() {}
        let empty = waiting.is_empty();
        if empty {
            queues.remove(&lease);
        }
        empty
    }
}

impl LocalQueue {
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

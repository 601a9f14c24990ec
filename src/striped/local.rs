//! Tasks of one process that wait for any segment form one queue. The queue has one pending attempt per segment.
//!
//! If each task waited at every segment by itself, a task that acquires a segment would stop waiting at all other
//! segments. At each of these, the next task of the process would then ask again in vain. Each grant would cost two
//! commands per segment.

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

type Grant = (usize, Guard);

/// The queues of one striped lock, by requested lease. Any waiter in a queue can use a grant with that lease.
#[derive(Default)]
pub(super) struct LocalQueues(Mutex<HashMap<Option<Duration>, Arc<LocalQueue>>>);

/// A task in a queue, with the deadline of its wait.
struct Waiter {
    tell: oneshot::Sender<Result<Grant>>,
    deadline: Deadline,
}

/// A queue, which exists while a task waits in it.
#[derive(Default)]
struct LocalQueue {
    waiting: Mutex<VecDeque<Waiter>>,
    /// Upper bound of the number of waiters that stopped waiting since the last sweep.
    departed: AtomicUsize,
    /// Notified when a waiter stops waiting.
    left: Notify,
}

/// A place in a queue. Dropping it gives up the place.
struct LocalPlace {
    queue: Arc<LocalQueue>,
    answer: oneshot::Receiver<Result<Grant>>,
}

/// Closes a queue when the task that serves the queue ends, even by a panic.
struct Serving {
    queues: Arc<LocalQueues>,
    queue: Arc<LocalQueue>,
    lease: Option<Duration>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.queues.close(&self.queue, self.lease);
        // Dropped while the mutex is not held, because the drop wakes the waiters, and wakers run foreign code.
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
    /// Returns true if another task waits already; later tasks queue behind it.
    pub(super) fn is_waiting(&self, lease: Option<Duration>) -> bool {
        self.0.lock().contains_key(&lease)
    }

    /// Waits for any segment. A dropped future gives up its place. A grant at that moment goes to the next waiter, or
    /// is released.
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
                // Timers stand still during suspend, so the deadline is checked every `LOOK`.
                match within(rest.min(LOOK), &mut place.answer).await {
                    Some(answer) => break answer,
                    None if !deadline.is_over() => {}
                    None => {
                        let outcome = cut_off(segments, deadline).await;
                        place.answer.close();
                        // A grant that arrives at the very end still counts.
                        return match place.answer.try_recv() {
                            Ok(answer) => answer.map(Some),
                            Err(_) => outcome.map(|()| None),
                        };
                    }
                }
            };
            // No answer, because the task that served the queue has ended with its runtime. Join a queue again.
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
        // The queue has no deadline, because a later waiter may wait longer than this waiter.
        let endless = Deadline::new(deadline.world(), None, Duration::ZERO);
        tokio::spawn(Arc::clone(self).serve(Arc::clone(&queue), Arc::clone(segments), begin, lease, endless));
        LocalPlace { queue, answer }
    }

    /// Asks every segment while tasks wait, and hands each grant to the first waiting task.
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
        // Each attempt begins with the time that the queue's head has waited by then.
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
                // Dropped attempts give up their places in queues; late grants are released.
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
        // Waiters that have stopped waiting are skipped at their turn. If there are many of them, they are removed
        // earlier.
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
    /// Returns how long the head has waited.
    fn waited(&self) -> Duration {
        self.waiting.lock().front().map(|first| first.deadline.waited()).unwrap_or_default()
    }

    /// Hands a segment to the first waiter that still waits. If there is no such waiter, the grant is dropped, and so
    /// released.
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

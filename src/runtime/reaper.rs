//! Runs work that must be completed without a caller: releases of dropped guards, clean-up of commands in doubt, and
//! commands whose callers were dropped. The work runs on the client's own runtime, because a caller's runtime may end
//! first.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinSet};

mod finished;

pub(crate) use finished::Finished;

use crate::runtime::home::Home;

pub(crate) type Job = BoxFuture<'static, ()>;

/// Accepts jobs from any thread, inside or outside a runtime. Never blocks and never panics. If the client's runtime
/// has ended, the job is dropped, and the locks that the job would have released end with their leases.
#[derive(Clone, Debug)]
pub(crate) struct Reaper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    home: Home,
    jobs: mpsc::UnboundedSender<Job>,
    /// Number of jobs for which closing waits, plus commands in flight that may become such jobs.
    busy: AtomicUsize,
    /// Number of jobs that sleep for a while, or until the client closes.
    dozing: AtomicUsize,
    idle: Notify,
    stop: Arc<Notify>,
    stopped: AtomicBool,
}

impl Reaper {
    /// Starts the task that runs the jobs, on the current runtime. The task ends when the last `Reaper` is dropped
    /// and all jobs are done.
    pub(crate) fn start() -> Self {
        let (send, receive) = mpsc::unbounded_channel();
        let stop = Arc::new(Notify::new());
        tokio::spawn(work(receive, Arc::clone(&stop)));
        let (home, busy, dozing) = (Home::of(Handle::current()), AtomicUsize::new(0), AtomicUsize::new(0));
        let (idle, stopped) = (Notify::new(), AtomicBool::new(false));
        Self(Arc::new(Shared { home, jobs: send, busy, dozing, idle, stop, stopped }))
    }

    pub(crate) fn home(&self) -> &Home {
        &self.0.home
    }

    /// Runs a job that closing waits for.
    pub(crate) fn finish(&self, job: Job) {
        let busy = self.busy();
        self.finish_uncounted(Box::pin(async move {
            job.await;
            drop(busy);
        }));
    }

    /// `finish` for a job that can be repeated: if it panics, which is a bug, it runs once more.
    pub(crate) fn finish_retrying(&self, job: impl Fn() -> Job + Send + 'static) {
        self.finish(Box::pin(async move {
            let first = AssertUnwindSafe(job());
            if first.catch_unwind().await.is_err() {
                tracing::warn!("a clean-up panicked, which is a bug: it is retried once");
                job().await;
            }
        }));
    }

    /// Runs a job that first sleeps, at most until the client closes. Closing waits for the job, but the job does not
    /// count as in flight.
    pub(crate) fn finish_by_closing(&self, job: Job) {
        self.0.dozing.fetch_add(1, Ordering::AcqRel);
        let dozing = Busy(Arc::downgrade(&self.0), |shared| &shared.dozing);
        self.finish_uncounted(Box::pin(async move {
            job.await;
            drop(dozing);
        }));
    }

    /// Runs a job that closing does not wait for.
    pub(crate) fn finish_uncounted(&self, job: Job) {
        // Fails only if the runtime has ended. Then the job is dropped.
        let _ = self.0.jobs.send(job);
    }

    /// Counts something as in flight until the returned value is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.0.busy.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::downgrade(&self.0), |shared| &shared.busy)
    }

    /// Completes when all jobs for which closing waits have ended.
    pub(crate) async fn drained(&self) {
        loop {
            let idle = self.0.idle.notified();
            if self.under_way() == 0 && self.0.dozing.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Stops accepting jobs. The task ends when the accepted jobs are done.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.stop.notify_one();
    }

    /// True once the client was shut down, so that no more jobs are accepted.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Number of commands and jobs in flight.
    pub(crate) fn under_way(&self) -> usize {
        self.0.busy.load(Ordering::Acquire)
    }
}

/// Counts a job or command as in flight until dropped. Weak, because a job must not keep open the channel on which it
/// arrived.
pub(crate) struct Busy(Weak<Shared>, fn(&Shared) -> &AtomicUsize);

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade()
            && (self.1)(&shared).fetch_sub(1, Ordering::AcqRel) == 1
        {
            shared.idle.notify_waiters();
        }
    }
}

/// Each job is a separate task. In one shared task, the jobs would share one tokio budget. Once that budget is used up,
/// every further poll is in vain: of 100 000 releases at once, hardly one completed.
async fn work(mut incoming: mpsc::UnboundedReceiver<Job>, stop: Arc<Notify>) {
    let mut jobs = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            job = incoming.recv() => match job {
                Some(job) => drop(jobs.spawn(job)),
                None => break,
            },
            Some(done) = jobs.join_next(), if !jobs.is_empty() => warn_if_panicked(done),
            () = stop.notified() => incoming.close(),
        }
    }
    while let Some(done) = jobs.join_next().await {
        warn_if_panicked(done);
    }
}

/// A panic ends its own job only, which then no longer counts as in flight.
fn warn_if_panicked(done: Result<(), JoinError>) {
    if done.is_err_and(|error| error.is_panic()) {
        tracing::warn!("a clean-up panicked, which is a bug: its lock ends with its lease");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future as _;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn dropped_work_is_completed_only_if_it_was_polled() {
        let reaper = Reaper::start();
        for (begin, expected) in [(false, 0), (true, 1)] {
            let done = Arc::new(AtomicU32::new(0));
            let seen = Arc::clone(&done);
            let mut work = Finished::new(&reaper, async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                seen.fetch_add(1, Ordering::Relaxed);
            });
            if begin {
                assert!(futures::poll!(&mut work).is_pending());
            }
            drop(work);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(done.load(Ordering::Relaxed), expected);
            assert_eq!(reaper.under_way(), 0);
        }
    }

    #[tokio::test]
    async fn job_panic_stops_no_other_job_and_retryable_job_is_retried() {
        let reaper = Reaper::start();
        let (tries, others) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        for _ in 0..3 {
            reaper.finish(Box::pin(async { panic!("of the test") }));
            let tries = Arc::clone(&tries);
            reaper.finish_retrying(move || {
                let tries = Arc::clone(&tries);
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    assert!(tries.fetch_add(1, Ordering::Relaxed) % 2 == 1, "of the test");
                })
            });
            let others = Arc::clone(&others);
            reaper.finish(Box::pin(async move {
                others.fetch_add(1, Ordering::Relaxed);
            }));
            reaper.drained().await;
        }
        assert_eq!((tries.load(Ordering::Relaxed), others.load(Ordering::Relaxed)), (6, 3));
        // Work that panics while its caller polls it is not polled again.
        let mut work = Finished::new(&reaper, async move {
            tokio::task::yield_now().await;
            assert_eq!(tries.load(Ordering::Relaxed), 0, "of the test");
        });
        assert!(futures::poll!(&mut work).is_pending());
        assert!(AssertUnwindSafe(&mut work).catch_unwind().await.is_err());
        drop(work);
        reaper.drained().await;
    }

    #[test]
    fn work_of_ended_runtime_is_completed_on_client_runtime() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (home, there) = (runtime(), runtime());
        let reaper = home.block_on(async { Reaper::start() });
        let done = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&done);
        let mut work = Finished::new(&reaper, async move {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                seen.fetch_add(1, Ordering::Relaxed);
            }
        });
        there.block_on(async {
            assert!(futures::poll!(&mut work).is_pending());
        });
        drop((work, there));
        home.block_on(reaper.drained());
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn concurrent_jobs_need_few_polls_each() {
        const JOBS: usize = 5_000;
        let reaper = Reaper::start();
        let (polls, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let answers = Arc::new(tokio::sync::Semaphore::new(0));
        for _ in 0..JOBS {
            let (polls, begun, answers) = (Arc::clone(&polls), Arc::clone(&begun), Arc::clone(&answers));
            reaper.finish(Box::pin(async move {
                let order = tokio::sync::Mutex::new(());
                let mut job = std::pin::pin!(async {
                    let _order = order.lock().await;
                    begun.fetch_add(1, Ordering::Relaxed);
                    drop(answers.acquire().await);
                });
                std::future::poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    job.as_mut().poll(context)
                })
                .await;
            }));
        }
        while begun.load(Ordering::Relaxed) < JOBS {
            tokio::task::yield_now().await;
        }
        answers.add_permits(JOBS);
        reaper.drained().await;
        let polls = polls.load(Ordering::Relaxed);
        assert!(polls < 4 * JOBS, "{polls} polls of {JOBS} jobs");
    }

    #[test]
    fn job_after_end_of_runtime_is_dropped_without_panic() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reaper = runtime.block_on(async { Reaper::start() });
        drop(runtime);
        reaper.finish(Box::pin(async { panic!("must not run") }));
    }
}

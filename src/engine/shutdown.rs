//! The end of a client: by a call, or when the last reference to its [`Handle`] is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ledger::End;
use super::suspend::LOOK;
use super::{Engine, release};
use crate::error::{Error, Result, Step};
use crate::runtime::reaper::Finished;

/// Keeps a client open. Every clone, lock object and guard shares the handle. Dropping the last reference shuts the
/// client down.
pub(crate) struct Handle {
    engine: Arc<Engine>,
}

impl Handle {
    pub(crate) fn new(engine: Arc<Engine>) -> Arc<Self> {
        Arc::new(Self { engine })
    }

    pub(crate) const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(work) = self.engine.shut_down(self.engine.options.command_timeout) {
            work.detach();
        }
    }
}

impl Engine {
    /// Wakes a shutdown that waits for the last guard.
    pub(crate) fn guard_left(&self) {
        if self.closed.load(Ordering::Relaxed) {
            self.left.notify_one();
        }
    }

    /// Completes when no guard holds a lock.
    async fn guards_gone(&self) {
        while self.holds.any(|book| book.lasts(self.now().as_nanos())) {
            // The end of an explicit lease sends no notification, so the books are also polled.
            let _ = tokio::time::timeout(LOOK, self.left.notified()).await;
        }
    }

    /// Shuts the client down. Returns `None` if a shutdown has begun before.
    ///
    /// 1. Refuses acquires and ends waits.
    /// 2. Waits for guards for at most `within`, so that users can release them.
    /// 3. Releases the remaining holds, sends queued releases, and closes the connections.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the releases took longer than both the rest of `within` and one command timeout. The
    /// connections are closed nevertheless.
    pub(crate) fn shut_down(self: &Arc<Self>, within: Duration) -> Option<Finished<Result<()>>> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return None;
        }
        let engine = Arc::clone(self);
        let work = async move {
            let until = engine.now() + within;
            // `send` fails only if every task has ended.
            let _ = engine.closing.send(true);
            engine.registry.wake_all();
            for target in engine.queues.targets() {
                release::undo(target, false, None);
            }
            let _ = tokio::time::timeout(within, engine.guards_gone()).await;
            let _ = engine.ended.send(true);
            // A hold without a guard needs no work here. Either the hold is being released, or its acquire is in flight
            // and the grant will be released.
            for hold in engine.holds.collect(|book| book.end().is_none() && !book.is_idle()) {
                engine.lose(&hold, End::Closed);
            }
            let until = until.max(engine.now() + engine.options.command_timeout);
            // `drained` waits for all counted jobs, so this job is started as `uncounted`.
            let drained = tokio::time::timeout(until.since(engine.now()), engine.reaper.drained()).await.is_ok();
            let left = until.since(engine.now()).max(Duration::from_millis(100));
            engine.topology.close(left).await;
            engine.reaper.stop();
            if drained { Ok(()) } else { Err(Error::timeout(Step::Shutdown)) }
        };
        Some(Finished::uncounted(&self.reaper, work))
    }
}

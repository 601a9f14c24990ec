//! Batches subscriptions: many waiters with a channel each share a few commands.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};

use crate::transport::{Fault, FaultKind};

/// Maximum number of commands in flight. fred keeps thousands of bytes for each command.
const UNDER_WAY: usize = 16;
/// Maximum number of channels in one command. The server runs such a command in far less than a millisecond.
pub(super) const MOST: usize = 128;

type Outcome = Result<(), Fault>;

#[derive(Debug, Default)]
struct Batch {
    channels: Mutex<Vec<Bytes>>,
    outcome: OnceCell<Outcome>,
}

#[derive(Debug)]
pub(super) struct Together {
    /// The batch that still takes channels.
    open: Mutex<Option<Arc<Batch>>>,
    free: Semaphore,
}

impl Together {
    pub(super) fn new() -> Self {
        Self { open: Mutex::default(), free: Semaphore::new(UNDER_WAY) }
    }

    /// Waits until `send` has run for this channel's batch. One call of `join` runs `send` for the whole batch.
    ///
    /// # Cancel safety
    ///
    /// If the call that runs `send` is dropped, another call of the batch runs `send`. The dropped call's channel stays
    /// in the batch.
    pub(super) async fn join<F>(&self, channel: Bytes, send: impl Fn(Vec<Bytes>) -> F) -> Outcome
    where
        F: Future<Output = Outcome> + Send,
    {
        let batch = self.enter(&channel);
        let together = async {
            // Never an error: the semaphore is never closed.
            let _turn = self.free.acquire().await;
            let channels = self.end(&batch);
            // Boxed only now, so that a call that waits for the semaphore is small.
            Box::pin(send(channels)).await
        };
        let outcome = batch.outcome.get_or_init(|| together).await;
        match outcome {
            // The server refuses the whole batch if the login may not use one of the channels. Each call then sends a
            // command for its own channel.
            Err(fault)
                if matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere)
                    && batch.channels.lock().len() > 1 =>
            {
                let _turn = self.free.acquire().await;
                Box::pin(send(vec![channel])).await
            }
            outcome => outcome.clone(),
        }
    }

    fn enter(&self, channel: &Bytes) -> Arc<Batch> {
        let mut open = self.open.lock();
        let batch = Arc::clone(open.get_or_insert_default());
        let mut channels = batch.channels.lock();
        channels.push(channel.clone());
        if channels.len() == MOST {
            *open = None;
        }
        drop(channels);
        batch
    }

    /// Closes the batch for further channels, and returns its channels.
    fn end(&self, batch: &Arc<Batch>) -> Vec<Bytes> {
        let mut open = self.open.lock();
        if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, batch)) {
            *open = None;
        }
        batch.channels.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::future::join_all;

    use super::*;

    fn channel(n: usize) -> Bytes {
        Bytes::from(n.to_string())
    }

    #[tokio::test]
    async fn crowd_shares_a_few_commands_and_each_channel_is_in_one() {
        let (together, sent) = (Together::new(), Mutex::new(Vec::new()));
        let send = |channels: Vec<Bytes>| {
            sent.lock().push(channels);
            async {
                tokio::task::yield_now().await;
                Ok(())
            }
        };
        let all = join_all((0..10_000).map(|n| together.join(channel(n), send))).await;
        assert!(all.iter().all(Result::is_ok));
        let sent = sent.into_inner();
        assert!(sent.iter().all(|channels| channels.len() <= MOST));
        assert!(sent.len() < 10_000 / 16, "{} commands", sent.len());
        let mut channels: Vec<_> = sent.into_iter().flatten().collect();
        assert_eq!(channels.len(), 10_000);
        channels.sort();
        channels.dedup();
        assert_eq!(channels.len(), 10_000);
        assert!(together.open.lock().is_none());
    }

    #[tokio::test]
    async fn another_call_sends_the_batch_if_the_sender_is_dropped() {
        let together = Together::new();
        let turns = together.free.acquire_many(UNDER_WAY as u32).await;
        let mut first = Box::pin(together.join(channel(1), |_| pending()));
        let mut second = Box::pin(together.join(channel(2), |channels| {
            assert_eq!(channels, [channel(1), channel(2)]);
            ready(Ok(()))
        }));
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        drop(turns);
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
        drop(first);
        assert!(second.await.is_ok());
    }

    #[tokio::test]
    async fn refused_channel_does_not_fail_the_others() {
        let together = Together::new();
        let turns = together.free.acquire_many(UNDER_WAY as u32).await;
        let send = |channels: Vec<Bytes>| {
            let refused = Err(Fault::new(FaultKind::Refused, "NOPERM"));
            ready(if channels.contains(&channel(1)) { refused } else { Ok(()) })
        };
        let mut crowd = Box::pin(join_all((0..4).map(|n| together.join(channel(n), send))));
        assert!(futures::poll!(&mut crowd).is_pending());
        drop(turns);
        let outcomes: Vec<_> = crowd.await.iter().map(Result::is_ok).collect();
        assert_eq!(outcomes, [true, false, true, true]);
    }
}

//! Commands that follow an `ASK` redirect to this server. Each command is sent behind an `ASKING`. These commands share
//! a separate connection, except calls that replicas must acknowledge.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Member, is_answer};
use crate::topology::address::Address;
use crate::transport::connector::{Connector, Purpose};
use crate::transport::script::Script;
use crate::transport::{Call, Fault, FaultKind, Reply, Transport};
use crate::world::{Moment, World};

/// Lets the next command on the connection use a slot that is being moved to that server.
static ASKING: Script = Script::bare("cluster/asking", "ASKING");

/// The connection for commands that are each sent behind an `ASKING`.
#[derive(Default)]
pub(super) struct AskingConnection {
    /// The first of these commands opens the connection. It is closed once it has been unused for a while.
    transport: Mutex<Option<Arc<dyn Transport>>>,
    /// Held while a pair of `ASKING` and command is sent, so that no other command gets between them.
    order: Mutex<()>,
    /// When the last pair was sent, in ns of the local clock.
    last_used: AtomicU64,
    is_closed: AtomicBool,
}

impl AskingConnection {
    /// Returns the connection, which the caller must close. From now on, no new connection is kept.
    pub(super) fn shut(&self) -> Option<Arc<dyn Transport>> {
        let mut transport = self.transport.lock();
        self.is_closed.store(true, Ordering::Release);
        transport.take()
    }
}

impl Member {
    /// Runs a call whose slot is being moved to this server.
    ///
    /// # Errors
    ///
    /// [`FaultKind::NotSent`] if the call was not sent.
    pub(in crate::topology) async fn ask(
        &self,
        world: &dyn World,
        connector: &dyn Connector,
        address: &Address,
        call: Call,
    ) -> Result<Reply, Fault> {
        let AskingConnection { order, last_used, .. } = &self.asking;
        last_used.store(world.now().as_nanos(), Ordering::Relaxed);
        if self.acknowledgement.concerns(call.script, world.now()) && self.transport.acknowledges() {
            return Box::pin(self.run_acknowledged(world, call, true)).await.map_err(|fault| self.named(fault));
        }
        let there = self.asking_connection(connector, address).await?;
        // The call counts as in flight, so that the member is not closed before the server replies.
        let pending = self.liveness.ask(world.now());
        // If the connection breaks in between, the server gets the command without `ASKING`, and redirects it.
        let announced = there.run(Call { script: &ASKING, keys: 0, words: Vec::new() });
        let mut pair = std::pin::pin!(futures::future::join(announced, there.run(call)));
        let first = poll_fn(|context| {
            let _order = order.lock();
            Poll::Ready(pair.as_mut().poll(context))
        });
        let (_, outcome) = match first.await {
            Poll::Ready(outcomes) => outcomes,
            Poll::Pending => pair.await,
        };
        if is_answer(&outcome) {
            pending.answered(world.now());
        }
        outcome.map_err(|fault| self.named(fault))
    }

    async fn asking_connection(
        &self,
        connector: &dyn Connector,
        address: &Address,
    ) -> Result<Arc<dyn Transport>, Fault> {
        let known = self.asking.transport.lock().clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let made = connector.connect(&address.to_string(), Purpose::Asking).await;
        let made = made.map_err(|error| Fault::new(FaultKind::NotSent, error.to_string()))?;
        let kept = {
            let mut transport = self.asking.transport.lock();
            let is_closed = self.asking.is_closed.load(Ordering::Acquire);
            (!is_closed).then(|| Arc::clone(transport.get_or_insert_with(|| Arc::clone(&made))))
        };
        match kept {
            Some(kept) if Arc::ptr_eq(&kept, &made) => Ok(kept),
            // The server was closed, or another task has connected first.
            kept => {
                made.close(Duration::ZERO).await;
                kept.ok_or_else(|| Fault::new(FaultKind::NotSent, "the server has left the cluster"))
            }
        }
    }

    /// Returns the `ASKING` connection if no command has used it since that moment. The caller must close it.
    pub(in crate::topology) fn take_unused_asking_connection(&self, since: Moment) -> Option<Arc<dyn Transport>> {
        if self.is_asked_since(since) { None } else { self.asking.transport.lock().take() }
    }

    /// True if an `ASK` redirect has led a command to this server since that moment.
    pub(in crate::topology) fn is_asked_since(&self, moment: Moment) -> bool {
        self.asking.last_used.load(Ordering::Relaxed) > moment.as_nanos()
    }
}

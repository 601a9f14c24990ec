//! Group commit: under load, calls that arrive while others are in flight are sent together, as one command.
//!
//! 1. While few calls and no batches are in flight, a call is sent at once, by itself.
//! 2. Otherwise it queues. A background task sends queued calls as a *batch*: one command, so client, socket and server
//!    have the cost of one command. Each call is a *step* of that command, and succeeds or fails by itself.
//! 3. Up to `WINDOW` batches per connection are in flight; to a loaded server of a cluster, only one (`CROWD`). A batch
//!    takes a `WINDOW`th of the work of all calls, queued or in flight. If one batch took all of it, the server would
//!    wait while the client reads the replies, and the client while the server runs the batch.
//!
//! A batch to a server of a cluster declares no keys (`transport/undeclared.rs`).

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::config::Options;
use crate::runtime::reaper::Reaper;
use crate::runtime::standstill::within;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Acknowledge, Call, Fault, Listener, Replied, Reply, Transport};
use crate::world::World;
use queue::{Core, Queued};

mod batch;
mod queue;

type Outcome = Result<Reply, Fault>;

/// A server that gets calls in batches under load.
pub(crate) struct Coalesced {
    core: Arc<Core>,
}

impl Coalesced {
    pub(crate) fn over(inner: Arc<dyn Transport>, options: &Options, reaper: Reaper) -> Arc<dyn Transport> {
        Arc::new(Self { core: Arc::new(Core::new(inner, None, options, reaper)) })
    }

    /// Like `over`, for a server of a cluster.
    pub(crate) fn over_member(
        inner: Arc<dyn Transport>,
        undeclared: Arc<Undeclared>,
        options: &Options,
        reaper: Reaper,
    ) -> Arc<dyn Transport> {
        Arc::new(Self { core: Arc::new(Core::new(inner, Some(undeclared), options, reaper)) })
    }
}

impl fmt::Debug for Coalesced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.inner.fmt(f)
    }
}

impl Transport for Coalesced {
    fn run(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let stays_bare = call.script.command.is_some() && self.core.inner.prefers_bare_commands();
        let is_shared = !stays_bare && self.core.is_shared(&call);
        let Some((many, _)) = call.script.many.filter(|_| is_shared) else { return self.core.inner.run(call) };
        let core = Arc::clone(&self.core);
        if let Some(in_flight) = Core::admit(&core) {
            let run = core.inner.run(call);
            return Box::pin(async move {
                let outcome = run.await;
                drop(in_flight);
                outcome
            });
        }
        Box::pin(async move {
            let (answer, outcome) = oneshot::channel();
            let work = batch::work(&call);
            Core::enqueue(&core, Queued { call, many, work, answer });
            let answered = within(core.timeout, outcome).await;
            match answered {
                Some(Ok(outcome)) => outcome,
                Some(Err(_)) if core.reaper.is_stopped() => Err(Fault::closed()),
                // The runtime is ending. It dropped the task that sends the batch, and this caller still runs.
                Some(Err(_)) => Err(Fault::runtime_gone()),
                None => Err(Fault::no_answer()),
            }
        })
    }

    fn acknowledges(&self) -> bool {
        self.core.inner.acknowledges()
    }

    fn trouble(&self) -> Option<String> {
        self.core.inner.trouble()
    }

    /// Not batched: `distlock_wire::Lanes` already groups acknowledged calls.
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

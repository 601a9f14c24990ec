//! One client's connections to a simulated server, as an implementation of `Transport`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::core::{Outcome, Request, Sent};
use super::faults::{Chaos, Mishap};
use super::line::Line;
use super::server::{Shared, drive};
use distlock::transport::{Call, Fault, FaultKind, Listener, Moment, Reply, Transport, World};
use distlock::{Client, Options};

/// The connections of one client. Clones share the same connections.
#[derive(Clone)]
pub struct SimLink {
    shared: Arc<Shared>,
    line: usize,
}

/// A command in flight. If its caller drops it, nobody waits for the reply, but the command still runs.
struct Waiting {
    link: SimLink,
    ticket: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.link.with(|line| line.pending.remove(&self.ticket));
    }
}

impl SimLink {
    pub(super) const fn new(shared: Arc<Shared>, line: usize) -> Self {
        Self { shared, line }
    }

    /// Creates the client of these connections, on the current runtime; `set` may change its options.
    ///
    /// The simulator decides the client's id and all its random numbers. The time limit of a command is
    /// [`LinkOptions::timeout`](crate::LinkOptions::timeout), not `Options::command_timeout`. Call this once per
    /// link: of two clients over one link, only one would get messages.
    ///
    /// # Errors
    /// [`Error::Config`](distlock::Error::Config) for options that cannot work, or outside a runtime.
    pub fn client(&self, set: impl FnOnce(&mut Options)) -> distlock::Result<Client> {
        let mut options = Options::default();
        set(&mut options);
        Client::over_transport(Arc::new(self.clone()), options)
    }

    fn with<R>(&self, act: impl FnOnce(&mut Line) -> R) -> R {
        act(&mut self.shared.lock().lines[self.line])
    }

    /// Plans a fault for command `number` of this link. Numbers start at 0 and count scripts, subscribes and
    /// unsubscribes alike. Several faults of one command happen together.
    pub fn plan(&self, number: u64, mishap: Mishap) {
        self.with(|line| line.plan.entry(number).or_default().push(mishap));
    }

    /// Plans a fault for the next command.
    pub fn plan_next(&self, mishap: Mishap) {
        self.with(|line| line.plan.entry(line.sent).or_default().push(mishap));
    }

    /// Returns the number of commands sent so far, which is the number of the next command.
    pub fn sent(&self) -> u64 {
        self.with(|line| line.sent)
    }

    /// Sets the random faults of commands and messages from now on.
    pub fn chaos(&self, chaos: Chaos) {
        self.with(|line| line.chaos = chaos);
    }

    /// Cuts the client off, or heals the partition. During a partition, commands time out and messages are lost. After
    /// it, the client is notified that it may have missed messages.
    pub fn partition(&self, cut: bool) {
        let mut core = self.shared.lock();
        core.partition(self.line, cut, Instant::now());
        drive(&self.shared, core);
    }

    /// Holds back everything in both directions, or releases it. Released commands and messages arrive late.
    pub fn stall(&self, held: bool) {
        let mut core = self.shared.lock();
        core.stall(self.line, held);
        drive(&self.shared, core);
    }

    /// Breaks the client's connections. The client reconnects.
    pub fn hang_up(&self) {
        let mut core = self.shared.lock();
        core.hang_up(self.line, Instant::now());
        drive(&self.shared, core);
    }

    /// Loses every message from now on, silently.
    pub fn drop_messages(&self, deaf: bool) {
        self.with(|line| line.deaf = deaf);
    }

    pub(super) fn end(&self) {
        self.shared.lock().close(self.line);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.with(|line| line.closed)
    }

    /// Returns the number of commands that wait for a reply.
    pub fn in_flight(&self) -> usize {
        self.with(|line| line.pending.len())
    }

    /// Returns the channels that this client is subscribed to, sorted.
    pub fn subscriptions(&self) -> Vec<Vec<u8>> {
        self.with(|line| line.subscriptions.iter().map(|name| name.to_vec()).collect())
    }

    /// Runs one request. The request is sent at the first poll.
    async fn request(self, request: Request) -> Outcome {
        let (sent, timeout) = {
            let mut core = self.shared.lock();
            let sent = core.send(self.line, request, Instant::now());
            let timeout = core.lines[self.line].options.timeout;
            drive(&self.shared, core);
            (sent, timeout)
        };
        match sent {
            Sent::Done(outcome) => outcome,
            Sent::Waiting(ticket, reply) => {
                let _waiting = Waiting { link: self, ticket };
                match tokio::time::timeout(timeout, reply).await {
                    Ok(Ok(outcome)) => outcome,
                    Ok(Err(_)) => Err(Fault::new(FaultKind::Lost, "the connection broke")),
                    Err(_) => Err(Fault::new(FaultKind::TimedOut, "no reply in time")),
                }
            }
        }
    }
}

impl Transport for SimLink {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        self.clone().request(Request::Run(call)).boxed()
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.clone().request(Request::Subscribe(channel)).map(|outcome| outcome.map(drop)).boxed()
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.clone().request(Request::Unsubscribe(channel)).map(drop).boxed()
    }

    fn forget(&self, channel: &Bytes) {
        self.with(|line| line.wanted.remove(channel));
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.with(|line| line.listener = Some(listener));
    }

    fn address(&self) -> &str {
        &self.shared.address
    }

    fn trouble(&self) -> Option<String> {
        let is_broken = self.with(|line| line.told_broken);
        is_broken.then(|| format!("no connection to {}", self.shared.address))
    }

    fn world(&self) -> Arc<dyn World> {
        Arc::new(self.clone())
    }

    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        let link = self.clone();
        async move { link.end() }.boxed()
    }
}

impl World for SimLink {
    fn now(&self) -> Moment {
        self.shared.moment()
    }

    fn random(&self) -> u64 {
        self.with(|line| line.jitter.next())
    }
}

impl fmt::Debug for SimLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLink").field("line", &self.line).finish_non_exhaustive()
    }
}

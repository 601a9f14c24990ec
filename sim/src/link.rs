//! One client's way to a simulated server: the test form of `Transport`.

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

/// The connections of one client. Clones are the same connections.
#[derive(Clone)]
pub struct SimLink {
    shared: Arc<Shared>,
    line: usize,
}

/// A command under way. Its caller may go: then nobody waits for the reply, but the command goes on.
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

    /// The client of these connections, on the current runtime; `set` may change its options. The simulator decides its id
    /// and all that it leaves to chance. How long a command may take is [`LinkOptions::timeout`](crate::LinkOptions::timeout),
    /// not `Options::command_timeout`. To be called once: two clients over one link would hear only the messages of one.
    ///
    /// *Errors*: [`Error::Config`](distlock::Error::Config) for options that cannot work, or without a runtime.
    pub fn client(&self, set: impl FnOnce(&mut Options)) -> distlock::Result<Client> {
        let mut options = Options::default();
        set(&mut options);
        Client::over_transport(Arc::new(self.clone()), options)
    }

    fn with<R>(&self, act: impl FnOnce(&mut Line) -> R) -> R {
        act(&mut self.shared.lock().lines[self.line])
    }

    /// Lets command `number` of this link go wrong. Scripts, subscriptions and their ends count alike, from 0. What is
    /// planned twice for one command happens together.
    pub fn plan(&self, number: u64, mishap: Mishap) {
        self.with(|line| line.plan.entry(number).or_default().push(mishap));
    }

    /// Lets the next command go wrong.
    pub fn plan_next(&self, mishap: Mishap) {
        self.with(|line| line.plan.entry(line.sent).or_default().push(mishap));
    }

    /// How many commands were sent: the number of the next one.
    pub fn sent(&self) -> u64 {
        self.with(|line| line.sent)
    }

    /// Lets commands and messages go wrong by chance from now on.
    pub fn chaos(&self, chaos: Chaos) {
        self.with(|line| line.chaos = chaos);
    }

    /// Cuts the client off: commands run into their timeout, messages are lost. Healed, it is told that it missed
    /// something.
    pub fn partition(&self, cut: bool) {
        let mut core = self.shared.lock();
        core.partition(self.line, cut, Instant::now());
        drive(&self.shared, core);
    }

    /// Holds back everything in both directions; afterwards all of it arrives, late.
    pub fn stall(&self, held: bool) {
        let mut core = self.shared.lock();
        core.stall(self.line, held);
        drive(&self.shared, core);
    }

    /// Breaks the client's connections; it makes new ones.
    pub fn hang_up(&self) {
        let mut core = self.shared.lock();
        core.hang_up(self.line, Instant::now());
        drive(&self.shared, core);
    }

    /// Loses every message from now on, without a sign.
    pub fn drop_messages(&self, deaf: bool) {
        self.with(|line| line.deaf = deaf);
    }

    /// Ends the connections.
    pub(super) fn end(&self) {
        self.shared.lock().close(self.line);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.with(|line| line.closed)
    }

    /// How many commands wait for a reply.
    pub fn in_flight(&self) -> usize {
        self.with(|line| line.pending.len())
    }

    /// The channels this client is subscribed to, sorted.
    pub fn subscriptions(&self) -> Vec<Vec<u8>> {
        self.with(|line| line.subscriptions.iter().map(|name| name.to_vec()).collect())
    }

    /// Runs one request, sent at the first poll.
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

/// Virtual time, and numbers by the seed.
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

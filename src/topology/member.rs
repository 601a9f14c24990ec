//! One server of a topology.

mod probe;

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::acknowledgement::{AckRule, Acknowledgement};
use super::address::Address;
use super::clock::ServerClock;
use super::cluster::Gate;
use super::info::{ServerInfo, ServerRole};
use super::liveness::{Liveness, UnderWay};
use super::redirect::Redirect;
use crate::error::passing::{Passing, inside};
use crate::error::{Error, Step};
use crate::transport::connector::{Connector, Purpose};
use crate::transport::script::Script;
use crate::transport::undeclared::Undeclared;
use crate::transport::{Call, Fault, FaultKind, Listener, Reply, Transport};
use crate::world::{Moment, World};

/// How often it is looked whether the last answer of a server has come that is to be closed.
const LOOKS: Duration = Duration::from_millis(10);

/// Which server of a topology it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MemberId(usize);

impl MemberId {
    pub(super) const fn new(index: usize) -> Self {
        Self(index)
    }

    pub(super) const fn index(self) -> usize {
        self.0
    }
}

/// Who is notified of messages, and of servers whose connections broke. The registry is the one implementation outside tests.
pub(crate) trait MemberListener: Send + Sync {
    /// A message came in on `channel`.
    fn message(&self, channel: &[u8], payload: &[u8]);

    /// Messages of this server may have been missed: every waiter for a name of its has to look for itself once.
    fn missed(&self, member: MemberId);

    /// The connection for commands to this server is back after a break: whatever is held there should be confirmed now.
    fn reconnected(&self, member: MemberId);

    /// These slots, in order, have come to other servers: whatever is held there should be confirmed now, and whoever waits for a
    /// name there has to look for itself once.
    fn slots_moved(&self, slots: &[u16]);

    /// The subscription to a channel was made anew, where its slot is now: messages in between were missed.
    fn resubscribed(&self, channel: &[u8]);

    /// The subscription to a channel is lost, or could not be restored. No message arrives until it is restored.
    fn unsubscribed(&self, channel: &[u8]);
}

/// Who keeps the subscriptions of a topology, and its map.
pub(super) trait Subscriber: Send + Sync {
    /// A server has ended the subscription to a channel, which nobody asked for.
    fn ended(&self, member: MemberId, channel: &[u8]);

    /// A connection to a server has broken.
    fn went_away(&self, member: MemberId);

    /// All connections to a server are back.
    fn came_back(&self, member: MemberId);
}

/// One server: the way to it, and whether it answers.
pub(super) struct Member {
    id: MemberId,
    /// What stands for its host in redirects that name none.
    host: Box<str>,
    transport: Arc<dyn Transport>,
    since: Instant,
    liveness: Liveness,
    clock: ServerClock,
    undeclared: Arc<Undeclared>,
    gate: Gate,
    acknowledgement: Acknowledgement,
    /// Taken by the caller who asks whether it answers, for all who wait to be sent.
    probing: tokio::sync::Mutex<()>,
    listener: OnceLock<Weak<dyn MemberListener>>,
    subscriber: OnceLock<Weak<dyn Subscriber>>,
    /// How many of its connections are broken. Locked while that is reported, so that reports come in order.
    broken: Mutex<usize>,
    /// True once there has been no connection for messages for a while.
    is_deaf: AtomicBool,
    /// True if the last command about a lock met a refusal that passes; and the text of the last one.
    is_refusing: AtomicBool,
    refusal: Mutex<String>,
    asking: AskingConnection,
    left: Left,
}

/// Whether nobody waits for the answers of a server any more.
#[derive(Default)]
struct Left {
    is_left: AtomicBool,
    notify: Notify,
}

/// The connection to a server for commands that each go behind an `ASKING`.
#[derive(Default)]
struct AskingConnection {
    /// Made by the first of them, and kept for a while behind the last.
    transport: Mutex<Option<Arc<dyn Transport>>>,
    /// Held while the two of a pair are sent, so that nothing comes in between.
    order: Mutex<()>,
    /// When the last pair was sent, in ns of the local clock.
    last_used: AtomicU64,
    is_closed: AtomicBool,
}

/// True for the error of a script's command about a key that is not at this server, or is just being moved.
pub(super) fn tells_of_keys_elsewhere(error: &str) -> bool {
    Redirect::of(error, "") == Redirect::NonLocal
}

/// True where the server has said something.
fn is_answer<T>(outcome: &Result<T, Fault>) -> bool {
    outcome.as_ref().map_or_else(|fault| matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere), |_| true)
}

/// Lets the next command on its connection see a slot that is being moved there.
static ASKING: Script = Script::bare("cluster/asking", "ASKING");

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("id", &self.id).field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Member {
    pub(super) fn new(id: MemberId, transport: Arc<dyn Transport>, rule: AckRule) -> Arc<Self> {
        Self::of_cluster(id, "", transport, Arc::new(Undeclared::new(tells_of_keys_elsewhere)), rule)
    }

    /// As `new`; `undeclared`: what the transport too finds out about the server.
    pub(super) fn of_cluster(
        id: MemberId,
        host: &str,
        transport: Arc<dyn Transport>,
        undeclared: Arc<Undeclared>,
        rule: AckRule,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            host: host.into(),
            transport,
            since: Instant::now(),
            liveness: Liveness::default(),
            clock: ServerClock::default(),
            undeclared,
            gate: Gate::default(),
            acknowledgement: Acknowledgement::new(rule),
            probing: tokio::sync::Mutex::default(),
            listener: OnceLock::new(),
            subscriber: OnceLock::new(),
            broken: Mutex::default(),
            is_deaf: AtomicBool::new(false),
            is_refusing: AtomicBool::new(false),
            refusal: Mutex::default(),
            asking: AskingConnection::default(),
            left: Left::default(),
        })
    }

    /// What is told of it where it is a primary.
    pub(super) fn info(&self, epoch: Option<u64>) -> ServerInfo {
        let address = self.transport.address().to_owned();
        ServerInfo { address, role: ServerRole::Primary, epoch, since: Some(self.since.elapsed()) }
    }

    pub(super) const fn id(&self) -> MemberId {
        self.id
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// What is known of its replicas.
    pub(super) const fn acknowledgement(&self) -> &Acknowledgement {
        &self.acknowledgement
    }

    /// Whether commands have to wait.
    pub(super) const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Whether it runs scripts without declared keys.
    pub(super) fn undeclared(&self) -> &Arc<Undeclared> {
        &self.undeclared
    }

    /// What is known of its time of day.
    pub(super) const fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Sets who hears of this server. Called once, before the first subscription.
    pub(super) fn listen(self: &Arc<Self>, listener: Weak<dyn MemberListener>) {
        let _ = self.listener.set(listener);
        let this: Arc<dyn Listener> = Arc::<Self>::clone(self);
        self.transport.listen(Arc::downgrade(&this));
    }

    /// Sets who is told of subscriptions that this server ends. Called once, before the first of them.
    pub(super) fn report_ends(&self, subscriber: Weak<dyn Subscriber>) {
        let _ = self.subscriber.set(subscriber);
    }

    /// The server, as errors name it: the transport's address, without the database behind it.
    pub(super) fn server(&self) -> Arc<str> {
        let address = self.transport.address();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        Arc::from(address.rsplit_once('/').filter(|(_, database)| is_number(database)).map_or(address, |(at, _)| at))
    }

    /// Adds the server's name to a fault that has none.
    fn named(&self, mut fault: Fault) -> Fault {
        fault.server.get_or_insert_with(|| self.server());
        fault
    }

    /// As [`Transport::run`]; whether an answer came is noted. What makes somebody a holder is answered once enough replicas have it:
    /// else it is [`FaultKind::Unacknowledged`].
    pub(super) async fn run(&self, world: &dyn World, call: Call) -> Result<Reply, Fault> {
        let outcome = if self.acknowledgement.concerns(call.script, world.now()) {
            // In a box: others are the smaller for it.
            Box::pin(self.run_acknowledged(world, call, false)).await
        } else {
            self.run_alone(world, call).await
        };
        outcome.map_err(|fault| self.named(fault))
    }

    async fn run_acknowledged(&self, world: &dyn World, call: Call, asking: bool) -> Result<Reply, Fault> {
        let Self { transport, acknowledgement, .. } = self;
        let Some(how) = acknowledgement.how(&**transport, world.now(), asking).await? else {
            return self.run_alone(world, call).await;
        };
        let at_once = call.script.at_once;
        let replied = {
            let (sent, is_sent) = oneshot::channel();
            let mut replied = transport.run_acknowledged(call, how, sent);
            let early = tokio::select! {
                biased;
                early = &mut replied => Some(early),
                // No answer is due as long as replicas are waited for that have not acknowledged what was sent before.
                _ = is_sent => None,
                never = self.probe(world) => match never {},
            };
            match early {
                Some(early) => {
                    if is_answer(&early) {
                        self.liveness.heard(world.now());
                    }
                    early?
                }
                None => self.noted(world, replied).await?,
            }
        };
        if let Some(acknowledged) = replied.acknowledged {
            if let Some(reply) = at_once.and_then(|at_once| at_once(&replied.reply)) {
                return Ok(reply);
            }
            // The server has answered: it is not silent while its replicas are waited for.
            let got = acknowledgement.waiting(how.replicas, acknowledged).await;
            acknowledgement.judge(&**transport, how.replicas, got, world.now()).await?;
        }
        Ok(replied.reply)
    }

    async fn run_alone(&self, world: &dyn World, call: Call) -> Result<Reply, Fault> {
        self.noted(world, self.transport.run(call)).await
    }

    /// Notes whether an answer comes, which is due from now on.
    async fn noted<T>(&self, world: &dyn World, answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let mut under_way = UnderWay { pending: Some(self.liveness.ask(world.now())), world };
        let outcome = answer.await;
        if let Some(pending) = under_way.pending.take() {
            if is_answer(&outcome) { pending.answered(world.now()) } else { pending.failed() }
        }
        outcome
    }

    /// As `run`, for a slot that is being moved to this server. [`FaultKind::NotSent`] where the server was not asked.
    pub(super) async fn ask(
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
        // Waited for when the server has lost its slots.
        let pending = self.liveness.ask(world.now());
        // A command that comes there without its announcement, because the connection broke in between, is sent away again.
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
            // Closed, or made by another at the same time.
            kept => {
                made.close(Duration::ZERO).await;
                kept.ok_or_else(|| Fault::new(FaultKind::NotSent, "the server has left the cluster"))
            }
        }
    }

    /// Takes out the connection for commands behind an `ASKING`, for the caller to close, where none was led here since that moment.
    pub(super) fn take_unused_asking_connection(&self, since: Moment) -> Option<Arc<dyn Transport>> {
        if self.is_asked_since(since) { None } else { self.asking.transport.lock().take() }
    }

    /// True when a command was led here by an `ASK` since that moment.
    pub(super) fn is_asked_since(&self, moment: Moment) -> bool {
        self.asking.last_used.load(Ordering::Relaxed) > moment.as_nanos()
    }

    /// Waits until no answer is due any more, or the server is silent, for so long at the most.
    pub(super) async fn answers(&self, world: &dyn World, most: Duration) {
        let end = world.now() + most;
        while self.liveness.is_asked() && !self.is_silent(world.now()) && world.now() < end {
            tokio::time::sleep(LOOKS).await;
        }
    }

    /// Has nobody wait for its answers any more: closing connections to a server that is away takes its time.
    pub(super) fn leave(&self) {
        self.left.is_left.store(true, Ordering::Release);
        self.left.notify.notify_waiters();
    }

    /// Done when nobody is to wait for its answers any more.
    pub(super) async fn left(&self) {
        // Made first: it is told from here on.
        let left = self.left.notify.notified();
        if !self.left.is_left.load(Ordering::Acquire) {
            left.await;
        }
    }

    /// Ends the connections to it.
    pub(super) async fn close(&self, within: Duration) {
        let asking = {
            let mut transport = self.asking.transport.lock();
            self.asking.is_closed.store(true, Ordering::Release);
            transport.take()
        };
        let asking = async {
            if let Some(asking) = asking {
                asking.close(within).await;
            }
        };
        futures::future::join(self.transport.close(within), asking).await;
    }

    /// True when answers were due at that moment, and none had come for longer than they take.
    pub(super) fn is_silent(&self, at: Moment) -> bool {
        self.liveness.is_silent(at)
    }

    /// Notes whether a command about a lock met a refusal that passes.
    pub(super) fn note<T>(&self, outcome: &Result<T, Fault>) {
        match outcome {
            // Written only if it changes: every command comes by here.
            Ok(_) if self.is_refusing.load(Ordering::Relaxed) => self.is_refusing.store(false, Ordering::Relaxed),
            Ok(_) => {}
            Err(fault) if fault.kind == FaultKind::Refused && Passing::of(&fault.message).is_some() => {
                inside(&fault.message).clone_into(&mut self.refusal.lock());
                self.is_refusing.store(true, Ordering::Relaxed);
            }
            Err(_) => {}
        }
    }

    /// The error for an answer that did not arrive in time. It says what is missing: acknowledgements, a connection, a server that
    /// accepts commands, or the reply.
    pub(super) fn missing(&self) -> Error {
        let (wanted, is_silent) = (self.acknowledgement.awaited(), self.is_silent(self.transport.world().now()));
        if wanted > 0 && !is_silent {
            return Error::replicas(0, wanted);
        }
        // Not `broken`: that counts the connection for messages too.
        if let Some(message) = self.transport.trouble() {
            return Error::connection(message, true, None);
        }
        if self.is_refusing.load(Ordering::Relaxed) && !is_silent {
            return Error::server(&**self.refusal.lock());
        }
        Error::timeout(Step::Command)
    }

    /// True once there has been no connection for messages for a while, until there is one again.
    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }

    fn report(&self, what: impl FnOnce(&dyn Subscriber)) {
        if let Some(subscriber) = self.subscriber.get().and_then(Weak::upgrade) {
            what(&*subscriber);
        }
    }

    fn notify(&self, what: impl FnOnce(&dyn MemberListener)) {
        if let Some(listener) = self.listener.get().and_then(Weak::upgrade) {
            what(&*listener);
        }
    }
}

impl Listener for Member {
    fn message(&self, channel: &[u8], payload: &[u8]) {
        self.notify(|listener| listener.message(channel, payload));
    }

    fn ended(&self, channel: &[u8]) {
        match self.subscriber.get() {
            Some(_) => self.report(|subscriber| subscriber.ended(self.id, channel)),
            // A single server: only the waiters subscribe again.
            None => self.notify(|listener| listener.unsubscribed(channel)),
        }
    }

    fn deaf(&self) {
        self.is_deaf.store(true, Ordering::Relaxed);
        // Each waiter polls once now, and more often from now on.
        self.notify(|listener| listener.missed(self.id));
    }

    fn broken(&self) {
        let mut broken = self.broken.lock();
        *broken += 1;
        self.report(|subscriber| subscriber.went_away(self.id));
    }

    fn mended(&self) {
        let mut broken = self.broken.lock();
        *broken = broken.saturating_sub(1);
        if *broken == 0 {
            self.report(|subscriber| subscriber.came_back(self.id));
        }
    }

    fn missed(&self) {
        self.is_deaf.store(false, Ordering::Relaxed);
        self.notify(|listener| listener.missed(self.id));
    }

    fn reconnected(&self) {
        self.notify(|listener| listener.reconnected(self.id));
    }
}

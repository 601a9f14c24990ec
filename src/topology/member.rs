//! One server of a topology: its connections, and whether it answers.

mod asking;
mod events;
mod probe;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::acknowledgement::{AckRule, Acknowledgement};
use super::clock::ServerClock;
use super::cluster::Gate;
use super::info::{ServerInfo, ServerRole};
use super::liveness::{Liveness, UnderWay};
use super::redirect::Redirect;
use crate::error::passing::{Passing, inside};
use crate::error::{Error, Step};
use crate::transport::undeclared::Undeclared;
use crate::transport::{Call, Fault, FaultKind, Reply, Transport};
use crate::world::{Moment, World};
use asking::AskingConnection;
pub(crate) use events::MemberListener;
pub(super) use events::Subscriber;

/// Interval at which [`Member::answers`] checks whether replies are still outstanding.
const LOOKS: Duration = Duration::from_millis(10);

/// Identifies a server within its topology.
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

pub(super) struct Member {
    id: MemberId,
    /// Host to use in redirects that name no host.
    host: Box<str>,
    transport: Arc<dyn Transport>,
    since: Instant,
    liveness: Liveness,
    clock: ServerClock,
    undeclared: Arc<Undeclared>,
    gate: Gate,
    acknowledgement: Acknowledgement,
    /// Held by the task that probes the server, on behalf of all tasks whose calls wait to be sent.
    probing: tokio::sync::Mutex<()>,
    listener: OnceLock<Weak<dyn MemberListener>>,
    subscriber: OnceLock<Weak<dyn Subscriber>>,
    /// Number of broken connections. Locked while a change is reported, so that reports arrive in order.
    broken: Mutex<usize>,
    /// True once there has been no connection for messages for a while, until there is one again.
    is_deaf: AtomicBool,
    /// True if a command about a lock was refused for a temporary reason, and no such command has succeeded since.
    /// `refusal` is the text of the last such error.
    is_refusing: AtomicBool,
    refusal: Mutex<String>,
    asking: AskingConnection,
    left: Left,
}

/// Whether [`Member::leave`] was called. If so, callers stop waiting for replies of this server.
#[derive(Default)]
struct Left {
    is_left: AtomicBool,
    notify: Notify,
}

/// True if a command inside a script failed because its key is not on this server, or the key's slot is being moved.
pub(super) fn tells_of_keys_elsewhere(error: &str) -> bool {
    Redirect::of(error, "") == Redirect::NonLocal
}

fn is_answer<T>(outcome: &Result<T, Fault>) -> bool {
    outcome.as_ref().map_or_else(|fault| matches!(fault.kind, FaultKind::Refused | FaultKind::Elsewhere), |_| true)
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("id", &self.id).field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Member {
    pub(super) fn new(id: MemberId, transport: Arc<dyn Transport>, rule: AckRule) -> Arc<Self> {
        Self::of_cluster(id, "", transport, Arc::new(Undeclared::new(tells_of_keys_elsewhere)), rule)
    }

    /// Like `new`, for a server of a cluster. The transport has the same `undeclared`, and updates it.
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

    pub(super) const fn acknowledgement(&self) -> &Acknowledgement {
        &self.acknowledgement
    }

    pub(super) const fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(super) fn undeclared(&self) -> &Arc<Undeclared> {
        &self.undeclared
    }

    pub(super) const fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Name of the server in errors: the transport's address without the database.
    pub(super) fn server(&self) -> Arc<str> {
        let address = self.transport.address();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        Arc::from(address.rsplit_once('/').filter(|(_, database)| is_number(database)).map_or(address, |(at, _)| at))
    }

    fn named(&self, mut fault: Fault) -> Fault {
        fault.server.get_or_insert_with(|| self.server());
        fault
    }

    /// Runs a call as [`Transport::run`] does, and notes whether a reply arrived. A call that acquires or prolongs a
    /// hold also waits for replicas, if the acknowledgement rule demands that. If too few replicas acknowledge, the
    /// call fails with [`FaultKind::Unacknowledged`].
    pub(super) async fn run(&self, world: &dyn World, call: Call) -> Result<Reply, Fault> {
        let outcome = if self.acknowledgement.concerns(call.script, world.now()) {
            // Boxed to keep the futures of other calls small.
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
                // No reply can be expected before the call is sent. The call may be queued behind calls that replicas
                // have not acknowledged.
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
            // The server has replied, so the wait for its replicas does not count as silence.
            let got = acknowledgement.waiting(how.replicas, acknowledged).await;
            acknowledgement.judge(&**transport, how.replicas, got, world.now()).await?;
        }
        Ok(replied.reply)
    }

    async fn run_alone(&self, world: &dyn World, call: Call) -> Result<Reply, Fault> {
        self.noted(world, self.transport.run(call)).await
    }

    /// Awaits a reply, and notes whether it arrives. From this call on, the reply counts as outstanding.
    async fn noted<T>(&self, world: &dyn World, answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let mut under_way = UnderWay { pending: Some(self.liveness.ask(world.now())), world };
        let outcome = answer.await;
        if let Some(pending) = under_way.pending.take() {
            if is_answer(&outcome) { pending.answered(world.now()) } else { pending.failed() }
        }
        outcome
    }

    /// Waits until no reply is outstanding or the server is silent, for at most `most`.
    pub(super) async fn answers(&self, world: &dyn World, most: Duration) {
        let end = world.now() + most;
        while self.liveness.is_asked() && !self.is_silent(world.now()) && world.now() < end {
            tokio::time::sleep(LOOKS).await;
        }
    }

    /// Makes all callers stop waiting for replies of this server at once. Closing the connections would end these waits
    /// too, but takes a while if the server is unreachable.
    pub(super) fn leave(&self) {
        self.left.is_left.store(true, Ordering::Release);
        self.left.notify.notify_waiters();
    }

    pub(super) async fn left(&self) {
        // `left` is created before the flag is read, because it only sees notifications after its creation.
        let left = self.left.notify.notified();
        if !self.left.is_left.load(Ordering::Acquire) {
            left.await;
        }
    }

    pub(super) async fn close(&self, within: Duration) {
        let asking = self.asking.shut();
        let asking = async {
            if let Some(asking) = asking {
                asking.close(within).await;
            }
        };
        futures::future::join(self.transport.close(within), asking).await;
    }

    pub(super) fn is_silent(&self, at: Moment) -> bool {
        self.liveness.is_silent(at)
    }

    /// Notes whether the server refused a command about a lock for a temporary reason.
    pub(super) fn note<T>(&self, outcome: &Result<T, Fault>) {
        match outcome {
            // The flag is stored only if it changes, because every command runs this code.
            Ok(_) if self.is_refusing.load(Ordering::Relaxed) => self.is_refusing.store(false, Ordering::Relaxed),
            Ok(_) => {}
            Err(fault) if fault.kind == FaultKind::Refused && Passing::of(&fault.message).is_some() => {
                inside(&fault.message).clone_into(&mut self.refusal.lock());
                self.is_refusing.store(true, Ordering::Relaxed);
            }
            Err(_) => {}
        }
    }

    /// Returns the error for a reply that did not arrive in time. The error names what is missing: acknowledgements, a
    /// connection, a server that accepts commands, or the reply.
    pub(super) fn missing(&self) -> Error {
        let (wanted, is_silent) = (self.acknowledgement.awaited(), self.is_silent(self.transport.world().now()));
        if wanted > 0 && !is_silent {
            return Error::replicas(0, wanted);
        }
        // `broken` is not used here, because it counts the connection for messages too.
        if let Some(message) = self.transport.trouble() {
            return Error::connection(message, true, None);
        }
        if self.is_refusing.load(Ordering::Relaxed) && !is_silent {
            return Error::server(&**self.refusal.lock());
        }
        Error::timeout(Step::Command)
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }
}

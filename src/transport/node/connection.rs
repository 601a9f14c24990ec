//! One fred connection for commands. It is replaced if it is dead, or if its server was *demoted* (made a replica).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fred::clients::Client;
use fred::error::ErrorKind;
use fred::interfaces::{ClientLike as _, EventInterface as _};
use fred::types::config::Server;
use fred::types::{ClusterHash, CustomCommand, Value};
use futures::FutureExt as _;
use futures::future::{Fuse, FusedFuture as _};
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::fault::{fault, source, told};
use crate::error::passing::Passing;
use crate::runtime::standstill::{OVERDUE, within, without_standstill};
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};
use distlock_wire::{Demotions, ListenerSlot, Outage};

/// Number of timeouts in a row after which a connection counts as dead. fred itself detects a silent connection only
/// while nothing is written to it.
const TIMEOUTS_TOLERATED: u32 = 2;

pub(super) struct Connection {
    pub(super) client: Client,
    /// The server, as errors name it.
    server: Box<str>,
    /// Number of times that the connection was reported to be up.
    stood: AtomicU32,
    timeout: Duration,
    /// Number of commands in a row that timed out.
    timeouts: AtomicU32,
    /// Notified when the connection has to be replaced.
    heal: Notify,
    /// Reports of demotions on all connections to this endpoint.
    demotions: Demotions,
    /// The count of reported demotions when this connection was last replaced. `DEMOTED` after a `READONLY`, until the
    /// connection is replaced.
    followed: watch::Sender<u64>,
    /// Reason why there is no connection. `None` while there is one.
    trouble: Mutex<Option<fred::error::Error>>,
}

/// A value of `Connection::followed`, larger than any count of reports.
const DEMOTED: u64 = u64::MAX;

pub(super) type ErrorReceiver = Receiver<(fred::error::Error, Option<Server>)>;

impl Connection {
    pub(super) fn new(client: Client, server: &str, timeout: Duration, demotions: Demotions) -> Arc<Self> {
        let (timeouts, heal, trouble) = (AtomicU32::new(0), Notify::new(), Mutex::default());
        let (server, stood, followed) = (server.into(), AtomicU32::new(0), watch::Sender::new(demotions.dialed()));
        Arc::new(Self { client, server, stood, timeout, timeouts, heal, demotions, followed, trouble })
    }

    /// Returns `None` while the connection is up.
    fn away(&self) -> Option<Away> {
        if self.client.is_connected() {
            return None;
        }
        // Receiver and count are read before the second check, so a reconnect after that check is noticed.
        let away = Away { reconnects: self.client.reconnect_rx(), stood: self.stood.load(Ordering::Acquire) };
        (!self.client.is_connected()).then_some(away)
    }

    /// Returns the reason why there is no connection, as a message and as fred's error.
    pub(super) fn trouble(&self) -> Option<(String, fred::error::Error)> {
        let trouble = self.trouble.lock().clone()?;
        Some((format!("{}: {}", self.server, told(&trouble)), trouble))
    }

    /// Sends a command once. If it runs a script, `script` is the source or the hash, and the call's words are for the
    /// script.
    async fn send(
        &self,
        command: &'static str,
        script: Option<Bytes>,
        call: &Call,
    ) -> Result<Value, fred::error::Error> {
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        let sent = self.client.custom(command, words(script, call));
        // Boxed: this future has kilobytes, which would be copied with each future around it.
        let sent = Box::pin(sent);
        without_standstill(sent, self.timeout + OVERDUE).await
    }

    async fn run_script(&self, call: &Call, script_cache: bool) -> Result<Value, fred::error::Error> {
        let began = Instant::now();
        let mut outcome = Err(fred::error::Error::new(ErrorKind::Unknown, "NOSCRIPT"));
        if script_cache {
            outcome = self.send("EVALSHA", Some(call.script.sha()), call).await;
        }
        if outcome.as_ref().is_err_and(|error| error.details().starts_with("NOSCRIPT")) {
            let eval = self.send("EVAL", Some(Bytes::from_static(call.script.source.as_bytes())), call);
            // Both commands together have the time limit of one.
            outcome = within(self.timeout.saturating_sub(began.elapsed()), eval)
                .await
                .unwrap_or_else(|| Err(fred::error::Error::new(ErrorKind::Timeout, "no answer in time")));
        }
        outcome
    }

    /// Waits until this connection has been replaced after every reported demotion, so no command is sent to a demoted
    /// server. Returns the number of reported demotions, or `None` if the wait takes too long.
    async fn follows(&self) -> Option<u64> {
        let has_followed = |followed: &u64| *followed == self.demotions.count();
        let at_once = *self.followed.borrow();
        if has_followed(&at_once) {
            return Some(at_once);
        }
        let mut followed = self.followed.subscribe();
        // Never an error: the sender is in `self`.
        let waiting = async { followed.wait_for(has_followed).await.ok().map(|followed| *followed) };
        within(self.timeout, waiting).await?
    }

    /// Notes that the server was demoted. `followed` is the result of [`follows`](Self::follows) before the refused
    /// command was sent. Returns false if the connection is already being replaced, or was replaced since.
    fn is_demoted(&self, followed: u64) -> bool {
        self.followed.send_if_modified(|now| {
            let is_current = *now == followed && followed == self.demotions.count();
            if is_current {
                *now = DEMOTED;
            }
            is_current
        })
    }

    pub(super) async fn run(&self, call: Call, script_cache: bool) -> Result<Reply, Fault> {
        let Some(followed) = self.follows().await else {
            let message = format!("{}: its server was demoted, and there is no other connection yet", self.server);
            return Err(self.trouble().map_or_else(
                || Fault::new(FaultKind::NotSent, message),
                |(message, trouble)| Fault { source: source(trouble), ..Fault::new(FaultKind::NotSent, message) },
            ));
        };
        // Without a script cache, our own timer ends the command, and fred may still send the command after that.
        let away = if script_cache || call.script.command.is_some() { self.away() } else { None };
        let outcome = match call.script.command {
            Some(command) => self.send(command, None, &call).await,
            None => self.run_script(&call, script_cache).await,
        };
        match outcome {
            // A demotion was reported since the command was sent, so perhaps a demoted server has answered.
            Ok(_) if self.demotions.count() != followed || *self.followed.borrow() != followed => {
                let message = format!("{}: the connection was given up: its server was demoted", self.server);
                Err(Fault::new(FaultKind::Lost, message))
            }
            Ok(value) => {
                self.timeouts.store(0, Ordering::Relaxed);
                Ok(reply(value))
            }
            Err(error) => Err(self.failed(fault(error), followed, away)),
        }
    }

    /// Handles the fault of a command: has the connection replaced if it is dead or if its server was demoted. Returns
    /// the fault for the caller.
    fn failed(&self, fault: Fault, followed: u64, away: Option<Away>) -> Fault {
        let demoted = fault.kind == FaultKind::Refused
            && Passing::of(&fault.message).is_some_and(|row| row.is_replica)
            && self.is_demoted(followed);
        let dead = fault.kind == FaultKind::TimedOut
            && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_TOLERATED;
        if demoted || dead {
            self.timeouts.store(0, Ordering::Relaxed);
            self.heal.notify_one();
        }
        // The reason says more than a timeout does, for example that the login was refused.
        if fault.kind == FaultKind::TimedOut
            && let Some((message, trouble)) = self.trouble()
        {
            let has_left = away.is_none_or(|away| away.has_ended(self));
            let kind = if has_left { FaultKind::Lost } else { FaultKind::NotSent };
            return Fault { source: source(trouble), ..Fault::new(kind, message) };
        }
        // A server's own error gets no prefix, because it must begin with the error code.
        if fault.kind == FaultKind::Lost && !fault.message.starts_with("CLUSTERDOWN") {
            return Fault { message: format!("{}: {}", self.server, fault.message), ..fault };
        }
        fault
    }
}

/// State of a command that was queued while there was no connection. fred never writes a command that has timed out. So
/// if no connection comes up before the timeout, the command is never sent.
struct Away {
    reconnects: Receiver<Server>,
    stood: u32,
}

impl Away {
    /// Returns true if a connection was up since, even briefly. Receiver and count are both needed. The receiver is
    /// notified before fred writes queued commands. A reconnect just before this value was created is not in the
    /// receiver, but is counted before the command times out.
    fn has_ended(&self, connection: &Connection) -> bool {
        !self.reconnects.is_empty()
            || connection.stood.load(Ordering::Acquire) != self.stood
            || connection.client.is_connected()
    }
}

/// The words of a command, without its name. If it runs a script, `script` is the source or the hash.
pub(super) fn words(script: Option<Bytes>, call: &Call) -> Vec<Value> {
    let mut words = Vec::with_capacity(call.words.len() + 2);
    if let Some(script) = script {
        words.push(Value::Bytes(script));
        words.push(Value::Integer(i64::try_from(call.keys).unwrap_or(i64::MAX)));
    }
    words.extend(call.words.iter().map(|word| match word {
        Arg::Text(text) => Value::Bytes(text.clone()),
        Arg::Int(int) => Value::Integer(*int),
    }));
    words
}

pub(super) fn reply(value: Value) -> Reply {
    match value {
        Value::Null => Reply::Nil,
        Value::Integer(int) => Reply::Int(int),
        Value::Boolean(truth) => Reply::Int(i64::from(truth)),
        Value::String(text) => Reply::Text(text.into_inner()),
        Value::Bytes(bytes) => Reply::Text(bytes),
        Value::Double(double) => Reply::Text(Bytes::from(double.to_string())),
        Value::Queued => Reply::Text(Bytes::from_static(b"QUEUED")),
        Value::Array(values) => Reply::List(values.into_iter().map(reply).collect()),
        Value::Map(map) => Reply::List(
            map.inner().into_iter().flat_map(|(key, value)| [Reply::Text(key.into_bytes()), reply(value)]).collect(),
        ),
    }
}

/// Sets the name under which the server lists the connection. If the server refuses, the connection has no name.
///
/// This uses `HELLO`, which fred sends in any case, so the login needs no further permission.
pub(super) async fn name_connection(client: Client, name: Arc<str>) {
    if name.is_empty() {
        return;
    }
    let words = ["3", "SETNAME", &name].map(|word| Value::from(word.to_owned()));
    let hello = CustomCommand::new_static("HELLO", ClusterHash::FirstKey, false);
    if let Err(error) = client.custom::<Value, _>(hello, words.to_vec()).await {
        tracing::debug!(%error, "a connection has no name");
    }
}

/// Reports to the listener when a connection for commands is back. Replaces the connection if it is dead, or if this or
/// another connection has reported a demotion.
pub(super) async fn keep_connection(
    connection: Arc<Connection>,
    mut reconnects: Receiver<Server>,
    mut errors: ErrorReceiver,
    listener: ListenerSlot,
    name: Arc<str>,
) {
    let mut outage = Outage::default();
    let mut demotions = connection.demotions.clone();
    let mut replacing = pin!(Fuse::terminated());
    loop {
        let may_replace = replacing.is_terminated();
        tokio::select! {
            // If an error and a reconnect are both ready, the reconnect comes last, because the connection is back.
            biased;
            error = errors.recv() => match error {
                Ok((error, _)) => {
                    *connection.trouble.lock() = Some(error);
                    outage.begins(&listener);
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            reconnect = reconnects.recv() => match reconnect {
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    connection.stood.fetch_add(1, Ordering::Release);
                    *connection.trouble.lock() = None;
                    tokio::spawn(name_connection(connection.client.clone(), Arc::clone(&name)));
                    outage.ends(&listener);
                    listener.tell(|listener| listener.reconnected());
                }
                Err(RecvError::Closed) => return,
            },
            _ = replacing.as_mut() => {
                // No command has used the new connection yet, because commands wait for `followed`.
                if *connection.followed.borrow() == DEMOTED {
                    demotions.report();
                }
                connection.followed.send_replace(demotions.dialed());
            }
            () = is_due(&connection, &mut demotions), if may_replace => {
                tracing::warn!("a connection for commands does not answer, or its server was demoted: reconnecting");
                // One replacement serves both a pending `heal` and a report.
                let _ = connection.heal.notified().now_or_never();
                demotions.dials();
                replacing.set(connection.client.force_reconnection().fuse());
            }
        }
    }
}

async fn is_due(connection: &Connection, demotions: &mut Demotions) {
    tokio::select! {
        () = connection.heal.notified() => {}
        () = demotions.reported() => {}
    }
}

//! How this crate talks to one server. All I/O for the rest of the crate goes through [`Transport`].
//!
//! **Unstable**: public with the feature `unstable-transport` only, and any release may change it.
//!
//! A client asks its server for three things: run a script, deliver the messages of a channel, close. Any type that
//! keeps the promises of [`Transport`] can replace the server; [`Client::over_transport`] builds a client on it. The
//! text of a script comes with each [`Call`]. The transport also supplies the client's clock and random numbers
//! ([`World`]), so a simulation can be the same in every run. See also [`deterministic_tables`].
//!
//! There are three implementations. Code above the trait does not know which one it has:
//! - `node`: the library `fred`, the default in production
//! - `direct`: connections of this crate's own (`Builder::direct`)
//! - the crate `distlock-sim`: a simulated server, for our tests and for users' tests
//!
//! [`Client::over_transport`]: crate::Client::over_transport

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

pub(crate) mod coalesce;
pub(crate) mod connector;
mod demotions;
pub(crate) mod direct;
pub(crate) mod node;
mod outage;
pub(crate) mod script;
pub(crate) mod tls;
pub(crate) mod undeclared;

#[cfg(feature = "unstable-transport")]
pub use connector::{Connector, Purpose};
pub use script::Script;

use crate::error::passing::inside;
use crate::error::{Error, Step};
#[cfg(feature = "unstable-transport")]
pub use crate::world::Moment;
pub use crate::world::World;

/// Message for a reply that is not RESP. The server's name is put in front of it.
const FOREIGN: &str = "what answers there does not speak Redis's protocol: check the host and the port, and whether it speaks TLS (rediss://)";

/// One key or argument of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Bytes, sent as they are.
    Text(Bytes),
    /// An integer, sent in decimal digits.
    Int(i64),
}

impl Arg {
    /// True for the empty text and for 0. A script assumes these values for an argument that is left out.
    pub(crate) fn is_default(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Int(int) => *int == 0,
        }
    }
}

/// One script call, ready to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    /// The script.
    pub script: &'static Script,
    /// Number of keys. They are the first `words`.
    pub keys: usize,
    /// The keys, followed by the arguments.
    pub words: Vec<Arg>,
}

static PING: Script = Script::bare("ping", "PING");

impl Call {
    pub(crate) const fn ping() -> Self {
        Self { script: &PING, keys: 0, words: Vec::new() }
    }

    /// Approximate size on the wire, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.words.iter().map(|word| if let Arg::Text(text) = word { text.len() + 8 } else { 16 }).sum()
    }
}

/// Reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No value. Lua's `false` becomes this too.
    Nil,
    /// An integer.
    Int(i64),
    /// A byte string, or the text of a status such as `OK`.
    Text(Bytes),
    /// A list.
    List(Vec<Reply>),
}

/// Why a command has no reply, and whether it may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The command never left this process. It has not run and will not run.
    NotSent,
    /// The connection was lost. The command may have run, or may run yet.
    Lost,
    /// There was no answer in time. The command may have run, or may run yet.
    TimedOut,
    /// The server answered with an error. `message` is the server's text.
    Refused,
    /// Another server has the name, or the name is being moved. The command has not run and will not run. `message` is
    /// the server's text.
    Elsewhere,
    /// The command has run, but too few replicas have its write. The write may be lost with its server.
    Unacknowledged {
        /// Number of replicas that have the write.
        got: usize,
        /// Number of replicas that must have it.
        wanted: usize,
    },
    /// The transport is closed for good.
    Closed,
    /// The client's runtime has ended, and with it the task that carried the command. The command may have run.
    RuntimeGone,
}

/// A command that failed.
#[derive(Clone)]
pub struct Fault {
    /// Whether the command may have run.
    pub kind: FaultKind,
    /// Text for errors and logs.
    pub message: String,
    /// The underlying error.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The server that was asked, as errors name it. The client sets it if the transport leaves it out.
    pub server: Option<Arc<str>>,
}

impl Fault {
    /// Creates a fault without an underlying error.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, server: None }
    }

    /// Returns true if the command may have run without a reply, or has run without counting, and the client can still
    /// act on that. It cannot after its runtime has ended.
    pub const fn in_doubt(&self) -> bool {
        matches!(self.kind, FaultKind::Lost | FaultKind::TimedOut | FaultKind::Unacknowledged { .. })
    }

    pub(crate) fn to_error(&self, name: &Arc<str>) -> Error {
        let error = match self.kind {
            FaultKind::Closed => Error::Closed,
            FaultKind::RuntimeGone => Error::RuntimeGone,
            FaultKind::TimedOut => Error::timeout(Step::Command),
            FaultKind::Unacknowledged { got, wanted } => Error::replicas(got, wanted),
            FaultKind::NotSent | FaultKind::Lost => {
                Error::connection(&*self.message, self.in_doubt(), self.source.clone())
            }
            FaultKind::Refused if inside(&self.message).starts_with("WRONGTYPE") => {
                Error::WrongType { name: Arc::clone(name), message: inside(&self.message).to_owned(), found: None }
            }
            FaultKind::Elsewhere if self.message.starts_with("MOVED") => {
                Error::server(format!("{}: this server is one of a cluster; connect by redis-cluster://", self.message))
            }
            FaultKind::Refused | FaultKind::Elsewhere => Error::server(inside(&self.message)),
        };
        error.about(name).at(self.server.as_ref())
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.kind, self.message)
    }
}

/// Makes this process keep its tables of names and owners in the same order in every run, for reproducible simulations.
///
/// Call it before the first client and owner are created. The order is random otherwise, so that an attacker who
/// chooses names cannot provoke hash collisions. Do not call it in programs whose names come from outside.
#[cfg(feature = "unstable-transport")]
pub fn deterministic_tables() {
    crate::hash::unseeded();
}

/// How replicas must acknowledge what a call has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledge {
    /// Number of replicas.
    pub replicas: usize,
    /// Time limit, counted from when the call has run.
    pub within: Duration,
    /// True if the call is about a slot that is being moved to this server. It is sent behind an `ASKING`.
    pub asking: bool,
}

/// A reply that arrived before replicas have acknowledged the write of its call.
pub struct Replied {
    /// The reply.
    pub reply: Reply,
    /// Resolves to the number of replicas that have acknowledged, once enough have or the time is up. `None` if the
    /// call neither acquired nor prolonged a hold, so there is nothing to acknowledge. May be dropped.
    pub acknowledged: Option<BoxFuture<'static, Result<usize, Fault>>>,
}

impl fmt::Debug for Replied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replied").field("reply", &self.reply).finish_non_exhaustive()
    }
}

/// Receives a server's messages, and the events of its connections.
pub trait Listener: Send + Sync {
    /// A message arrived on `channel`.
    fn message(&self, channel: &[u8], payload: &[u8]);

    /// The server has ended the subscription to `channel` by itself, or refuses to renew it on a new connection.
    fn ended(&self, _channel: &[u8]) {
        self.missed();
    }

    /// There has been no connection for messages for a while. No subscription is in force until
    /// [`missed`](Self::missed) is called.
    fn deaf(&self) {}

    /// A connection broke, so the server may be away. Called once per broken connection, until it is
    /// [`mended`](Self::mended).
    fn broken(&self) {}

    /// A connection that was reported as [`broken`](Self::broken) is up again.
    fn mended(&self) {}

    /// Messages may have been missed: every waiter has to ask the server once.
    fn missed(&self);

    /// The connection for commands is back after a break: every hold should be confirmed now.
    fn reconnected(&self);
}

/// One server, as the engine sees it.
pub trait Transport: Send + Sync + fmt::Debug + 'static {
    /// Runs a script once.
    ///
    /// Nothing is sent before the first poll. The script is sent again only after `NOSCRIPT`, when it has not run. The
    /// future ends by itself, after one command timeout at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not recall a command that was sent. A caller that may be dropped has another task
    /// finish the future.
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>>;

    /// Returns true if [`run_acknowledged`](Self::run_acknowledged) is available.
    fn acknowledges(&self) -> bool {
        false
    }

    /// Runs a script as [`run`](Self::run) does, and reports how many replicas have what it wrote.
    ///
    /// A `WAIT` follows the call on the same connection, because `WAIT` covers the writes of its own connection only.
    /// Other callers' commands never wait behind it. `sent` is notified when the call waits for no other call any more:
    /// from then on an answer is expected.
    fn run_acknowledged(
        &self,
        _call: Call,
        _how: Acknowledge,
        _sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        let fault = Fault::new(FaultKind::NotSent, "replicas cannot be asked over this connection");
        Box::pin(std::future::ready(Err(fault)))
    }

    /// Subscribes to `channel`. Returns once the server is known to deliver its messages.
    ///
    /// # Errors
    ///
    /// Without a confirmation in time, an earlier subscription to the channel stays as it was. A new one may still come
    /// into force, so a caller that no longer needs the channel unsubscribes.
    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>>;

    /// Ends a subscription.
    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()>;

    /// Notes that a subscription has ended by itself or never existed, so that it is not renewed on another connection.
    fn forget(&self, _channel: &Bytes) {}

    /// Sets the receiver of messages. Called once, before the first subscription.
    fn listen(&self, listener: Weak<dyn Listener>);

    /// Identifies the server without asking it: the same text for the same server at the same address.
    fn address(&self) -> &str;

    /// Returns why there is no connection for commands, with the server's name. `None` if there is one, or if the
    /// reason is unknown.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Returns the clock and the random numbers that belong to this transport.
    fn world(&self) -> Arc<dyn World>;

    /// Returns true if a single command costs this process little. A script that is equivalent to one command
    /// (`command` of its [`Script`]) is then always sent as that command, instead of sharing a script with other calls.
    fn prefers_bare_commands(&self) -> bool {
        false
    }

    /// Closes every connection. Returns when they are closed, or after `within`.
    fn close(&self, within: Duration) -> BoxFuture<'static, ()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVED_AWAY: &str =
        "ERR Script attempted to access a non local key in a cluster node script: f_, on @user_script:1.";

    #[test]
    fn what_passes_is_retryable() {
        let refused = |text: &str| Fault::new(FaultKind::Refused, text).to_error(&Arc::from("x"));
        for text in ["MISCONF Redis is configured", "OOM command", "READONLY You can't", "TRYAGAIN x", MOVED_AWAY] {
            assert!(refused(text).is_retryable(), "{text}");
        }
        for text in ["NOAUTH x", "NOPERM x", "ERR x", "NOBUSY"] {
            assert!(!refused(text).is_retryable(), "{text}");
        }
        let old = "ERR Error running script (call to f_c0): @user_script:604: WRONGTYPE Operation against a key";
        for text in ["WRONGTYPE Operation", old] {
            assert!(matches!(refused(text), Error::WrongType { .. }), "{text}");
        }
        assert!(matches!(refused("ERR a thing: WRONGTYPE"), Error::Server { .. }));
        // Callers do not see the script's hash and line number.
        let new = "WRONGTYPE Operation against a key script: 1d2f0b, on @user_script:12.";
        for text in ["WRONGTYPE Operation against a key", old, new] {
            let Error::WrongType { message, .. } = refused(text) else { panic!("{text}") };
            assert_eq!(message, "WRONGTYPE Operation against a key");
        }
        let oom = refused("OOM command not allowed script: 1d2f0b, on @user_script:12.");
        assert!(matches!(&oom, Error::Server { message, .. } if message == "OOM command not allowed"), "{oom}");
        let oom = refused("ERR Error running script (call to f_c0): @user_script:6: @user_script: 6: -OOM not allowed");
        assert!(matches!(&oom, Error::Server { message, .. } if message == "OOM not allowed"), "{oom}");
        let elsewhere = |text: &str| Fault::new(FaultKind::Elsewhere, text).to_error(&Arc::from("x"));
        assert!(elsewhere("TRYAGAIN Multiple keys").is_retryable());
        // With one server there is no other server to ask.
        assert!(!elsewhere("MOVED 1 a:1").is_retryable() && !elsewhere("ASK 1 a:1").is_retryable());
    }

    #[test]
    fn doubt_is_told() {
        let of = |kind| Fault::new(kind, "x").to_error(&Arc::from("x")).outcome_unknown();
        let unacknowledged = FaultKind::Unacknowledged { got: 0, wanted: 1 };
        assert!([FaultKind::Lost, FaultKind::TimedOut, FaultKind::RuntimeGone, unacknowledged].into_iter().all(of));
        let known = [FaultKind::NotSent, FaultKind::Refused, FaultKind::Elsewhere, FaultKind::Closed];
        assert!(!known.into_iter().any(of));
    }
}

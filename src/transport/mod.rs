//! The way to one server: all the I/O there is for the rest of the crate. **Unstable**: public with the feature
//! `unstable-transport` only, and any release may change it.
//!
//! A client asks its server for three things: to run a script, to deliver the messages of a channel, and to stop. Whatever
//! does so as [`Transport`] promises can stand in the server's place; [`Client::over_transport`] makes a client of it. The
//! text of a script comes with each [`Call`], and the clock and the random numbers of the client come from the transport too
//! ([`World`]), so that a simulation can be the same in every run: see also [`deterministic_tables`].
//!
//! Production speaks to a server over the library `fred`, or with `Builder::direct` over connections of this crate's own; the
//! tests, and those of users, over the simulator `distlock-sim`. Nothing above this trait knows which of them it has.
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

/// Appended to the server's name when its reply is not RESP.
const FOREIGN: &str = "what answers there does not speak Redis's protocol: check the host and the port, and whether it speaks TLS (rediss://)";

/// One key or argument of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Bytes as they are.
    Text(Bytes),
    /// An integer, sent in decimal digits.
    Int(i64),
}

impl Arg {
    /// True for the empty text and for 0: what a script takes for granted where it is not told.
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
    /// How many of `words` are keys. They come first.
    pub keys: usize,
    /// Its keys, and its arguments behind them.
    pub words: Vec<Arg>,
}

static PING: Script = Script::bare("ping", "PING");

impl Call {
    /// Asks for a sign of life.
    pub(crate) const fn ping() -> Self {
        Self { script: &PING, keys: 0, words: Vec::new() }
    }

    /// About so many bytes it is on its way.
    pub(crate) fn size(&self) -> usize {
        self.words.iter().map(|word| if let Arg::Text(text) = word { text.len() + 8 } else { 16 }).sum()
    }
}

/// What a script answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing; also what Lua's `false` becomes.
    Nil,
    /// An integer.
    Int(i64),
    /// A string of bytes, or the text of a status such as `OK`.
    Text(Bytes),
    /// A list.
    List(Vec<Reply>),
}

/// What is known of a command that brought no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It never left this process: it has not run and will not run.
    NotSent,
    /// It may have run, or may yet run: the connection was lost.
    Lost,
    /// It may have run, or may yet run: no answer in time.
    TimedOut,
    /// The server ran it and answered with an error. `message` is the server's text.
    Refused,
    /// Another server has the name, or the name is just being moved: it has not run and will not run. `message` is the server's
    /// text.
    Elsewhere,
    /// It has run, and too few replicas have what it wrote: it may be lost with its server.
    Unacknowledged {
        /// So many have it.
        got: usize,
        /// So many have to.
        wanted: usize,
    },
    /// The transport is closed for good.
    Closed,
    /// The client's runtime has ended, and with it what carried the command, which may have run.
    RuntimeGone,
}

/// A command that failed.
#[derive(Clone)]
pub struct Fault {
    /// What is known of it.
    pub kind: FaultKind,
    /// What happened, in words: for errors and logs.
    pub message: String,
    /// The error behind it.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The server that was asked, as errors name it. The client sets it where the transport leaves it out.
    pub server: Option<Arc<str>>,
}

impl Fault {
    /// A fault that no other error is behind.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, server: None }
    }

    /// True when the command may have been carried out although no reply came, or has been and does not count, and something can be
    /// done about that: not where the client's runtime has ended.
    pub const fn in_doubt(&self) -> bool {
        matches!(self.kind, FaultKind::Lost | FaultKind::TimedOut | FaultKind::Unacknowledged { .. })
    }

    /// What a failed command means to the caller of an operation on `name`.
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

/// Has this process keep its tables of names and owners in one order in every run, as a simulation needs that is to do the same
/// again. To be called before the first client and owner are made. Otherwise that order is random, so that nobody who chooses
/// names can have them collide: not for programs whose names come from the outside world.
#[cfg(feature = "unstable-transport")]
pub fn deterministic_tables() {
    crate::hash::unseeded();
}

/// How what a call has written is to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledge {
    /// By so many replicas.
    pub replicas: usize,
    /// Within so long after it has run.
    pub within: Duration,
    /// The call is about a slot that is being moved to this server: it goes behind an `ASKING`.
    pub asking: bool,
}

/// A reply that came before replicas have acknowledged what its call wrote.
pub struct Replied {
    /// The reply.
    pub reply: Reply,
    /// How many replicas have acknowledged it, once enough have or the time is up. None where the call has made nobody a holder, so
    /// that there is nothing to acknowledge. Dropped, nobody hears of it.
    pub acknowledged: Option<BoxFuture<'static, Result<usize, Fault>>>,
}

impl fmt::Debug for Replied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replied").field("reply", &self.reply).finish_non_exhaustive()
    }
}

/// Who is notified of a server's messages, and of its connections.
pub trait Listener: Send + Sync {
    /// A message came in on `channel`.
    fn message(&self, channel: &[u8], payload: &[u8]);

    /// The server has ended the subscription to `channel` by itself, or refuses to make it again on a new connection.
    fn ended(&self, _channel: &[u8]) {
        self.missed();
    }

    /// There has been no connection for messages for a while: no subscription is in force until [`missed`](Self::missed) is called.
    fn deaf(&self) {}

    /// A connection has broken: the server may be away. Once for each, until it is [`mended`](Self::mended).
    fn broken(&self) {}

    /// A connection that was told as [`broken`](Self::broken) stands again.
    fn mended(&self) {}

    /// Messages may have been missed: every waiter has to look for itself once.
    fn missed(&self);

    /// The connection for commands is back after a break: whatever is held should be confirmed now.
    fn reconnected(&self);
}

/// One server, as the engine sees it.
pub trait Transport: Send + Sync + fmt::Debug + 'static {
    /// Runs a script once; it is never sent a second time on its own account (only after `NOSCRIPT`, when it has not
    /// run). Ends by itself: a command timeout later at the latest.
    /// Nothing is sent before the first poll. Dropping the future later does not recall the command: whoever drops it must
    /// have it finished elsewhere.
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>>;

    /// True where [`run_acknowledged`](Self::run_acknowledged) can be had.
    fn acknowledges(&self) -> bool {
        false
    }

    /// As [`run`](Self::run); with the reply, whether replicas have what the call wrote: by a `WAIT` behind it on the very connection that
    /// the call went by, since one on another vouches for nothing. What others ask never waits behind that. `sent` is told when the call
    /// waits for no other call any more: from then on its answer is due.
    fn run_acknowledged(
        &self,
        _call: Call,
        _how: Acknowledge,
        _sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        let fault = Fault::new(FaultKind::NotSent, "replicas cannot be asked over this connection");
        Box::pin(std::future::ready(Err(fault)))
    }

    /// Subscribes; done when the server is known to deliver. Not confirmed in time, one that was there before is as it
    /// was, and one that was not may come into force yet: whoever has no use for the channel then ends it.
    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>>;

    /// Ends a subscription.
    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()>;

    /// A subscription has ended by itself, or never was: it is not to be made anew on another connection.
    fn forget(&self, _channel: &Bytes) {}

    /// Sets who hears messages. Called once, before the first subscription.
    fn listen(&self, listener: Weak<dyn Listener>);

    /// Which server it is, as far as can be told without asking it: the same text for the same server at the same address.
    fn address(&self) -> &str;

    /// Why there is no connection for commands, with the server's name. None if there is one, or if the reason is unknown.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// The clock and the random numbers that go with it.
    fn world(&self) -> Arc<dyn World>;

    /// True where a command of its own costs this process little, so that what is but one command (the field `command` of its
    /// [`Script`]) is better sent as that, always, than shared with others in a script that has the server run it.
    fn prefers_bare_commands(&self) -> bool {
        false
    }

    /// Closes every connection. Done when they are gone, or after `within`.
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
        // With one server there is nowhere else to go.
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

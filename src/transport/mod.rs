//! How this crate talks to one server. All I/O for the rest of the crate goes through [`Transport`].
//!
//! **Unstable**: public with the feature `unstable-transport` only, and any release may change it.
//!
//! A client uses a transport for three things: to run scripts, to receive the messages of channels, and to close the
//! connections. Any type that keeps the promises of [`Transport`] can replace the server. [`Client::over_transport`]
//! builds a client on such a type. Each [`Call`] has the text of its script. The transport also supplies the client's
//! clock and random numbers ([`World`]), so a simulation can repeat exactly. See also [`deterministic_tables`].
//!
//! There are several implementations. Code above the trait does not know which of them it uses:
//! - `node`: the library `fred`, the default in production
//! - `wire`: the crate `distlock-wire` ([`Options::use_fred`](crate::Options::use_fred) is false)
//! - `node::over` and the crate `distlock-redis`: the program's own clients of fred and redis-rs
//! - the crate `distlock-sim`: a simulated server, for our tests and for users' tests
//!
//! [`Client::over_transport`]: crate::Client::over_transport

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::world::Machine;

pub(crate) mod coalesce;
pub(crate) mod connector;
pub(crate) mod endpoint;
mod fault;
#[cfg(feature = "fred")]
pub(crate) mod node;
pub(crate) mod script;
pub(crate) mod undeclared;
pub(crate) mod wire;

#[cfg(feature = "unstable-transport")]
pub use connector::{Connector, Purpose};
pub use distlock_wire::{Acknowledge, Arg, Fault, FaultKind, Listener, Replied, Reply};
pub use script::Script;

#[cfg(feature = "unstable-transport")]
pub use crate::world::Moment;
pub use crate::world::World;

/// One script call, ready to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    /// The script.
    pub script: &'static Script,
    /// Number of keys. The first `words` are the keys.
    pub keys: usize,
    /// The keys, followed by the arguments.
    pub words: Vec<Arg>,
}

static PING: Script = Script::bare("ping", "PING");

impl Call {
    pub(crate) const fn ping() -> Self {
        Self { script: &PING, keys: 0, words: Vec::new() }
    }
}

fn cannot_acknowledge() -> BoxFuture<'static, Result<Replied, Fault>> {
    let fault = Fault::new(FaultKind::NotSent, "replicas cannot be asked over this connection");
    Box::pin(std::future::ready(Err(fault)))
}

/// Makes this process keep its tables of names and owners in the same order in every run, for reproducible simulations.
///
/// Call this function before the first client and owner are created. Otherwise the order is random, so that an attacker
/// who chooses names cannot provoke hash collisions. Do not call this function in a program that takes names of locks
/// from outside.
#[cfg(feature = "unstable-transport")]
pub fn deterministic_tables() {
    crate::hash::unseeded();
}

/// One server, as the engine sees it.
pub trait Transport: Send + Sync + fmt::Debug + 'static {
    /// Runs a script once.
    ///
    /// Nothing is sent before the first poll. The script is sent again only after `NOSCRIPT`, because the script has
    /// then not run. The future ends by itself, after one command timeout at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not recall a command that was sent. A caller that may be dropped must let another task
    /// complete the future.
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>>;

    /// Returns true if [`run_acknowledged`](Self::run_acknowledged) is available.
    fn acknowledges(&self) -> bool {
        false
    }

    /// Runs a script as [`run`](Self::run) does, and reports how many replicas have its writes.
    ///
    /// A `WAIT` follows the call on the same connection, because `WAIT` covers the writes of its own connection only.
    /// Commands of other callers never wait behind the `WAIT`. `sent` is notified once the call no longer waits for
    /// other calls. From then on, a reply is expected.
    fn run_acknowledged(
        &self,
        _call: Call,
        _how: Acknowledge,
        _sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        cannot_acknowledge()
    }

    /// Subscribes to `channel`. Returns once the server is known to deliver the channel's messages.
    ///
    /// # Errors
    ///
    /// If no confirmation arrives in time, an earlier subscription to the channel stays as it was. A new subscription
    /// may still take effect later, so a caller that no longer needs the channel must unsubscribe.
    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>>;

    /// Ends a subscription.
    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()>;

    /// Notes that a subscription has ended by itself or never existed, so that it is not renewed on another connection.
    fn forget(&self, _channel: &Bytes) {}

    /// Sets the receiver of messages. Called once, before the first subscription.
    fn listen(&self, listener: Weak<dyn Listener>);

    /// Returns a text that identifies the server, without a command to the server. The text is the same for the same
    /// server at the same address.
    fn address(&self) -> &str;

    /// Returns why there is no connection for commands, with the server's name. `None` if there is a connection, or if
    /// the reason is unknown.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Returns the clock and the random numbers that belong to this transport. Defaults to the machine's clock and
    /// random numbers.
    fn world(&self) -> Arc<dyn World> {
        Arc::new(Machine)
    }

    /// Returns true if a single command costs this process little. A script that is equivalent to one command
    /// (`command` of its [`Script`]) is then always sent as that command, instead of sharing a script with other calls.
    fn prefers_bare_commands(&self) -> bool {
        false
    }

    /// Closes every connection. Returns when they are closed, or after `within`.
    fn close(&self, within: Duration) -> BoxFuture<'static, ()>;
}

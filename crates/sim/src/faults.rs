//! The faults between a simulated client and its server.

use std::time::Duration;

/// A fault of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The request never reaches the server. The client learns that the connection broke.
    LoseRequest,
    /// The server runs the command, but the connection breaks before the reply arrives.
    LoseReply,
    /// The request never reaches the server. The client gets no reply and times out.
    SwallowRequest,
    /// The server runs the command. The client gets no reply and times out.
    SwallowReply,
    /// The request does not leave the client, and the client knows that.
    NotSent,
    /// The server runs the command twice. The client gets the first reply.
    DuplicateRequest,
    /// The request takes this much longer to reach the server.
    DelayBy(Duration),
    /// A copy of the request reaches the server this much later than the original would, even if the connection has
    /// broken since. The copy's reply is lost.
    LateCopy(Duration),
    /// The command runs once, but this much later. The client learns that the connection broke, or times out if the
    /// request is swallowed too.
    LateOnly(Duration),
    /// The server does not run the command and replies with this error, for example `OOM command not allowed ...`.
    Refuse(String),
}

/// Random faults: probabilities from 0 to 1 for each command or message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chaos {
    /// A request is lost. In half of the cases the client is not notified.
    pub lose_request: f64,
    /// A reply is lost. In half of the cases the client is not notified.
    pub lose_reply: f64,
    /// The server runs a request twice.
    pub duplicate: f64,
    /// A command whose request or reply was lost reaches the server late: for the first time, or once more.
    pub late_copy: f64,
    /// The longest delay of such a late command.
    pub late_max: Duration,
    /// The longest extra delay of every request.
    pub delay_max: Duration,
    /// A message is lost silently.
    pub lose_message: f64,
    /// A message arrives twice.
    pub duplicate_message: f64,
    /// A message is delayed, so that later messages may overtake it.
    pub reorder_message: f64,
}

/// Options of one client's connections. A paused tokio clock is exact to 1 ms, so shorter latencies are rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// The shortest latency in one direction.
    pub latency_min: Duration,
    /// The longest latency in one direction. If both are 0, commands are answered at the first poll, without a timer.
    pub latency_max: Duration,
    /// The time that a command waits for its reply.
    pub timeout: Duration,
    /// The time that a reconnect takes after a break.
    pub reconnect: Duration,
    /// True: all commands share one connection and keep their order. False: a pool of connections, where commands
    /// overtake each other.
    pub ordered: bool,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            latency_min: Duration::from_millis(1),
            latency_max: Duration::from_millis(5),
            timeout: Duration::from_secs(3),
            reconnect: Duration::from_millis(50),
            ordered: false,
        }
    }
}

impl LinkOptions {
    /// Options without latency.
    pub fn instant() -> Self {
        Self { latency_min: Duration::ZERO, latency_max: Duration::ZERO, ..Self::default() }
    }

    pub(super) fn is_instant(&self) -> bool {
        self.latency_max.is_zero()
    }
}

//! What can go wrong between a simulated client and its server.

use std::time::Duration;

/// One thing that goes wrong with one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It never reaches the server and the client is told that the connection broke.
    LoseRequest,
    /// The server runs it, but the connection breaks before the reply is there.
    LoseReply,
    /// It never reaches the server and the client hears nothing until its command timeout.
    SwallowRequest,
    /// The server runs it, but the client hears nothing until its command timeout.
    SwallowReply,
    /// It does not leave the client, which knows that.
    NotSent,
    /// The server runs it twice and the client sees the first reply.
    DuplicateRequest,
    /// It takes this much longer to reach the server.
    DelayBy(Duration),
    /// A copy of it reaches the server this much later than it was due, whatever became of the connection by then, as
    /// what stood in some buffer on the way does. Nobody hears what became of it.
    LateCopy(Duration),
    /// The client is told that the connection broke, or nothing if the request is swallowed as well. The server runs it
    /// all the same, for the first time, this much later.
    LateOnly(Duration),
    /// The server does not run it and answers with this error, say `OOM command not allowed ...`.
    Refuse(String),
}

/// Faults by chance: probabilities from 0 to 1 for each command or message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chaos {
    /// A request is lost; half of these times without the client's being told.
    pub lose_request: f64,
    /// A reply is lost; half of these times without the client's being told.
    pub lose_reply: f64,
    /// A request is run twice.
    pub duplicate: f64,
    /// A command whose request or reply was lost reaches the server all the same, or once more, late.
    pub late_copy: f64,
    /// So much later at the most.
    pub late_max: Duration,
    /// Every request takes up to this much longer.
    pub delay_max: Duration,
    /// A message is lost without a sign.
    pub lose_message: f64,
    /// A message comes twice.
    pub duplicate_message: f64,
    /// A message is held up, so that later ones overtake it.
    pub reorder_message: f64,
}

/// How one client is connected. Timers of a paused tokio clock are exact to 1 ms, so shorter latencies are rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// The shortest way to the server or back.
    pub latency_min: Duration,
    /// The longest. 0 for both: commands are answered at the first poll, without a timer.
    pub latency_max: Duration,
    /// How long a command waits for its reply.
    pub timeout: Duration,
    /// How long it takes to connect anew after a break.
    pub reconnect: Duration,
    /// All commands over one connection, in order. Off: a pool, where commands overtake each other.
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
    /// No latency at all.
    pub fn instant() -> Self {
        Self { latency_min: Duration::ZERO, latency_max: Duration::ZERO, ..Self::default() }
    }

    pub(super) fn is_instant(&self) -> bool {
        self.latency_max.is_zero()
    }
}

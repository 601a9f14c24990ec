//! Matchers, actions, and the handles of armed actions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// A fault that happens once, to the matched request or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is executed, its reply is withheld, and the connection is closed.
    SwallowReplyClose,
    /// The request is executed and its reply withheld. Later replies pass, so a client with more requests in flight
    /// takes the next reply for this one. No TCP connection does that: consider [`Action::HangReply`].
    SwallowReply,
    /// The request is executed. Its reply and everything after it on the connection are withheld.
    HangReply,
    /// The request is discarded, and the connection stays. As with [`Action::SwallowReply`], a pipelining client gets
    /// wrong replies.
    DropRequest,
    /// The request is discarded and the connection closed.
    CloseBefore,
    /// The request is forwarded and the connection closed at once. The request is executed a moment later, and its
    /// reply is lost.
    CloseAfter,
    /// The request is discarded and the connection reset (RST).
    Rst,
    /// The request is executed, its reply withheld, and the connection reset (RST).
    SwallowReplyRst,
    /// The request is executed twice, and the second reply is withheld.
    Duplicate,
    /// The request is delayed by this time. Later requests wait behind it.
    Delay(Duration),
    /// The reply is delayed by this time. Later replies wait behind it.
    DelayReply(Duration),
}

/// Selects a request. Counting starts when the action is armed, and covers all connections.
#[derive(Clone, Debug)]
#[must_use]
pub struct Matcher {
    command: Option<String>,
    contains: Vec<Vec<u8>>,
    nth: usize,
}

impl Matcher {
    /// The first request of any kind, including a new connection's `HELLO` and `CLIENT`.
    pub fn any() -> Self {
        Self { command: None, contains: Vec::new(), nth: 1 }
    }

    /// The first request of this command, such as `EVALSHA`.
    pub fn command(name: &str) -> Self {
        Self { command: Some(name.to_ascii_uppercase()), ..Self::any() }
    }

    /// Only requests that contain these bytes.
    pub fn containing(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.contains.push(bytes.as_ref().to_vec());
        self
    }

    /// The nth of the matching requests; 1 is the first.
    pub fn nth(mut self, n: usize) -> Self {
        self.nth = n.max(1);
        self
    }

    fn matches(&self, command: &str, frame: &[u8]) -> bool {
        let named = self.command.as_deref().is_none_or(|c| c == command);
        let has = |part: &Vec<u8>| part.is_empty() || frame.windows(part.len()).any(|window| window == part);
        named && self.contains.iter().all(has)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Armed,
    Disarmed,
    Fired,
}

/// State shared by a rule and its handle.
#[derive(Clone, Debug)]
pub(super) struct Flag(Arc<watch::Sender<State>>);

impl Flag {
    pub(super) fn raise(&self) {
        self.0.send_replace(State::Fired);
    }
}

/// A handle to an armed action. Dropping it leaves the action armed.
#[derive(Clone, Debug)]
pub struct Armed(Flag);

impl Armed {
    /// Whether the action has taken effect: the reply was withheld, the connection closed, ...
    pub fn has_fired(&self) -> bool {
        *self.0.0.borrow() == State::Fired
    }

    pub async fn fired(&self) {
        // The sender lives as long as `self`, so only the state can end the wait.
        let _ = self.0.0.subscribe().wait_for(|s| *s == State::Fired).await;
    }

    /// Disarms the action if its request has not arrived yet.
    pub fn disarm(&self) {
        self.0.0.send_if_modified(|state| {
            let armed = *state == State::Armed;
            if armed {
                *state = State::Disarmed;
            }
            armed
        });
    }
}

#[derive(Debug)]
struct Rule {
    matcher: Matcher,
    action: Action,
    seen: usize,
    flag: Flag,
}

#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    pub(super) fn arm(&mut self, matcher: Matcher, action: Action) -> Armed {
        let flag = Flag(Arc::new(watch::Sender::new(State::Armed)));
        self.0.push(Rule { matcher, action, seen: 0, flag: flag.clone() });
        Armed(flag)
    }

    /// Counts a request in all rules, and returns the action of the oldest rule that it triggers.
    pub(super) fn hit(&mut self, command: &str, frame: &[u8]) -> Option<(Action, Flag)> {
        self.0.retain(|rule| *rule.flag.0.borrow() == State::Armed);
        for rule in &mut self.0 {
            rule.seen += usize::from(rule.matcher.matches(command, frame));
        }
        let due = |rule: &Rule| rule.seen >= rule.matcher.nth && rule.matcher.matches(command, frame);
        let rule = self.0.remove(self.0.iter().position(due)?);
        Some((rule.action, rule.flag))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

//! Which request is hit by what: matchers, actions, and the handle to an armed action.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// What is done once to the matched request or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is executed, its reply is withheld, and the connection closed.
    SwallowReplyClose,
    /// The request is executed and its reply withheld; later replies pass. A client that has
    /// more requests under way takes the next reply for this one: no TCP connection does that,
    /// so mind [`Action::HangReply`].
    SwallowReply,
    /// The request is executed; its reply and all that follows on the connection are withheld.
    HangReply,
    /// The request is thrown away, the connection stays. As with [`Action::SwallowReply`], a
    /// pipelining client is lied to.
    DropRequest,
    /// The request is thrown away and the connection closed.
    CloseBefore,
    /// The request is forwarded and the connection closed at once: it is executed a moment
    /// later, and its reply is lost.
    CloseAfter,
    /// The request is thrown away and the connection reset (RST).
    Rst,
    /// The request is executed, its reply withheld, and the connection reset (RST).
    SwallowReplyRst,
    /// The request is executed twice, the second reply is withheld.
    Duplicate,
    /// The request waits so long before it is forwarded; later ones wait behind it.
    Delay(Duration),
    /// The reply waits so long before it is handed out; later ones wait behind it.
    DelayReply(Duration),
}

/// Which request is meant; counting starts when the action is armed and covers all connections.
#[derive(Clone, Debug)]
#[must_use]
pub struct Matcher {
    command: Option<String>,
    contains: Vec<Vec<u8>>,
    nth: usize,
}

impl Matcher {
    /// The first request, whatever it is (a new connection's `HELLO` and `CLIENT` count too).
    pub fn any() -> Self {
        Self { command: None, contains: Vec::new(), nth: 1 }
    }

    /// The first request of this command, such as `EVALSHA`.
    pub fn command(name: &str) -> Self {
        Self { command: Some(name.to_ascii_uppercase()), ..Self::any() }
    }

    /// Only requests whose bytes contain these.
    pub fn containing(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.contains.push(bytes.as_ref().to_vec());
        self
    }

    /// The nth of the requests that match otherwise; 1 is the first.
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

/// The flag shared by a rule and its handle.
#[derive(Clone, Debug)]
pub(super) struct Flag(Arc<watch::Sender<State>>);

impl Flag {
    /// The action has taken effect.
    pub(super) fn raise(&self) {
        self.0.send_replace(State::Fired);
    }
}

/// A handle to an armed action; dropping it leaves the action armed.
#[derive(Clone, Debug)]
pub struct Armed(Flag);

impl Armed {
    /// Whether the action has taken effect: the reply was withheld, the connection closed, ...
    pub fn has_fired(&self) -> bool {
        *self.0.0.borrow() == State::Fired
    }

    /// Waits until the action has taken effect.
    pub async fn fired(&self) {
        // The sender lives as long as `self`, so the wait can only end by the state.
        let _ = self.0.0.subscribe().wait_for(|s| *s == State::Fired).await;
    }

    /// Takes the action back if its request has not come yet.
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

/// An action that waits for its request.
#[derive(Debug)]
struct Rule {
    matcher: Matcher,
    action: Action,
    seen: usize,
    flag: Flag,
}

/// The actions that wait for their requests.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    pub(super) fn arm(&mut self, matcher: Matcher, action: Action) -> Armed {
        let flag = Flag(Arc::new(watch::Sender::new(State::Armed)));
        self.0.push(Rule { matcher, action, seen: 0, flag: flag.clone() });
        Armed(flag)
    }

    /// Counts a request in all rules; the oldest rule whose turn it is gives its action.
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

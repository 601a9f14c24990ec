//! Faults: futures that are dropped before they end, network faults for one command, and matchers for such commands.

use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use distlock_support::proxy::{Action, Matcher};
use sha1::{Digest as _, Sha1};

use super::ms;

/// Time limit of a command under [`ACTIONS`].
pub const TIMEOUT: Duration = ms(1000);

pub const ACTIONS: [Action; 9] = [
    Action::SwallowReplyClose,
    Action::SwallowReplyRst,
    Action::HangReply,
    Action::CloseBefore,
    Action::CloseAfter,
    Action::Rst,
    Action::Duplicate,
    Action::Delay(ms(50)),
    // Longer than the time limit of a command.
    Action::DelayReply(ms(1500)),
];

/// Drops a future after `polls` polls, or after `pause` if that is not zero.
pub async fn cut<F: Future>(work: F, polls: u64, pause: Duration) -> Option<F::Output> {
    let mut work = pin!(work);
    if pause.is_zero() {
        for _ in 0..polls {
            if let Poll::Ready(output) = futures::poll!(work.as_mut()) {
                return Some(output);
            }
            tokio::task::yield_now().await;
        }
        return None;
    }
    tokio::time::timeout(pause, work).await.ok()
}

/// Drops the future when it is pending for the `n`th time, counted from 0. Returns the output if the future finishes
/// first.
pub async fn cut_at<F: Future>(work: F, n: u64) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut waits = 0;
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if waits == n => Poll::Ready(None),
        Poll::Pending => {
            waits += 1;
            Poll::Pending
        }
    })
    .await
}

/// The hash of the script made of these parts of `lua/`, as in `sha(&["reentrant/acquire"])`.
pub fn sha(parts: &[impl AsRef<str>]) -> String {
    format!("{:x}", Sha1::digest(text(parts)))
}

pub fn text(parts: &[impl AsRef<str>]) -> String {
    let read = |part: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../lua/{part}.lua"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    parts.iter().map(|part| read(part.as_ref())).collect()
}

/// Matches the requests that run the script made of these parts. The script is recognised by its hash.
pub fn runs(parts: &[impl AsRef<str>]) -> Matcher {
    Matcher::command("EVALSHA").containing(sha(parts))
}

/// Runs `hit` for every action and target, all actions at once.
pub async fn in_every_way<T: Copy, F: Future<Output = ()>>(
    targets: impl IntoIterator<Item = T>,
    hit: impl Fn(Action, T) -> F,
) {
    for target in targets {
        futures::future::join_all(ACTIONS.map(|action| hit(action, target))).await;
    }
}

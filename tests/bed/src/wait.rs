//! Waits for events. Each wait ends with the event, or fails the test after a limit that no machine needs.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use distlock::{Builder, Client, Error, Result, Step};

use crate::{ms, secs};

/// Time limit of every wait for an event. Long enough that only an event that never happens fails a test.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until `condition` holds, checking every 2 ms.
///
/// # Panics
/// After [`PATIENCE`]; the message names `what`. [`becomes`] also shows the last state.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Waits until `probe` returns `expected`, checking every 2 ms.
///
/// # Panics
/// After [`PATIENCE`], with the last value that the probe returned.
pub async fn becomes<T: PartialEq + Debug>(what: &str, expected: T, mut probe: impl AsyncFnMut() -> T) {
    let start = Instant::now();
    loop {
        let seen = probe().await;
        if seen == expected {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: expected {expected:?} within {PATIENCE:?}, still {seen:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Repeats `round` with a doubled wait until it returns `Some`. A round that finds the wait too short releases its
/// locks and returns `None`.
///
/// # Panics
/// After seven rounds (64 times the first wait), or after a wait of [`PATIENCE`] or more.
pub async fn with_longer_waits<T>(first: Duration, round: impl AsyncFn(Duration) -> Option<T>) -> T {
    let mut wait = first;
    for _ in 0..7 {
        if let Some(outcome) = round(wait).await {
            return outcome;
        }
        if wait >= PATIENCE {
            break;
        }
        wait *= 2;
    }
    panic!("no wait from {first:?} to {wait:?} was long enough")
}

/// Waits for a lock that another owner holds, until the wait runs out. On a slow machine a command may be in flight at
/// that moment, and the outcome is a command timeout. Then the wait is repeated with twice the time.
///
/// # Panics
/// With any other outcome, and when no wait is long enough.
pub async fn waits_in_vain<T: Debug>(first: Duration, attempt: impl AsyncFn(Duration) -> Result<Option<T>>) {
    with_longer_waits(first, async |wait| match attempt(wait).await {
        Ok(None) => Some(()),
        outcome if in_vain(&outcome) => None,
        outcome => panic!("a wait of {wait:?} for a lock that somebody else holds: {outcome:?}"),
    })
    .await;
}

/// Returns the error of a connect that must fail. If the machine was too slow for the expected error, connects again
/// with twice the time.
///
/// # Panics
/// When the connect succeeds, or when five rounds do not return the expected error. Each round prints its error.
pub async fn refusal(builder: &Builder, is_expected: impl Fn(&Error) -> bool) -> Error {
    with_longer_waits(secs(6), async |wait| {
        let connecting = builder.clone().connect_timeout(wait).connect();
        let ended = tokio::time::timeout(wait + PATIENCE, connecting).await;
        let error = ended.expect("connecting ends in time").expect_err("connecting fails");
        let may_be_slowness = matches!(error, Error::Timeout { .. } | Error::Connection { .. });
        println!("within {wait:?}: {error}");
        (is_expected(&error) || !may_be_slowness).then_some(error)
    })
    .await
}

/// Waits for a future that must end by itself.
///
/// # Panics
/// After [`PATIENCE`]; the message names `what`.
pub async fn ends<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: did not end within {PATIENCE:?}"),
    }
}

/// Waits until a client holds nothing, waits for nothing and has nothing in flight.
pub async fn idle(client: &Client) {
    let start = Instant::now();
    loop {
        let stats = client.stats();
        if (stats.holds, stats.waiting, stats.under_way) == (0, 0, 0) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "the client is not idle within {PATIENCE:?}: {stats:?}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// True if a short wait ended without the lock, or by a command timeout, because a busy machine may not answer within
/// the wait. To accept no command timeout, use [`waits_in_vain`].
pub fn in_vain<T>(outcome: &Result<Option<T>>) -> bool {
    match outcome {
        Ok(None) | Err(Error::Timeout { step: Step::Command, .. }) => true,
        Err(Error::NoQuorum { why, .. }) => matches!(**why, Error::Timeout { step: Step::Command, .. }),
        _ => false,
    }
}

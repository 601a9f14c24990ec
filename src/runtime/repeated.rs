//! Limits repeated warnings: a lasting fault would log hundreds a second. Equal warnings are logged at once, and then
//! at most every ten seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between two equal warnings.
const PAUSE: Duration = Duration::from_secs(10);

/// Maximum number of causes that are distinguished.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Repeated(Mutex<BTreeMap<(&'static str, Box<str>), Logged>>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    left_out: u64,
}

impl Repeated {
    /// Returns how many equal warnings were skipped before this warning, or None if this warning must be skipped too.
    /// Warnings with the same `what` and `cause` are equal. A new cause is logged at once.
    pub(crate) fn due(&self, what: &'static str, cause: &str) -> Option<u64> {
        let (mut known, now) = (self.0.lock(), Instant::now());
        let mut key = (what, Box::from(cause));
        if known.len() >= MOST && !known.contains_key(&key) {
            known.retain(|_, logged| now - logged.at < PAUSE);
            if known.len() >= MOST {
                // All further causes count as one.
                key.1 = Box::from("");
            }
        }
        let Some(logged) = known.get_mut(&key) else {
            known.insert(key, Logged { at: now, left_out: 0 });
            return Some(0);
        };
        if now - logged.at < PAUSE {
            logged.left_out += 1;
            return None;
        }
        logged.at = now;
        Some(std::mem::take(&mut logged.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn equal_warnings_are_logged_every_ten_seconds_with_their_count() {
        let repeated = Repeated::default();
        let mut logged = Vec::new();
        for second in 0..25 {
            logged.extend(repeated.due("renewal", "MISCONF").map(|left_out| (second, left_out)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [(0, 0), (10, 9), (20, 9)]);
    }

    #[tokio::test(start_paused = true)]
    async fn new_cause_is_logged_at_once_and_alternating_causes_are_limited() {
        let repeated = Repeated::default();
        assert_eq!(repeated.due("renewal", "MISCONF"), Some(0));
        assert_eq!(repeated.due("renewal", "OOM"), Some(0));
        assert_eq!(repeated.due("release", "OOM"), Some(0));
        assert_eq!([("renewal", "MISCONF"), ("renewal", "OOM")].map(|(what, why)| repeated.due(what, why)), [None; 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_logged_and_remembered_causes_is_bounded() {
        let repeated = Repeated::default();
        let logged = || (0..1_000).filter(|n| repeated.due("renewal", &n.to_string()).is_some()).count();
        assert_eq!(logged(), MOST + 1);
        tokio::time::advance(PAUSE).await;
        assert!(logged() <= MOST + 1);
        assert!(repeated.0.lock().len() <= MOST + 1);
    }
}

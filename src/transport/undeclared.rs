//! Scripts without declared keys. In a cluster, only such a script can touch keys in several slots, and all these slots
//! must be on the server that runs it. The replies show whether a server allows such scripts.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Arg, Call};

/// After this many needless refusals in a row (see `in_vain`), a server gets no more undeclared keys.
const ENOUGH: usize = 8;

/// Whether one server accepts undeclared keys.
pub(crate) struct Undeclared {
    is_elsewhere: fn(&str) -> bool,
    /// Number of times in a row that undeclared keys were refused, but accepted once they were declared.
    in_vain: AtomicUsize,
    is_refused: AtomicBool,
    has_worked: AtomicBool,
}

impl fmt::Debug for Undeclared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undeclared").field("is_refused", &self.is_refused).finish_non_exhaustive()
    }
}

impl Undeclared {
    pub(crate) const fn new(is_elsewhere: fn(&str) -> bool) -> Self {
        Self {
            is_elsewhere,
            in_vain: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            has_worked: AtomicBool::new(false),
        }
    }

    /// False once the server is known to refuse undeclared keys.
    pub(crate) fn is_taken(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// True if this error reports that an undeclared key is not on this server, or not accessible. The key was not
    /// touched.
    pub(crate) fn is_elsewhere(&self, error: &str) -> bool {
        (self.is_elsewhere)(error)
    }

    /// Whether the server accepts undeclared keys; `None` until that is known.
    pub(crate) fn known(&self) -> Option<bool> {
        match (self.is_taken(), self.has_worked.load(Ordering::Relaxed)) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => None,
        }
    }

    /// Notes that the server has accepted an undeclared key.
    pub(crate) fn worked(&self) {
        self.has_worked.store(true, Ordering::Relaxed);
        self.in_vain.store(0, Ordering::Relaxed);
    }

    /// Notes that the server has refused an undeclared key, and accepted it once it was declared.
    pub(crate) fn note_needless_refusal(&self) {
        if self.in_vain.fetch_add(1, Ordering::Relaxed) + 1 >= ENOUGH && !self.is_refused.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "a server of the cluster takes no scripts for several slots: each lock there has its own commands"
            );
        }
    }
}

/// Converts a call into a call without declared keys. The first argument of the script is then the number of keys,
/// followed by the keys.
pub(crate) fn undeclared(call: Call) -> Call {
    let Call { script, keys, words } = call;
    let count = Arg::Int(i64::try_from(keys).unwrap_or(i64::MAX));
    Call { script, keys: 0, words: std::iter::once(count).chain(words).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_gets_no_undeclared_keys_after_repeated_vain_refusals() {
        let server = Undeclared::new(|error| error == "elsewhere");
        assert!(server.is_elsewhere("elsewhere") && !server.is_elsewhere("OOM"));
        for _ in 1..ENOUGH {
            server.note_needless_refusal();
        }
        assert!(server.is_taken());
        assert_eq!(server.known(), None);
        server.worked();
        assert_eq!(server.known(), Some(true));
        for _ in 0..ENOUGH {
            assert!(server.is_taken());
            server.note_needless_refusal();
        }
        assert!(!server.is_taken());
        server.worked();
        assert_eq!(server.known(), Some(false));
    }
}

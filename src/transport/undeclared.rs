//! Scripts that declare no keys: in a cluster only such a one may touch keys of several slots, those of its server. It is found
//! out by the first that is sent whether a server lets it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Arg, Call};

/// So many times in a row a server has to refuse keys that are its own until no more are sent to it undeclared.
const ENOUGH: usize = 8;

/// What is known of a server.
pub(crate) struct Undeclared {
    /// True for the error that tells of a key which is not here, or is not let in.
    is_elsewhere: fn(&str) -> bool,
    /// How often in a row keys were refused that were let in as soon as they were declared.
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

    /// False once the server is known not to take them.
    pub(crate) fn is_taken(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// True where this error says of an undeclared key that it is not here, or not let in: nothing was done with it.
    pub(crate) fn is_elsewhere(&self, error: &str) -> bool {
        (self.is_elsewhere)(error)
    }

    /// Whether the server takes them; None until it has been asked.
    pub(crate) fn known(&self) -> Option<bool> {
        match (self.is_taken(), self.has_worked.load(Ordering::Relaxed)) {
            (false, _) => Some(false),
            (true, true) => Some(true),
            (true, false) => None,
        }
    }

    /// The server has let an undeclared key in.
    pub(crate) fn worked(&self) {
        self.has_worked.store(true, Ordering::Relaxed);
        self.in_vain.store(0, Ordering::Relaxed);
    }

    /// The server has refused what it did as soon as the key was declared.
    pub(crate) fn was_in_vain(&self) {
        if self.in_vain.fetch_add(1, Ordering::Relaxed) + 1 >= ENOUGH && !self.is_refused.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "a server of the cluster takes no scripts for several slots: each lock there has its own commands"
            );
        }
    }
}

/// The same call without declared keys: for a script that takes them as arguments where it has none, how many they are first.
pub(crate) fn undeclared(call: Call) -> Call {
    let Call { script, keys, words } = call;
    let count = Arg::Int(i64::try_from(keys).unwrap_or(i64::MAX));
    Call { script, keys: 0, words: std::iter::once(count).chain(words).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_given_up_when_it_refuses_in_vain_and_for_good() {
        let server = Undeclared::new(|error| error == "elsewhere");
        assert!(server.is_elsewhere("elsewhere") && !server.is_elsewhere("OOM"));
        for _ in 1..ENOUGH {
            server.was_in_vain();
        }
        assert!(server.is_taken());
        assert_eq!(server.known(), None);
        server.worked();
        assert_eq!(server.known(), Some(true));
        for _ in 0..ENOUGH {
            assert!(server.is_taken());
            server.was_in_vain();
        }
        assert!(!server.is_taken());
        server.worked();
        assert_eq!(server.known(), Some(false));
    }
}

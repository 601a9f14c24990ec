//! Scripts: Lua text from `lua/`, known to servers by its SHA-1.

use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use sha1::{Digest, Sha1};

/// One Lua script. Sent as `EVALSHA`; only when the server does not know it, once more as `EVAL` to the same server.
pub struct Script {
    /// Its file below `lua/`, for logs.
    pub name: &'static str,
    /// Its text.
    pub source: &'static str,
    /// The script that runs many calls of this one and its like at once, and this one's number in it.
    pub(crate) many: Option<(&'static Script, i64)>,
    sha: OnceLock<Bytes>,
}

impl Script {
    /// A script of this name and text.
    pub const fn new(name: &'static str, source: &'static str) -> Self {
        Self { name, source, many: None, sha: OnceLock::new() }
    }

    /// As `new`, for a script that is step `number` of `many`.
    pub(crate) const fn step(name: &'static str, source: &'static str, many: &'static Self, number: i64) -> Self {
        Self { name, source, many: Some((many, number)), sha: OnceLock::new() }
    }

    /// The SHA-1 of the text in lower-case hex, as `EVALSHA` wants it.
    pub fn sha(&self) -> Bytes {
        self.sha.get_or_init(|| Bytes::from(format!("{:x}", Sha1::digest(self.source)))).clone()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sha_is_that_of_the_text() {
        let script = Script::new("x", "return 1");
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}

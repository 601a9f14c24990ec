//! What a server's error says of where a command has to go.
//!
//! | the error | did the command run? | what is done |
//! |---|---|---|
//! | `MOVED slot to` | no | the map is patched, the command goes to `to`, a view is asked for |
//! | `ASK slot to` | no | one key: to `to` behind `ASKING`, and the map stays. Several keys, or any that are not declared: as `TRYAGAIN`, because some of them are not there yet. Redis 6.2 says `ASK` where the others say `TRYAGAIN` |
//! | `TRYAGAIN` | no | again a little later, at the same place |
//! | `CLUSTERDOWN`, `LOADING`, `MASTERDOWN`, `BUSY` | no | a view is asked for, and commands wait until the server is well |
//! | a script's command `while the cluster is down` | the script did up to its first key, or write | the same |
//! | `READONLY`, `NOREPLICAS` | a script up to its first write | the same: the server is a replica now, or has too few |
//! | `non local key`, `slot not served`, `undeclared keys were accessed during rehashing` | a script up to that key | one key: sent singly, with the key declared, it brings one of those above. Several: as `TRYAGAIN`, and a view is asked for: a replica of Valkey 9.1 says so instead of `READONLY` |
//! | anything else | | told to the caller |
//!
//! "Up to" means that nothing was written: scripts read every key they touch before they write the first (`lua/`), and neither
//! a slot nor a cluster's state changes under a script that runs.
//!
//! A script's errors come in three forms: with the code in front and the place behind (Redis 7, Valkey), with both in front
//! and a dash before the code (Redis 6.2), and without any code where the script caught it (6.2). `MOVED` and `ASK` never come out
//! of a script, and count only in front: behind it stand words that somebody else may have chosen.

use super::address::{Address, digits};
use super::slots::SLOTS;
use crate::error::passing::{Cause, Passing, inside};

/// Where a command has to go that was answered with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// To the primary that has the slot now, if the server could say which.
    Moved { slot: u16, to: Option<Address> },
    /// This once to the node that the slot is being moved to.
    Ask { slot: u16, to: Option<Address> },
    /// Nowhere: the slot is being moved, and its keys are in two places.
    Again,
    /// Nowhere: the server, or the cluster, serves nobody for the moment.
    Down,
    /// To the primary: this one takes no writes any more.
    Demoted,
    /// To whoever has a key that a script touched, and that is not here, or not all of them are.
    NonLocal,
    /// It is no redirect.
    None,
}

impl Redirect {
    /// Reads the error of a server at `host`; where an address has no host, it is that one.
    pub(crate) fn of(text: &str, host: &str) -> Self {
        let mut words = text.split(' ');
        match words.next() {
            Some("MOVED") => target(words, host).map_or(Self::None, |(slot, to)| Self::Moved { slot, to }),
            Some("ASK") => target(words, host).map_or(Self::None, |(slot, to)| Self::Ask { slot, to }),
            _ => Self::of_script(inside(text)),
        }
    }

    fn of_script(text: &str) -> Self {
        match Passing::of(text).map(|row| row.cause) {
            Some(Cause::Slot) => Self::Again,
            Some(Cause::Down) => Self::Down,
            Some(Cause::Demoted) => Self::Demoted,
            Some(Cause::Full) => Self::None,
            None => Self::in_words(text.strip_prefix("ERR ").unwrap_or(text)),
        }
    }

    /// Of an error that has no code of its own, as the servers word it.
    fn in_words(text: &str) -> Self {
        // "Lua script attempted", "Script attempted", "Attempted".
        let text = text.strip_prefix("Lua ").unwrap_or(text);
        let words = strip(text, "Script ").unwrap_or(text);
        let tried = strip(words, "attempted to ");
        let refused = tried.and_then(|tried| strip(tried, "execute a ")).or_else(|| strip(text, "Can not execute a "));
        if refused.is_some_and(|refused| refused.contains("while the cluster is down")) {
            return Self::Down;
        }
        if strip(text, "Unable to execute command").is_some_and(|text| text.contains("accessed during rehashing")) {
            return Self::NonLocal;
        }
        let elsewhere = tried.and_then(|tried| strip(tried, "access a "));
        match elsewhere {
            Some(what) if what.starts_with("non local key") || what.starts_with("slot not served") => Self::NonLocal,
            _ => Self::None,
        }
    }
}

/// The slot and the address of a redirect. `?` stands for a host that the server does not know; where the address cannot be
/// read, it is unknown as well.
fn target<'a>(mut words: impl Iterator<Item = &'a str>, answered: &str) -> Option<(u16, Option<Address>)> {
    let slot = digits(words.next()?).filter(|slot| *slot < SLOTS)?;
    let address = words.next().and_then(Address::split);
    let to = address.and_then(|(host, port)| Address::new(if host.is_empty() { answered } else { host }, port));
    Some((slot, to))
}

/// What is behind these words, whichever letters of them are capitals.
fn strip<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let (front, rest) = text.split_at_checked(words.len())?;
    front.eq_ignore_ascii_case(words).then_some(rest)
}

#[cfg(test)]
mod tests;

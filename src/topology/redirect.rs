//! Classifies a server's errors by where the command must be sent instead. The *map* is the client's slot map. A *view*
//! is a server's reply to `CLUSTER NODES`.
//!
//! | error | did the command run? | reaction |
//! |---|---|---|
//! | `MOVED slot to` | no | the map is patched, the command is sent to `to`, and a view is queried |
//! | `ASK slot to`, one key | no | the command is sent to `to` behind an `ASKING`; the map stays |
//! | `ASK slot to`, several or undeclared keys | no | as `TRYAGAIN`, because some keys may not be at `to` yet. Redis 6.2 replies `ASK` where other versions reply `TRYAGAIN` |
//! | `TRYAGAIN` | no | retried at the same place after a pause |
//! | `CLUSTERDOWN` for the whole cluster | no | a view is queried, and commands wait at the gate (`cluster/gate.rs`) until the server serves again |
//! | `CLUSTERDOWN` for one slot, `LOADING`, `MASTERDOWN`, `BUSY` | no | a view is queried, and the command is retried after a pause |
//! | `while the cluster is down`, from a script | up to its first key or first write | as `CLUSTERDOWN` |
//! | `READONLY`, `NOREPLICAS` | a script: up to the first write | as `LOADING`: the server is a replica now, or has too few replicas |
//! | `non local key`, `slot not served`, `undeclared keys were accessed during rehashing` | a script: up to that key | as `LOADING`: a replica of Valkey 9.1 replies this instead of `READONLY` |
//! | the same, for a step of a batch | up to that key | the step is sent again alone, with its key declared, and succeeds or fails with an error above |
//! | any other | | passed on to the caller |
//!
//! "Up to" means that the script may have run until then, but has written nothing. Scripts read every key that they use
//! before the first write (`lua/`). Neither a slot nor the cluster's state changes while a script runs.
//!
//! Errors from scripts have three forms:
//!
//! - Redis 7 and Valkey: the code in front, the place in the script behind the text.
//! - Redis 6.2: the place in front, then a dash and the code.
//! - Redis 6.2, if the script caught the error: no code.
//!
//! `MOVED` and `ASK` never come from a script. They count only at the start of an error, because the rest may contain a
//! user's text.

use super::address::{Address, digits};
use super::slots::SLOTS;
use crate::error::passing::{Cause, Passing, inside};

/// Where a command must be sent after an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// To the slot's present primary. `to` is `None` if the server does not know the address.
    Moved { slot: u16, to: Option<Address> },
    /// To the node that the slot is being moved to, for this command only.
    Ask { slot: u16, to: Option<Address> },
    /// Nowhere: the slot is being moved, and its keys are in two places.
    Again,
    /// Nowhere: the server, or the cluster, serves no commands at the moment.
    Down,
    /// To the primary: this server accepts no writes any more.
    Demoted,
    /// To the node that has the key: a script used a key that is not on this server, or whose slot is being moved.
    NonLocal,
    /// The error is no redirect.
    None,
}

impl Redirect {
    /// Classifies the error of the server at `host`. A redirect without a host leads to `host`.
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

    /// Classifies an error without a code by the servers' wording.
    fn in_words(text: &str) -> Self {
        // The servers say "Lua script attempted", "Script attempted" or "Attempted".
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

/// Parses the slot and the address of a redirect. The address is `None` if its host is `?` (unknown to the server), or
/// if it cannot be parsed.
fn target<'a>(mut words: impl Iterator<Item = &'a str>, answered: &str) -> Option<(u16, Option<Address>)> {
    let slot = digits(words.next()?).filter(|slot| *slot < SLOTS)?;
    let address = words.next().and_then(Address::split);
    let to = address.and_then(|(host, port)| Address::new(if host.is_empty() { answered } else { host }, port));
    Some((slot, to))
}

/// Returns the text after `words`, ignoring the case of ASCII letters.
fn strip<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let (front, rest) = text.split_at_checked(words.len())?;
    front.eq_ignore_ascii_case(words).then_some(rest)
}

#[cfg(test)]
mod tests;

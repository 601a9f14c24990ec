//! A server's role in replication, and its replication history (`ROLE`, `INFO replication`).

use bytes::Bytes;

use super::address::Address;
use super::reason::untold;
use crate::error::Error;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static ROLE: Script = Script::bare("topology/role", "ROLE");

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Primary {
        /// Number of replicas that the primary reports.
        replicas: usize,
    },
    Replica,
    /// Not a data server, for example a sentinel.
    Other,
}

static INFO: Script = Script::bare("topology/replication", "INFO");

/// The replication history of a server, and its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replication {
    pub(super) is_primary: bool,
    /// Number of connected replicas, including replicas that are still catching up.
    pub(super) connected: usize,
    /// Number of replicas that are up to date: `online`, with a `lag` of at most [`UP_TO_DATE`] seconds.
    pub(super) online: usize,
    /// Replication id. A replica has the id of its primary. A server gets a new id when it is promoted or has lost its
    /// data.
    pub(super) id: String,
    /// Replication id that the server had before it was promoted.
    pub(super) before: String,
}

pub(super) fn replication() -> Call {
    let words = vec![Arg::Text(Bytes::from_static(b"replication"))];
    Call { script: &INFO, keys: 0, words }
}

/// Longest `lag` in seconds of a replica that counts as up to date. A healthy replica acknowledges the replication
/// stream every second.
const UP_TO_DATE: u64 = 3;

impl Replication {
    pub(super) fn of(reply: &Reply) -> Self {
        let mut told = Self::default();
        for line in text(reply).unwrap_or_default().lines() {
            match line.split_once(':') {
                Some(("role", role)) => told.is_primary = role == "master",
                Some(("master_replid", id)) => id.clone_into(&mut told.id),
                Some(("master_replid2", id)) => id.clone_into(&mut told.before),
                Some(("connected_slaves", count)) => told.connected = count.trim().parse().unwrap_or(0),
                Some((field, replica)) if field.starts_with("slave") => {
                    let part = |name: &str| replica.split(',').find_map(|part| part.trim().strip_prefix(name));
                    // A frozen replica stays `online` until `repl-timeout`, so the `lag` counts too. Without a reported
                    // `lag`, the `state` alone counts.
                    let lag = part("lag=").and_then(|lag| lag.parse::<u64>().ok()).unwrap_or(0);
                    told.online += usize::from(part("state=") == Some("online") && lag <= UP_TO_DATE);
                }
                _ => {}
            }
        }
        told
    }

    /// True if this server is a promoted primary that had this replication id while it was a replica.
    pub(super) fn continues_history(&self, history: &str) -> bool {
        self.is_primary && !history.is_empty() && self.before == history
    }
}

pub(super) fn role() -> Call {
    Call { script: &ROLE, keys: 0, words: Vec::new() }
}

impl Role {
    pub(super) fn of(reply: &Reply) -> Self {
        let Reply::List(parts) = reply else { return Self::Other };
        match parts.first().and_then(text) {
            Some("master") => {
                let replicas = if let Some(Reply::List(replicas)) = parts.get(2) { replicas.len() } else { 0 };
                Self::Primary { replicas }
            }
            Some("slave") => Self::Replica,
            _ => Self::Other,
        }
    }

    pub(super) const fn is_primary(&self) -> bool {
        matches!(self, Self::Primary { .. })
    }
}

pub(super) fn role_not_reported(address: &Address, why: &str) -> Error {
    untold(address, "whether it is the primary", "ROLE", why)
}

pub(super) fn text(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// Reads a number, which may be sent as text.
pub(super) fn number(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(int) => Some(*int),
        reply => text(reply)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn word(text: &'static str) -> Reply {
        Reply::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn role_replies_are_parsed() {
        let replica = Reply::List(vec![word("10.0.0.2"), word("6379"), word("3129659")]);
        let primary = Reply::List(vec![word("master"), Reply::Int(3_129_659), Reply::List(vec![replica])]);
        assert_eq!(Role::of(&primary), Role::Primary { replicas: 1 });
        let words = [word("slave"), word("10.0.0.1"), Reply::Int(6379), word("connect"), Reply::Int(-1)];
        assert_eq!(Role::of(&Reply::List(words.into())), Role::Replica);
        for odd in [Reply::Nil, Reply::List(vec![]), Reply::List(vec![word("sentinel"), Reply::List(vec![])])] {
            assert_eq!(Role::of(&odd), Role::Other, "{odd:?}");
        }
        let strange = Reply::List(vec![word("master"), word("x"), Reply::List(vec![Reply::Nil, word("a")])]);
        assert_eq!(Role::of(&strange), Role::Primary { replicas: 2 });
    }

    #[test]
    fn promoted_replica_continues_history_of_its_primary() {
        let of = |text: &'static str| Replication::of(&word(text));
        let promoted = of("# Replication\r\nrole:master\r\nmaster_replid:new\r\nmaster_replid2:old\r\nx:y\r\n");
        assert!(
            promoted.continues_history("old") && !promoted.continues_history("new") && !promoted.continues_history("")
        );
        assert!(!of("role:slave\r\nmaster_replid:old\r\nmaster_replid2:old").continues_history("old"));
        // A server that has lost its data, then replies that tell nothing.
        assert!(!of("role:master\r\nmaster_replid:new\r\nmaster_replid2:0000").continues_history("old"));
        assert_eq!(Replication::of(&Reply::Nil), Replication::default());
        assert!(!Replication::of(&word("role:master")).continues_history(""));
    }
}

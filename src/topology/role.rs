//! What a server says of its part in replication.

use super::address::Address;
use crate::transport::script::Script;
use crate::transport::{Call, Reply};

/// Asks a server for its part.
static ROLE: Script = Script::bare("topology/role", "ROLE");

/// A server's part in replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It takes writes.
    Primary {
        /// How many bytes of writes there were.
        offset: u64,
        /// The replicas that are connected.
        replicas: Vec<Address>,
    },
    /// It repeats those of a primary.
    Replica {
        /// How many bytes of writes it has repeated.
        offset: u64,
    },
    /// It is no server of keys.
    Other,
}

pub(super) fn role() -> Call {
    Call { script: &ROLE, keys: 0, words: Vec::new() }
}

impl Role {
    /// Reads the reply to `ROLE`.
    pub(super) fn of(reply: &Reply) -> Self {
        let Reply::List(parts) = reply else { return Self::Other };
        let offset_at = |at: usize| parts.get(at).and_then(number).and_then(|offset| u64::try_from(offset).ok());
        match parts.first().and_then(text) {
            Some("master") => {
                let replicas = match parts.get(2) {
                    Some(Reply::List(replicas)) => replicas.iter().filter_map(address).collect(),
                    _ => Vec::new(),
                };
                Self::Primary { offset: offset_at(1).unwrap_or(0), replicas }
            }
            // It has none before it has heard of its primary.
            Some("slave") => Self::Replica { offset: offset_at(4).unwrap_or(0) },
            _ => Self::Other,
        }
    }

    pub(super) const fn is_primary(&self) -> bool {
        matches!(self, Self::Primary { .. })
    }
}

pub(super) fn text(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// A number, also one that is sent as text.
pub(super) fn number(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(int) => Some(*int),
        reply => text(reply)?.parse().ok(),
    }
}

fn address(replica: &Reply) -> Option<Address> {
    let Reply::List(parts) = replica else { return None };
    let port = parts.get(1).and_then(number).and_then(|port| u16::try_from(port).ok())?;
    Address::new(parts.first().and_then(text)?, port)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn word(text: &'static str) -> Reply {
        Reply::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn parts_as_servers_tell_them() {
        let replica = Reply::List(vec![word("10.0.0.2"), word("6379"), word("3129659")]);
        let primary = Reply::List(vec![word("master"), Reply::Int(3_129_659), Reply::List(vec![replica])]);
        let at = Address::new("10.0.0.2", 6379).unwrap();
        assert_eq!(Role::of(&primary), Role::Primary { offset: 3_129_659, replicas: vec![at] });
        let words = [word("slave"), word("10.0.0.1"), Reply::Int(6379), word("connected"), Reply::Int(17)];
        assert_eq!(Role::of(&Reply::List(words.into())), Role::Replica { offset: 17 });
        let words = [word("slave"), word("10.0.0.1"), Reply::Int(6379), word("connect"), Reply::Int(-1)];
        assert_eq!(Role::of(&Reply::List(words.into())), Role::Replica { offset: 0 });
        for odd in [Reply::Nil, Reply::List(vec![]), Reply::List(vec![word("sentinel"), Reply::List(vec![])])] {
            assert_eq!(Role::of(&odd), Role::Other, "{odd:?}");
        }
        let strange = Reply::List(vec![word("master"), word("x"), Reply::List(vec![Reply::Nil, word("a")])]);
        assert_eq!(Role::of(&strange), Role::Primary { offset: 0, replicas: vec![] });
    }
}

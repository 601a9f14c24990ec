//! Ids of permits: 16 bytes, as Redisson stores them.

use std::fmt;
use std::str::FromStr;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::engine::protocol::HoldId;
use crate::error::{Error, Result};
use crate::owner::Owner;

/// Id of one permit. As text it has 32 hex digits, as in Redisson's API.
///
/// # Examples
///
/// ```
/// # fn main() -> distlock::Result<()> {
/// let id: distlock::PermitId = "000102030405060708090a0b0c0d0e0f".parse()?;
/// assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermitId([u8; 16]);

impl PermitId {
    /// Creates an id from the bytes that Redis stores.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that Redis stores.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PermitId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = (text.len() == 32 && !text.starts_with('+')).then(|| u128::from_str_radix(text, 16).ok());
        match number.flatten() {
            Some(number) => Ok(Self(number.to_be_bytes())),
            None => Err(Error::config(format!("invalid permit id {text:?}: expected 32 hex digits"))),
        }
    }
}

/// Joins ids into one argument of a script.
pub(super) fn joined(ids: &[PermitId]) -> Bytes {
    Bytes::from(ids.iter().flat_map(|id| id.0).collect::<Vec<u8>>())
}

/// Returns the joined ids of the permits of a hold. An id has 8 bytes of the client's uuid, 6 bytes for the number of
/// the hold, and 2 bytes for the index of the permit. Ids are unique per hold. A hand-over inside a process keeps them.
pub(super) fn ids(owner: &Owner, hold: &HoldId, permits: u32) -> Bytes {
    match hold {
        HoldId::Listed(list) => ids_of_list(owner, list, permits),
        HoldId::Only | HoldId::Unlisted | HoldId::Any => ids_of_list(owner, b"-", permits),
    }
}

/// Returns the joined ids of the permits of all holds in a list. `-` or an empty list stands for the owner's only hold.
pub(super) fn ids_of_list(owner: &Owner, list: &[u8], permits: u32) -> Bytes {
    let (client, own) = owner.text().rsplit_once(':').unwrap_or_default();
    let digits: String = client.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let client = u64::from_str_radix(&digits, 16).unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    let mut all = BytesMut::new();
    // A `~` and the number of a command may follow the first id. They are ignored.
    let list = list.split(|byte| *byte == b'~').next().unwrap_or_default();
    let mut holds: Vec<u64> = Vec::new();
    for id in list.split(|byte| *byte == b',').filter(|id| !id.is_empty()) {
        let text = std::str::from_utf8(id).unwrap_or_default();
        // The number of an owner and the number of a hold may be equal. The last bit tells them apart.
        holds.push(text.rsplit_once('.').map_or(number(own) << 1, |(_, hold)| number(hold) << 1 | 1));
    }
    if holds.is_empty() {
        holds.push(number(own) << 1);
    }
    for hold in holds {
        for index in 0..permits {
            all.put_u64(client);
            all.put_u64(hold << 16 | u64::from(index & 0xffff));
        }
    }
    all.freeze()
}

/// Splits joined ids.
pub(super) fn split(joined: &[u8]) -> Vec<PermitId> {
    joined.chunks_exact(16).filter_map(|id| id.try_into().ok().map(PermitId)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "01234567-89ab-8def-8123-456789abcdef";

    #[test]
    fn ids_of_different_holds_and_owners_differ() {
        let owners = [1, 2, 3].map(|number| Owner::fresh(CLIENT, number));
        let listed = |text: &'static str| HoldId::Listed(Bytes::from_static(text.as_bytes()));
        let mut all = Vec::new();
        for owner in &owners {
            all.extend(split(&ids(owner, &HoldId::Only, 3)));
        }
        all.extend(split(&ids(&owners[0], &listed("0123456789ab.1"), 3)));
        all.extend(split(&ids(&owners[0], &listed(",0123456789ab.2,0123456789ab.3"), 3)));
        let count = all.len();
        assert_eq!(count, 18);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        let first = split(&ids(&owners[0], &HoldId::Only, 1))[0];
        assert_eq!(first.to_string(), "0123456789ab8def0000000000020000");
        assert_eq!(ids(&owners[0], &HoldId::Unlisted, 2), ids(&owners[0], &HoldId::Only, 2));
        assert_eq!(ids_of_list(&owners[0], b",-~7", 1), ids(&owners[0], &HoldId::Only, 1));
        assert_eq!(ids_of_list(&owners[0], b"", 1), ids(&owners[0], &HoldId::Only, 1));
    }

    #[test]
    fn id_is_parsed_from_32_hex_digits_only() {
        let id = PermitId::from_bytes(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse::<PermitId>().unwrap(), id);
        assert_eq!(split(&joined(&[id, id])), [id, id]);
        for wrong in ["", "12", "zz0102030405060708090a0b0c0d0e0f", "+00102030405060708090a0b0c0d0e0f"] {
            assert!(matches!(wrong.parse::<PermitId>(), Err(Error::Config { .. })), "{wrong}");
        }
    }
}

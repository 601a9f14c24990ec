//! Values of plain locks in Redis.

use bytes::Bytes;

use crate::owner::Owner;

/// The form of a plain lock's values. The form matters only to people and programs that look at the values. Libraries
/// compare whole values and never parse them, so locks of different forms exclude each other.
///
/// Each value belongs to one acquire and is never reused. Every form contains the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum PlainValue {
    /// The owner's text, `<uuid>:<number>`. If the owner was given to the acquire, `/` and the id of the hold follow.
    #[default]
    Owner,
    /// The owner and the id in lower-case hex, 48 or 76 digits, similar to `redlock` for Node and `redis-py`.
    Hex,
    /// The owner and the id in base64, 32 or 52 characters, similar to `redsync` and `bsm/redislock`.
    Base64,
}

/// Length in bytes of a packed owner, without and with the id of a hold.
const OWNER: usize = 16 + 8;
const WHOLE: usize = OWNER + 6 + 8;

/// Separates an owner from the id of its hold, in text form.
const MARK: u8 = b'/';

impl PlainValue {
    /// The value for the hold `id` of this owner. Empty `id`: the only hold that the owner will ever have.
    pub(super) fn of(self, owner: &Owner, id: &[u8]) -> Bytes {
        if self == Self::Owner && id.is_empty() {
            return owner.bytes();
        }
        self.packed(owner, id).unwrap_or_else(|| Bytes::from([owner.text().as_bytes(), &[MARK], id].concat()))
    }

    /// The common prefix of all values of this owner in this form.
    fn all_of(self, owner: &Owner) -> Bytes {
        self.packed(owner, b"").unwrap_or_else(|| Bytes::from([owner.text().as_bytes(), &[MARK]].concat()))
    }

    /// The encoded value. None if the value must be written as text.
    fn packed(self, owner: &Owner, id: &[u8]) -> Option<Bytes> {
        let encode = match self {
            Self::Owner => return None,
            Self::Hex => hex,
            Self::Base64 => base64,
        };
        let bytes = pack(owner.text(), id)?;
        // An owner from another process may be spelled differently, for example in upper case. Packing would lose this
        // spelling.
        (unpack(&bytes).as_deref() == Some(owner.text())).then(|| Bytes::from(encode(&bytes)))
    }
}

/// The prefixes of all values of this owner, one for each form: the holder may use another form than the caller.
pub(super) fn all_of(owner: &Owner) -> impl Iterator<Item = Bytes> {
    [PlainValue::Owner, PlainValue::Hex, PlainValue::Base64].into_iter().map(|form| form.all_of(owner))
}

/// The owner in this value if this crate wrote it, else the value itself.
pub(super) fn holder(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let bytes = match value.len() {
        48 | 76 => from_hex(value),
        32 | 52 => from_base64(value),
        _ => None,
    };
    if let Some(owner) = bytes.as_deref().and_then(unpack) {
        return owner;
    }
    match text.split_once(char::from(MARK)) {
        Some((owner, _)) if owner.parse::<Owner>().is_ok() => owner.to_owned(),
        _ => text.into_owned(),
    }
}

/// Packs the owner `<uuid>:<number>` and the hold id `<12 hex digits>.<number>` into bytes.
fn pack(owner: &str, id: &[u8]) -> Option<Vec<u8>> {
    let (uuid, number) = owner.split_once(':')?;
    let mut bytes = Vec::with_capacity(WHOLE);
    bytes.extend(uuid::Uuid::try_parse(uuid).ok()?.as_bytes());
    bytes.extend(number.parse::<u64>().ok()?.to_be_bytes());
    if !id.is_empty() {
        let (client, number) = std::str::from_utf8(id).ok()?.split_once('.')?;
        bytes.extend(from_hex(client.as_bytes()).filter(|client| client.len() == 6)?);
        bytes.extend(number.parse::<u64>().ok()?.to_be_bytes());
    }
    Some(bytes)
}

/// The owner in packed bytes. None if this crate did not write them.
fn unpack(bytes: &[u8]) -> Option<String> {
    let (uuid, rest) = bytes.split_first_chunk::<16>()?;
    let number = u64::from_be_bytes(*rest.first_chunk()?);
    let uuid = uuid::Uuid::from_bytes(*uuid);
    let is_ours = uuid.get_version_num() == 8 && matches!(bytes.len(), OWNER | WHOLE);
    is_ours.then(|| format!("{uuid}:{number}"))
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |n: u8| b"0123456789abcdef"[usize::from(n & 15)];
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(chunk.get(at).copied().unwrap_or(0)));
        text.extend((0..4).map(|at| if at > chunk.len() { b'=' } else { LETTERS[bits >> (18 - 6 * at) & 63] }));
    }
    text
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|letter| **letter == b'=').count();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.chunks(4) {
        let bits = chunk.iter().try_fold(0_usize, |bits, letter| {
            let value = if *letter == b'=' { Some(0) } else { LETTERS.iter().position(|known| known == letter) };
            Some(bits << 6 | value?)
        })?;
        bytes.extend([bits >> 16, bits >> 8, bits].map(|byte| (byte & 255) as u8));
    }
    bytes.truncate(bytes.len().checked_sub(padding)?);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab";
    const FORMS: [PlainValue; 3] = [PlainValue::Owner, PlainValue::Hex, PlainValue::Base64];

    fn text(value: &Bytes) -> &str {
        std::str::from_utf8(value).unwrap()
    }

    #[test]
    fn plain_values_are_written_in_every_form() {
        let owner = Owner::fresh(ID, 7);
        let hold = b"71b96ce82746.258";
        let expected = [
            [format!("{ID}:7"), format!("{ID}:7/71b96ce82746.258")],
            [
                "71b96ce827468c3a9d0e0123456789ab0000000000000007".to_owned(),
                "71b96ce827468c3a9d0e0123456789ab000000000000000771b96ce827460000000000000102".to_owned(),
            ],
            [
                "cbls6CdGjDqdDgEjRWeJqwAAAAAAAAAH".to_owned(),
                "cbls6CdGjDqdDgEjRWeJqwAAAAAAAAAHcbls6CdGAAAAAAAAAQI=".to_owned(),
            ],
        ];
        for (form, [alone, given]) in FORMS.into_iter().zip(expected) {
            assert_eq!(text(&form.of(&owner, b"")), alone);
            assert_eq!(text(&form.of(&owner, hold)), given);
        }
    }

    #[test]
    fn owner_is_read_from_every_form() {
        for number in [0, 1, 7, u64::MAX] {
            let owner = Owner::fresh(ID, number);
            for form in FORMS {
                for id in [&b""[..], b"71b96ce82746.1", b"ffffffffffff.18446744073709551615"] {
                    let value = form.of(&owner, id);
                    assert_eq!(holder(&value), owner.text(), "{form:?}");
                    let begins = form.all_of(&owner);
                    assert!([&value[..], b"/"].concat().starts_with(&begins), "{form:?}: {value:?}");
                    let longer = Owner::fresh(ID, number / 10);
                    assert_eq!([&value[..], b"/"].concat().starts_with(&form.all_of(&longer)), longer == owner);
                }
            }
        }
    }

    #[test]
    fn foreign_values_are_reported_as_text() {
        let uuid4 = "71b96ce8-2746-4c3a-9d0e-0123456789ab";
        let theirs = [
            "",
            "x",
            "/",
            "a/b",
            uuid4,
            &uuid4.replace('-', ""),
            &"0".repeat(48),
            &"é".repeat(24),
            "PpQbmd7PO+5LjbGwDPnMPA==",
            &"=".repeat(32),
            &"A".repeat(52),
            "ADDED:2024-05-01T00:00:00.000Z@host",
        ];
        for value in theirs {
            assert_eq!(holder(value.as_bytes()), value);
        }
        assert_eq!(holder(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    /// This crate never writes owners of this spelling.
    #[test]
    fn owner_with_foreign_spelling_is_read_back_in_every_form() {
        for odd in [ID.to_uppercase(), "71b96ce8-2746-4c3a-9d0e-0123456789ab".to_owned()] {
            let owner: Owner = format!("{odd}:007").parse().unwrap();
            for form in FORMS {
                let value = form.of(&owner, b"");
                assert_eq!(holder(&value), owner.text(), "{form:?}");
                assert!([&value[..], b"/"].concat().starts_with(&form.all_of(&owner)), "{form:?}");
            }
        }
    }
}

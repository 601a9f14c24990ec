//! Owners, lists of holds, and values of plain locks, as they are stored.

use distlock::Owner;

/// Length in bytes of an owner in the value of a plain lock, without and with the id of a hold.
const ALONE: usize = 16 + 8;
const WHOLE: usize = ALONE + 6 + 8;

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Language of a client, by the version of its uuid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// This crate: version 8.
    Rust,
    /// Redisson: version 4.
    Java,
}

impl Language {
    /// The language of this owner; `None` for text that is no owner, and for other uuids.
    pub fn of(owner: &str) -> Option<Self> {
        match owner.as_bytes().get(14)? {
            b'8' if is_owner(owner) => Some(Self::Rust),
            b'4' if is_owner(owner) => Some(Self::Java),
            _ => None,
        }
    }

    /// The language of the client that acquired the permit with this id. An id of this crate begins with the first half
    /// of the client's uuid. The number of the hold follows, and is below 2^40. An id of Redisson is random.
    pub fn of_permit(id: &[u8]) -> Self {
        let is_ours = id.len() == 16 && id[6] >> 4 == 8 && id[8] == 0;
        if is_ours { Self::Rust } else { Self::Java }
    }

    /// `rust` or `java`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Java => "java",
        }
    }
}

/// True for `<uuid>:<number>`.
pub fn is_owner(text: &str) -> bool {
    text.parse::<Owner>().is_ok()
}

/// The ids of the holds in the value of a field `<owner>:holds`. A `+` in front means that the hold has no guard.
pub fn hold_ids(list: &str) -> Vec<String> {
    let ids = list.split(',').map(|entry| entry.split('~').next().unwrap_or_default());
    ids.filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// The owner and the id of the hold in a value that this crate wrote for a plain lock.
pub fn of_plain(value: &str) -> Option<(String, Option<String>)> {
    let (owner, hold) = match value.split_once('/') {
        Some((owner, hold)) => (owner, Some(hold.to_owned())),
        None => (value, None),
    };
    if Language::of(owner) == Some(Language::Rust) {
        return Some((owner.to_owned(), hold));
    }
    let bytes = match value.len() {
        48 | 76 => from_hex(value),
        32 | 52 => from_base64(value),
        _ => None,
    };
    unpacked(&bytes?)
}

/// Reads an owner, and perhaps a hold, from bytes. Random bytes are refused: they rarely have the right version and
/// variant, and a number below 2^48.
fn unpacked(bytes: &[u8]) -> Option<(String, Option<String>)> {
    if !matches!(bytes.len(), ALONE | WHOLE) {
        return None;
    }
    let (uuid, rest) = bytes.split_first_chunk::<16>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(*number);
    if uuid[6] >> 4 != 8 || uuid[8] >> 6 != 0b10 || number >> 48 != 0 {
        return None;
    }
    let hex = to_hex(uuid);
    let owner = format!("{}-{}-{}-{}-{}:{number}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let hold = rest.split_first_chunk::<6>().and_then(|(client, rest)| {
        let number = u64::from_be_bytes(*rest.first_chunk::<8>()?);
        Some(format!("{}.{number}", to_hex(client)))
    });
    Some((owner, hold))
}

/// Lower-case hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let letters = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(WHOLE);
    for chunk in letters.chunks(4) {
        let bits = chunk
            .iter()
            .try_fold(0_usize, |bits, letter| Some(bits << 6 | LETTERS.iter().position(|known| known == letter)?))?;
        let bits = bits << (6 * (4 - chunk.len()));
        let whole = [bits >> 16, bits >> 8, bits].map(|byte| (byte & 255) as u8);
        bytes.extend_from_slice(&whole[..chunk.len() - 1]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "71b96ce8-2746-8c3a-9d0e-0123456789ab";
    const JAVAS: &str = "71b96ce8-2746-4c3a-9d0e-0123456789ab";

    #[test]
    fn language_follows_the_version_of_the_uuid() {
        assert_eq!(Language::of(&format!("{OURS}:7")), Some(Language::Rust));
        assert_eq!(Language::of(&format!("{JAVAS}:7")), Some(Language::Java));
        for other in ["", "x", OURS, "71b96ce8-2746-1c3a-9d0e-0123456789ab:7"] {
            assert_eq!(Language::of(other), None, "{other}");
        }
        let ours = [0x71, 0xb9, 0x6c, 0xe8, 0x27, 0x46, 0x8c, 0x3a, 0, 0, 0, 0, 0, 2, 0, 0];
        assert_eq!(Language::of_permit(&ours), Language::Rust);
        assert_eq!(Language::of_permit(&[0x42; 16]), Language::Java);
    }

    #[test]
    fn hold_ids_are_read_without_command_numbers() {
        assert_eq!(hold_ids(""), Vec::<String>::new());
        assert_eq!(hold_ids("~3,0123456789ab.1~2,+0123456789ab.22"), ["0123456789ab.1", "+0123456789ab.22"]);
    }

    #[test]
    fn values_of_plain_locks_are_read_in_every_form() {
        let (owner, hold) = (format!("{OURS}:7"), "71b96ce82746.258".to_owned());
        for value in
            [owner.as_str(), "71b96ce827468c3a9d0e0123456789ab0000000000000007", "cbls6CdGjDqdDgEjRWeJqwAAAAAAAAAH"]
        {
            assert_eq!(of_plain(value), Some((owner.clone(), None)), "{value}");
        }
        for value in [
            format!("{OURS}:7/{hold}").as_str(),
            "71b96ce827468c3a9d0e0123456789ab000000000000000771b96ce827460000000000000102",
            "cbls6CdGjDqdDgEjRWeJqwAAAAAAAAAHcbls6CdGAAAAAAAAAQI=",
        ] {
            assert_eq!(of_plain(value), Some((owner.clone(), Some(hold.clone()))), "{value}");
        }
    }

    #[test]
    fn values_of_other_programs_are_no_plain_locks_of_this_crate() {
        for value in [
            "",
            "1",
            &format!("{JAVAS}:7"),
            &"0".repeat(48),
            &"A".repeat(52),
            &"=".repeat(32),
            "d41d8cd98f00b204e9800998ecf8427e",
            "+1b96ce827468c3a9d0e0123456789ab0000000000000007",
            &"é".repeat(24),
            "PpQbmd7PO+5LjbGwDPnMPA==",
        ] {
            assert_eq!(of_plain(value), None, "{value}");
        }
    }
}

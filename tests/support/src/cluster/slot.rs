//! Slots of keys.

use std::fmt::Write as _;

pub const SLOTS: u16 = 16_384;

/// The slot of a key. Only the text between the first `{` and the next `}` counts, unless it is empty.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    crc16(hash_tag(key.as_ref())) % SLOTS
}

/// A key with this prefix in that slot, found by appending numbers.
pub fn key_in(slot: u16, prefix: &str) -> String {
    assert!(slot < SLOTS, "there is no slot {slot}");
    let mut key = String::new();
    for n in 0_u64.. {
        key.clear();
        let _ = write!(key, "{prefix}{n}");
        if slot_of(&key) == slot {
            break;
        }
    }
    key
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|&b| b == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&b| b == b'}').map(|end| &rest[..end])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{user1000}.following"), slot_of("user1000"));
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{bar"));
        assert_eq!(slot_of("foo{bar}{zap}"), slot_of("bar"));
        assert_eq!(slot_of(""), 0);
    }

    #[test]
    fn key_is_found_for_any_slot() {
        for slot in [0, 1, 8_191, SLOTS - 1] {
            assert_eq!(slot_of(key_in(slot, "lock:")), slot);
        }
    }
}

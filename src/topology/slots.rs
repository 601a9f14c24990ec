//! The slots of a cluster: the slot of a key, a server's view, and the client's own map. No I/O, no clock.

pub(super) mod map;
mod shards;
pub(super) mod view;

pub(crate) use crate::names::slot::{SLOTS, slot_of};

/// Changes up to four places of a text: inserts bytes and digits, and deletes, repeats or reverses pieces.
#[cfg(test)]
pub(super) fn mutated(text: &str, numbers: &mut distlock_support::Numbers) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len() as u64 + 1) as usize;
        let to = (at + numbers.below(12) as usize).min(bytes.len());
        match numbers.below(5) {
            0 => bytes.insert(at, numbers.any() as u8),
            1 => bytes.insert(at, numbers.of(b"0123456789 :,-[]<>@\n")),
            2 => drop(bytes.drain(at..to)),
            3 => bytes.extend_from_within(at..to),
            _ => bytes[at..to].reverse(),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

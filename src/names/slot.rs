//! The cluster slot of a key, and of a name.

use super::LockName;
use crate::error::{Error, Result};

pub(crate) const SLOTS: u16 = 16_384;

pub(crate) fn slot_of(key: &[u8]) -> u16 {
    hash_tag(key).iter().fold(0, |crc: u16, byte| (crc << 8) ^ CRC[usize::from((crc >> 8) as u8 ^ byte)]) % SLOTS
}

/// Returns the part of a key that determines its slot: the text between the first `{` and the next `}`. If there is no
/// such text, or it is empty, returns the whole key.
pub(crate) fn hash_tag(key: &[u8]) -> &[u8] {
    let inside = key.iter().position(|byte| *byte == b'{').map(|open| &key[open + 1..]);
    let tag = inside.and_then(|inside| inside.iter().position(|byte| *byte == b'}').map(|close| &inside[..close]));
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC-16/XMODEM of each byte: polynomial 0x1021, start value 0, no bits reversed.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

impl LockName {
    /// The slot of the key. A waiter's inbox has the slot of its lock.
    pub(crate) fn slot(&self) -> u16 {
        match &self.lock {
            Some(lock) => lock.slot(),
            None => *self.slot.get_or_init(|| slot_of(&self.key)),
        }
    }

    /// True if the main key and the other keys of the lock have different hash tags, and so different slots, except by
    /// chance. Examples: `a{b`, `a{}b`, `x}y`. All other keys have the hash tag of the channel. Redisson makes the same
    /// keys of such names.
    pub(crate) fn spans_slots(&self) -> bool {
        match &self.lock {
            Some(lock) => lock.spans_slots(),
            None => hash_tag(&self.key) != hash_tag(&self.channel),
        }
    }

    /// Refuses names that are impossible in a cluster.
    pub(crate) fn check_in_cluster(&self) -> Result<()> {
        if self.spans_slots() {
            return Err(Error::config(format!(
                "the lock's name {:?} has its keys in two slots of the cluster: its braces have to enclose something, or go",
                String::from_utf8_lossy(&self.key)
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Arc;

    use distlock_support::{Numbers, RedisServer};

    use super::*;

    #[test]
    fn slots_match_cluster_keyslot_replies() {
        // The check value of the CRC, then replies of `CLUSTER KEYSLOT`.
        for (key, slot) in [
            ("123456789", 0x31c3),
            ("", 0),
            ("foo", 12_182),
            ("bar", 5_061),
            ("{foo}b", 12_182),
            ("redisson_lock__channel:{foo}", 12_182),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn hash_tag_is_content_of_first_braces_unless_empty() {
        for (key, tag) in [
            ("foo{bar}{zap}", "bar"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("a{b", "a{b"),
            ("x}y", "x}y"),
            ("x}{y}", "y"),
            ("{x}y}", "x"),
            ("}{", "}{"),
            ("{", "{"),
            ("{}", "{}"),
            ("", ""),
        ] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }

    #[test]
    fn slots_of_random_keys_match_server() {
        let server = RedisServer::builder()
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-port", "0")
            .config("cluster-config-file nodes.conf\n")
            .start();
        let mut numbers = Numbers::new(7);
        // Keys have many braces, and any byte.
        let key = |numbers: &mut Numbers| -> Vec<u8> {
            let length = numbers.below(40);
            (0..length).map(|_| if numbers.once_in(4) { numbers.of(b"{}") } else { numbers.any() as u8 }).collect()
        };
        let keys: Vec<_> = (0..5_000).map(|_| key(&mut numbers)).collect();
        let mut request = Vec::new();
        for key in &keys {
            request.extend(format!("*3\r\n$7\r\nCLUSTER\r\n$7\r\nKEYSLOT\r\n${}\r\n", key.len()).bytes());
            request.extend(key.iter().chain(b"\r\n"));
        }
        request.extend(b"QUIT\r\n");
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        let mut replies = String::new();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&request).unwrap());
        stream.read_to_string(&mut replies).unwrap();
        writing.join().unwrap();
        let told: Vec<_> = replies.lines().filter_map(|line| line.strip_prefix(':')).collect();
        assert_eq!(told.len(), keys.len());
        for (key, told) in keys.iter().zip(told) {
            assert_eq!(slot_of(key).to_string(), told, "{}", key.escape_ascii());
        }
    }

    /// Every key and channel of every flavour under a name.
    fn keys(prefix: &str, written: &str) -> Vec<Vec<u8>> {
        let (name, (read, write)) = (LockName::new(prefix, written), LockName::halves(prefix, written));
        let plain = LockName::of_plain(prefix, written);
        let of_fair = [name.queue(), name.deadlines(), name.waiters(), name.inbox("u:1").channel.clone()];
        let of_rw = [read.tag(), write.waiting_writers(), read.cover("u:1", 1), read.channel.clone()];
        let rest = [name.key.clone(), name.channel.clone(), plain.key.clone(), plain.channel.clone(), name.counter()];
        of_fair.iter().chain(&of_rw).chain(&rest).map(|key| key.to_vec()).collect()
    }

    #[test]
    fn keys_of_name_share_its_slot_unless_name_is_refused() {
        for (prefix, written, spans) in [
            ("", "foo", false),
            ("", "pre{tag}suf", false),
            ("", "{tag}", false),
            ("app:", "foo", false),
            ("{app}:", "foo", false),
            ("{app}:", "a{b", false),
            ("", "schloß ☃", false),
            ("", "x}{y}z", false),
            ("", "a{{b}c", false),
            ("", "a{b", true),
            ("", "a{}b", true),
            ("", "{}{y}", true),
            ("", "x}y", true),
            ("", "}", true),
            ("a}", "b", true),
        ] {
            let name = LockName::new(prefix, written);
            let (read, write) = LockName::halves(prefix, written);
            let inbox = name.inbox("u:1");
            for other in [&name, &read, &write, &LockName::of_plain(prefix, written), &inbox] {
                assert_eq!(other.slot(), slot_of(&name.key), "{written}");
                assert_eq!((other.spans_slots(), other.check_in_cluster().is_err()), (spans, spans), "{written}");
            }
            let elsewhere = keys(prefix, written).into_iter().filter(|key| slot_of(key) != name.slot()).count();
            assert_eq!(elsewhere > 0, spans, "{written}");
        }
        let refused = LockName::new("", "a{b").check_in_cluster().unwrap_err();
        assert!(matches!(&refused, Error::Config { what } if what.contains("a{b")), "{refused}");
    }

    #[test]
    fn slot_is_computed_on_first_use() {
        let name = LockName::new("", "foo");
        assert_eq!(name.slot.get(), None);
        assert_eq!((name.slot(), name.slot.get()), (12_182, Some(&12_182)));
        let inbox = name.inbox("u:1");
        assert_eq!((inbox.slot(), inbox.slot.get()), (12_182, None));
        assert_eq!(Arc::strong_count(&name), 2);
    }
}

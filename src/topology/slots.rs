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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use distlock_support::{Numbers, RedisServer};

    use super::*;
    use crate::names::slot::hash_tag;

    #[test]
    fn slots_as_servers_tell_them() {
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
    fn the_tag_is_in_the_first_braces_that_hold_something() {
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
    fn slots_of_random_keys_are_those_of_a_server() {
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
}

//! Addresses as Redisson writes them: `redis://[user:password@]host:port`.

use crate::config::Secret;
use crate::topology::Address;

/// One server, and the login in its address.
pub(super) struct Server {
    pub(super) is_secure: bool,
    pub(super) place: Place,
    pub(super) username: Option<Secret>,
    pub(super) password: Option<Secret>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(Address),
    /// The path of a socket.
    Unix(String),
}

/// Reads an address. Errors never repeat it: it may hold a password.
pub(super) fn read(text: &str) -> Result<Server, &'static str> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let is_secure = match scheme {
        "redis+uds" if rest.starts_with('/') => {
            return Ok(Server {
                is_secure: false,
                place: Place::Unix(rest.to_owned()),
                username: None,
                password: None,
            });
        }
        "redis+uds" => return Err("the path of a socket is absolute: redis+uds:///run/redis.sock"),
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err("an address begins with redis:// or rediss:// (or valkey://, valkeys://, redis+uds://)"),
    };
    // Redisson ignores the rest, such as a database.
    let server = rest.split(['/', '?']).next().unwrap_or_default();
    let (login, server) = server.rsplit_once('@').map_or((None, server), |(login, server)| (Some(login), server));
    let place = Address::split(server).and_then(|(host, port)| Address::new(host, port));
    let place = Place::Tcp(place.ok_or("an address ends with a host and a port, such as redis://10.0.0.1:6379")?);
    let decoded = |text: &str| {
        let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some(text).filter(|text| !text.is_empty()).map(Secret)
    };
    // A single word is the password.
    let (username, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login))) {
        Some((username, password)) => (decoded(username), decoded(password)),
        None => (None, None),
    };
    Ok(Server { is_secure, place, username, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redisson's `RedisURI` gives the same results in 3.52 and 4.7.
    #[test]
    fn addresses_are_taken_apart_as_redisson_does() {
        for (text, secure, place, username, password) in [
            ("redis://a:1", false, "a:1", "", ""),
            ("rediss://a_b.c:1", true, "a_b.c:1", "", ""),
            ("valkey://a:1", false, "a:1", "", ""),
            ("valkeys://a:1", true, "a:1", "", ""),
            ("redis://u:p@a:1/4", false, "a:1", "u", "p"),
            ("redis://p@a:1", false, "a:1", "", "p"),
            ("redis://:p%40x@a:1?db=3", false, "a:1", "", "p@x"),
            ("redis://[::1]:6379", false, "[::1]:6379", "", ""),
            ("redis://::1:6379", false, "[::1]:6379", "", ""),
        ] {
            let Ok(server) = read(text) else { panic!("{text}") };
            let Place::Tcp(address) = server.place else { panic!("{text}") };
            let word = |word: Option<Secret>| word.unwrap_or_default().0;
            assert_eq!((server.is_secure, address.to_string().as_str()), (secure, place), "{text}");
            assert_eq!(
                (word(server.username).as_str(), word(server.password).as_str()),
                (username, password),
                "{text}"
            );
        }
        assert!(
            matches!(read("redis+uds:///tmp/r.sock").map(|server| server.place), Ok(Place::Unix(path)) if path == "/tmp/r.sock")
        );
        for text in [
            "",
            "a:1",
            "redis://",
            "redis://a",
            "redis://a:b",
            "redis://a:0",
            "redis://a:99999",
            "REDIS://a:1",
            " redis://a:1",
            "http://a:1",
            "redis+uds://x",
            "redis://secret@",
        ] {
            assert!(read(text).is_err_and(|what| !what.contains("secret")), "{text}");
        }
    }
}

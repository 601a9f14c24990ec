//! Addresses as Redisson writes them: `redis://[user:password@]host:port`.

use std::net::Ipv6Addr;
use std::num::NonZeroU16;

use crate::Login;

/// One server, and the login in its address.
pub(crate) struct Server {
    pub(crate) is_tls: bool,
    /// `host:port`, or the absolute path of a unix socket.
    pub(crate) address: String,
    pub(crate) login: Login,
}

/// True if this [`Server::address`] is the path of a unix socket.
pub(crate) fn is_socket(address: &str) -> bool {
    address.starts_with('/')
}

/// Reads an address. Errors never repeat the address, because it may hold a password.
pub(crate) fn read(text: &str) -> Result<Server, &'static str> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let is_tls = match scheme {
        "redis+uds" if is_socket(rest) => {
            return Ok(Server { is_tls: false, address: rest.to_owned(), login: Login::default() });
        }
        "redis+uds" => return Err("the path of a socket is absolute: redis+uds:///run/redis.sock"),
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err("an address begins with redis:// or rediss:// (or valkey://, valkeys://, redis+uds://)"),
    };
    // Redisson ignores the rest, such as a database.
    let server = rest.split(['/', '?']).next().unwrap_or_default();
    let (login, server) = server.rsplit_once('@').unwrap_or(("", server));
    let address =
        host_and_port(server).ok_or("an address ends with a host and a port, such as redis://10.0.0.1:6379")?;
    // A login without a colon is the password.
    let (username, password) = login.split_once(':').unwrap_or(("", login));
    let decoded = |text: &str| {
        let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let login = Login { username: decoded(username), password: decoded(password) };
    Ok(Server { is_tls, address, login })
}

/// Parses `host:port`, and normalizes the spelling. The last colon separates the port, because servers write IPv6
/// addresses without brackets. `None` if no server can have this address.
pub(crate) fn host_and_port(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    // `parse` alone would accept a sign.
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    // DNS allows 253 bytes.
    if !is_port || host.is_empty() || host.len() > 253 || !host.bytes().all(is_host) {
        return None;
    }
    let port: NonZeroU16 = port.parse().ok()?;
    let host = host.parse::<Ipv6Addr>().map_or_else(|_| host.to_owned(), |ip| ip.to_string());
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redisson's `RedisURI` gives the same results in 3.52 and 4.7.
    #[test]
    fn addresses_are_parsed_as_in_redisson() {
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
            let word = |word: Option<String>| word.unwrap_or_default();
            assert_eq!((server.is_tls, server.address.as_str()), (secure, place), "{text}");
            let login = (word(server.login.username), word(server.login.password));
            assert_eq!((login.0.as_str(), login.1.as_str()), (username, password), "{text}");
        }
        assert!(read("redis+uds:///tmp/r.sock").is_ok_and(|server| server.address == "/tmp/r.sock"));
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

    /// The same rules as for addresses that servers report to distlock.
    #[test]
    fn addresses_are_normalized_and_invalid_ones_refused() {
        for (text, address) in [
            ("n-1.example:1", "n-1.example:1"),
            ("[FD00:0::0:5]:016001", "[fd00::5]:16001"),
            ("fe80::1%eth0:6379", "[fe80::1%eth0]:6379"),
        ] {
            assert_eq!(host_and_port(text).as_deref(), Some(address));
        }
        let long = format!("{}:1", "x".repeat(254));
        for text in [":1", "a:", "a:+1", "a:-1", "a: 1", "a:65536", "a b:1", "\u{fc}:1", "[]:1", &long] {
            assert_eq!(host_and_port(text), None, "{text:?}");
        }
    }
}

//! Addresses of servers.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// A host and a port. An IPv6 address is stored in one spelling, without brackets, so that different spellings compare
/// equal. An IPv6 address with a zone (`fe80::1%eth0`) keeps its spelling.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    host: Arc<str>,
    port: u16,
}

/// Longest host name that DNS allows, in bytes.
const LONGEST: usize = 253;

impl Address {
    /// Returns `None` if no server can have this address. The text is checked because it usually comes from a server,
    /// and ends up in connections and logs.
    pub(crate) fn new(host: &str, port: u16) -> Option<Self> {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if port == 0 || host.is_empty() || host.len() > LONGEST || !host.bytes().all(is_host) {
            return None;
        }
        let host = match host.parse::<Ipv6Addr>() {
            Ok(ip) => Arc::from(ip.to_string()),
            Err(_) => Arc::from(host),
        };
        Some(Self { host, port })
    }

    /// Splits `host:port` at the last colon, because servers write IPv6 addresses without brackets.
    pub(crate) fn split(text: &str) -> Option<(&str, u16)> {
        let (host, port) = text.rsplit_once(':')?;
        Some((host, digits(port)?))
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    #[cfg(test)]
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses a number of decimal digits only. `str::parse` would accept a sign.
pub(super) fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Address> {
        Address::split(text).and_then(|(host, port)| Address::new(host, port))
    }

    #[test]
    fn addresses_reported_by_servers_are_parsed() {
        for (text, host, port, shown) in [
            ("10.0.0.7:6379", "10.0.0.7", 6379, "10.0.0.7:6379"),
            ("n-1.example:1", "n-1.example", 1, "n-1.example:1"),
            ("fd00::5:16001", "fd00::5", 16001, "[fd00::5]:16001"),
            ("[fd00::5]:16001", "fd00::5", 16001, "[fd00::5]:16001"),
            ("[FD00:0::0:5]:16001", "fd00::5", 16001, "[fd00::5]:16001"),
            ("::1:6379", "::1", 6379, "[::1]:6379"),
            ("fe80::1%eth0:6379", "fe80::1%eth0", 6379, "[fe80::1%eth0]:6379"),
        ] {
            let address = read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((address.host(), address.port(), &*address.to_string()), (host, port, shown));
        }
    }

    #[test]
    fn invalid_addresses_are_refused() {
        let long = format!("{}:1", "x".repeat(LONGEST + 1));
        for text in [
            "", ":", ":6379", "a", "a:", "a:0", "a:65536", "a:+1", "a:-1", "a: 1", "a b:1", "a\n:1", "ü:1", "?:1",
            "[]:1",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(read(&long), None);
    }
}

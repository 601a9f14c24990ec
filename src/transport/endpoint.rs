//! One server, as a URL and the builder describe it.

use std::net::Ipv6Addr;

use distlock_wire::tls::Secured;
use distlock_wire::{Place, Target};

use super::connector::Login;
use crate::config::{BUILT_IN, Provider, Secret, Tls, check_tls, not_built_in, url};
use crate::error::{Error, Result};

#[derive(Clone, Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) url: Secret,
    pub(crate) username: Option<Secret>,
    pub(crate) password: Option<Secret>,
    /// Queried before each login. The answer replaces both user and password.
    pub(crate) credentials: Option<Provider>,
    pub(crate) tls: Option<Tls>,
    pub(crate) database: Option<u8>,
}

/// The parsed form of an [`Endpoint`]. Errors never repeat a part of the URL, because the URL may contain a password.
pub(crate) struct Parsed {
    pub(crate) place: Place,
    pub(crate) username: Option<Secret>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: Option<u8>,
}

impl Endpoint {
    pub(crate) fn parsed(&self) -> Result<Parsed> {
        let (scheme, rest) =
            self.url.0.split_once("://").ok_or_else(|| {
                Error::config("the URL has no scheme: use redis://host:port, rediss:// or unix:///path")
            })?;
        let of_url = match scheme {
            "unix" | "redis+unix" | "valkey+unix" => unix(rest)?,
            "rediss" | "valkeys" if !BUILT_IN => return Err(not_built_in()),
            "rediss" | "valkeys" | "redis" | "valkey" => tcp(rest)?,
            // The scheme is not repeated: it may be anything, even part of a password that contains `://`.
            _ => {
                return Err(Error::config(
                    "the URL's scheme is unknown: use redis://, rediss://, unix://, redis-cluster://, redis-sentinel:// or redis-replicated://",
                ));
            }
        };
        if let Some(tls) = &self.tls {
            check_tls(tls, scheme)?;
        }
        let parsed = Parsed {
            place: of_url.place,
            username: self.username.clone().or(of_url.username),
            password: self.password.clone().or(of_url.password),
            database: self.database.or(of_url.database),
        };
        if parsed.username.is_some() && parsed.password.is_none() && self.credentials.is_none() {
            return Err(Error::config(
                "the login has a user and no password: redis://user:password@host, or redis://:password@host for a password alone",
            ));
        }
        Ok(parsed)
    }

    pub(crate) fn is_tls(&self) -> bool {
        ["rediss://", "valkeys://"].iter().any(|scheme| self.url.0.starts_with(scheme))
    }

    pub(crate) fn login(&self) -> Result<(Login, Option<u8>)> {
        let Parsed { username, password, database, .. } = self.parsed()?;
        Ok((Login { username, password, credentials: self.credentials.clone() }, database))
    }

    /// Target of a connection of `distlock-wire`. `None` over native-tls, which only fred supports.
    pub(crate) fn target(&self) -> Result<Option<Target>> {
        let Parsed { place, username, password, database } = self.parsed()?;
        let tls = if self.is_tls() {
            let Some(secured) = self.secured(&place)? else { return Ok(None) };
            Some(secured)
        } else {
            None
        };
        let (credentials, database) = (self.credentials.clone(), database.unwrap_or(0));
        Ok(Some(Target { place, tls, username, password, credentials, database }))
    }

    /// The TLS configuration for this place. `None` over native-tls.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a file that cannot be read or used.
    #[cfg(all(any(feature = "rustls", feature = "rustls-ring"), not(feature = "native-tls")))]
    pub(crate) fn secured(&self, place: &Place) -> Result<Option<Secured>> {
        let Place::Tcp(host, _) = place else { return Ok(None) };
        let tls = self.tls.clone().unwrap_or_default();
        Secured::new(&tls, host).map(Some).map_err(Error::config)
    }

    /// Always `None`, because only fred uses the platform's library.
    #[cfg(not(all(any(feature = "rustls", feature = "rustls-ring"), not(feature = "native-tls"))))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as above")]
    pub(crate) const fn secured(&self, _place: &Place) -> Result<Option<Secured>> {
        Ok(None)
    }
}

/// Parses `[user:password@]/path[?db=3]`. A path may contain @ and #; a ? is written %3F.
fn unix(rest: &str) -> Result<Parsed> {
    let (credentials, path) = match rest.split_once("@/") {
        Some((credentials, _)) if !rest.starts_with('/') => (Some(credentials), &rest[credentials.len() + 1..]),
        _ => (None, rest),
    };
    let (path, database) = url::without_query(path)?;
    if !path.starts_with('/') {
        return Err(Error::config("the URL of a unix socket needs an absolute path: unix:///run/redis.sock"));
    }
    let (username, password) = login(credentials)?;
    Ok(Parsed { place: Place::Unix(decoded(path)?.into()), username, password, database })
}

/// Parses `[user:password@]host[:port][/database]`.
fn tcp(rest: &str) -> Result<Parsed> {
    let (parts, database) = url::one_server(rest)?;
    let (host, port) = url::host_and_port(parts.hosts, 6379)?;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) if address.parse::<Ipv6Addr>().is_ok() => address,
        None if !host.contains(|c: char| c.is_control() || r#"[]:<>\^`{|}%""#.contains(c)) => host,
        _ => return Err(unreadable()),
    };
    let (username, password) = login(parts.login)?;
    Ok(Parsed { place: Place::Tcp(host.to_owned(), port), username, password, database })
}

/// Parses `user:password`; both are percent-encoded. An empty part counts as missing.
fn login(text: Option<&str>) -> Result<(Option<Secret>, Option<Secret>)> {
    let (username, password) = text.map_or(("", ""), |text| text.split_once(':').unwrap_or((text, "")));
    let part = |text: &str| Ok(Some(decoded(text)?).filter(|text| !text.is_empty()).map(Secret));
    Ok((part(username)?, part(password)?))
}

fn decoded(text: &str) -> Result<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8().map_err(|_| unreadable())?;
    Ok(text.into_owned())
}

fn unreadable() -> Error {
    Error::config("the URL cannot be read: redis://[user:password@]host[:port][/database], the login percent-encoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Parsed> {
        Endpoint { url: Secret(url.to_owned()), ..Endpoint::default() }.parsed()
    }

    #[test]
    fn parts_of_a_url_are_read() {
        for (url, place, username, password, database) in [
            ("redis://h", "h:6379", None, None, None),
            ("redis://h:1/3", "h:1", None, None, Some(3)),
            ("valkey://:p%40%2f@h", "h:6379", None, Some("p@/"), None),
            ("redis://u:p:q@h?db=2", "h:6379", Some("u"), Some("p:q"), Some(2)),
            ("redis://u%3A:p%25@[::1]:7", "[::1]:7", Some("u:"), Some("p%"), None),
            ("redis://[fe80::1]", "[fe80::1]:6379", None, None, None),
            ("unix:///run/r%20s.sock?db=4", "unix:/run/r s.sock", None, None, Some(4)),
            ("redis+unix://u:p@/a@b", "unix:/a@b", Some("u"), Some("p"), None),
        ] {
            let parsed = of(url).unwrap();
            let text = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.0.clone());
            assert_eq!(parsed.place.to_string(), place, "{url}");
            assert_eq!(text(&parsed.username).as_deref(), username, "{url}");
            assert_eq!(text(&parsed.password).as_deref(), password, "{url}");
            assert_eq!(parsed.database, database, "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_refused_without_repeating_secrets() {
        for url in [
            "secret",
            "secret://h",
            "redis://::1",
            "redis://[secret]:1",
            "redis://se<cret",
            "redis://u:%ff@secret",
            "redis://secret@h",
            "unix://secret",
        ] {
            let Err(error) = of(url) else { panic!("{url} was read") };
            assert!(matches!(error, Error::Config { .. }) && !error.to_string().contains("cret"), "{url}: {error}");
        }
    }
}

//! The parts that URLs of all kinds of servers have in common. Errors never repeat a part of the URL, because that part
//! may belong to a password.

use crate::error::{Error, Result};

/// The parts of a URL after `://`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// User and password, before the last `@`; percent-encoded.
    pub(crate) login: Option<&'a str>,
    pub(crate) hosts: &'a str,
    /// The text after the first `/`, without that slash.
    pub(crate) path: &'a str,
    pub(crate) database: Option<u8>,
}

const ENCODE: &str = "the URL has an @ behind a /, a ? or a #: write these characters of a password percent-encoded (/ is %2F, ? is \
                      %3F, # is %23, @ is %40), or set the password on the builder";

/// The URL without surrounding white space, which a file or variable may add. White space inside is refused, except
/// in the path of a unix socket.
pub(crate) fn trimmed(url: &str) -> Result<&str> {
    let url = url.trim();
    let checked = match url.split_once("://") {
        Some(("unix" | "redis+unix" | "valkey+unix", rest)) => rest.split_once("@/").map_or("", |(login, _)| login),
        _ => url,
    };
    if checked.contains(char::is_whitespace) {
        return Err(Error::config(
            "the URL contains white space: write a space of a password or a name percent-encoded (%20)",
        ));
    }
    Ok(url)
}

impl<'a> Parts<'a> {
    pub(crate) fn read(rest: &'a str) -> Result<Self> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        if behind.contains('@') {
            return Err(Error::config(ENCODE));
        }
        if behind.contains('#') {
            return Err(Error::config(
                "the URL has a fragment (# and what follows), which means nothing here; a # in a password is written %23",
            ));
        }
        let (path, database) = without_query(behind)?;
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        Ok(Self { login, hosts, path: path.strip_prefix('/').unwrap_or(path), database })
    }

    /// The database of the URL, named by the query or by `path`. A `path` that is not empty must be a database number.
    pub(crate) fn database(&self, path: &str) -> Result<Option<u8>> {
        let of_path = if path.is_empty() { None } else { Some(database(path)?) };
        one_of(of_path, self.database)
    }
}

/// Splits off the query and reads it. A query can name only the database.
pub(crate) fn without_query(text: &str) -> Result<(&str, Option<u8>)> {
    let Some((rest, query)) = text.split_once('?') else { return Ok((text, None)) };
    let mut named = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("db" | "database", value)) => named = one_of(named, Some(database(value)?))?,
            _ => {
                return Err(Error::config(
                    "the URL's query has a parameter that is not known here: db and database are known (?db=3); set anything \
                     else on the builder",
                ));
            }
        }
    }
    Ok((rest, named))
}

/// The database from two places in the URL. If both name a database, it must be the same.
fn one_of(one: Option<u8>, other: Option<u8>) -> Result<Option<u8>> {
    if one.is_some() && other.is_some() && one != other {
        return Err(Error::config("the URL names two databases, and they differ: name one, as /3 or as ?db=3"));
    }
    Ok(one.or(other))
}

fn database(text: &str) -> Result<u8> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        Error::config("the URL's database is not a number from 0 to 255: write it after the last / or as ?db=")
    })
}

/// Host and port of one server. `port` is the default.
pub(crate) fn host_and_port(text: &str, port: u16) -> Result<(&str, u16)> {
    let is_alone = !text.contains(':') || text.starts_with('[') && text.ends_with(']');
    let (host, port) = if is_alone {
        (text, port)
    } else {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| *port > 0 && is_number).ok_or_else(|| {
            Error::config(
                "the URL's port is not a number from 1 to 65535: write it after the host, as in redis://host:6379",
            )
        })?;
        (host, port)
    };
    if host.is_empty() {
        return Err(Error::config("the URL names no host: redis://[user:password@]host[:port][/database]"));
    }
    Ok((host, port))
}

/// Reads the part after `://` of a single server's URL, and the database.
pub(crate) fn one_server(rest: &str) -> Result<(Parts<'_>, Option<u8>)> {
    let parts = Parts::read(rest)?;
    if parts.hosts.contains(',') {
        return Err(Error::config(
            "the URL names several servers: use redis-cluster:// for a cluster, redis-sentinel:// for sentinels, and \
             redis-replicated:// for a primary and its replicas (rediss-.. with TLS)",
        ));
    }
    host_and_port(parts.hosts, 6379)?;
    let database = parts.database(parts.path)?;
    Ok((parts, database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_is_read_from_path_or_query() {
        for (rest, hosts, database) in [
            ("h", "h", None),
            ("h/", "h", None),
            ("h:1/3", "h:1", Some(3)),
            ("h:1?db=3", "h:1", Some(3)),
            ("h:1/?database=3", "h:1", Some(3)),
            ("u:p%23@h/3?db=3", "h", Some(3)),
            (":p@ss@[::1]:1?", "[::1]:1", None),
        ] {
            let (parts, named) = one_server(rest).unwrap();
            assert_eq!((parts.hosts, named), (hosts, database), "{rest}");
        }
    }

    #[test]
    fn white_space_around_url_is_trimmed_and_in_login_or_host_is_refused() {
        for (url, expected) in [
            ("redis://h\n", "redis://h"),
            (" \tredis://u:p%20@h:1/0\r\n", "redis://u:p%20@h:1/0"),
            ("unix:///run/my redis.sock\n", "unix:///run/my redis.sock"),
        ] {
            assert_eq!(trimmed(url).unwrap(), expected);
        }
        for url in [
            "redis://u:secret word@h",
            "redis://h\n:1",
            "redis-sentinel://a, b/set",
            "redis ://h",
            "redis://secret\t/0",
            "unix://:secret word@/run/redis.sock",
            "unix://:a/secret b@/run/redis.sock",
        ] {
            let error = trimmed(url).unwrap_err().to_string();
            assert!(error.contains("white space") && !error.contains("secret"), "{url:?}: {error}");
        }
    }

    /// Each mistake has its own message, which never repeats the URL.
    #[test]
    fn url_mistakes_have_own_messages_without_secrets() {
        for (rest, hint) in [
            ("secret?db=x", "database is not a number"),
            ("h/secret", "database is not a number"),
            ("h/256", "database is not a number"),
            ("h/+1", "database is not a number"),
            ("h/1?db=2", "two databases"),
            ("h?db=1&database=2", "two databases"),
            ("h?secret=2", "db and database are known"),
            ("h?db", "db and database are known"),
            ("h#secret", "fragment"),
            ("secret1,secret2:6379", "redis-cluster://"),
            ("u:secret@h1,h2", "redis-cluster://"),
            ("u:secret@h:99999", "not a number from 1 to 65535"),
            ("h:0", "not a number from 1 to 65535"),
            ("h:", "not a number from 1 to 65535"),
            ("u:secret", "not a number from 1 to 65535"),
            ("", "no host"),
            ("/0", "no host"),
            (":6379", "no host"),
            ("u:secret@", "no host"),
            ("u:se#cret@h", "percent-encoded"),
            ("u:se/cret@h:1/0", "percent-encoded"),
            ("u:se?cret@h:1", "percent-encoded"),
        ] {
            let error = one_server(rest).unwrap_err();
            assert!(matches!(&error, Error::Config { what } if what.contains(hint)), "{rest}: {error}");
            assert!(!error.to_string().contains("secret") && !error.to_string().contains("cret"), "{error}");
        }
    }
}

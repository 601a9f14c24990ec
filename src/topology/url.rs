//! The URLs of several servers.

use super::address::Address;
use crate::error::{Error, Result};

/// What stands in the URL of several servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServersUrl {
    pub(crate) kind: Kind,
    /// The scheme of one server's URL.
    pub(crate) scheme: &'static str,
    /// The URL of one server with the same login and database.
    pub(crate) login: String,
    pub(crate) seeds: Vec<Address>,
}

/// How several servers belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each has some of the slots.
    Cluster,
    /// The servers named are sentinels, which look after the primary of this name.
    Sentinel { name: String },
    /// One of them is the primary.
    Replicated,
}

impl ServersUrl {
    /// Reads `redis-cluster://[user:password@]host[:port],host[:port],..`, `redis-sentinel://..host[:port],../name[/database]` and
    /// `redis-replicated://..host[:port],..[/database]`; None for a URL of another kind. Errors never repeat it.
    pub(crate) fn read(url: &str) -> Result<Option<Self>> {
        let Some((scheme, rest)) = url.split_once("://") else { return Ok(None) };
        let Some((server, kind)) = scheme.split_once('-') else { return Ok(None) };
        let scheme = match server {
            "redis" | "valkey" => "redis",
            "rediss" | "valkeys" => "rediss",
            _ => return Ok(None),
        };
        let (login, hosts) = rest.rsplit_once('@').map_or(("", rest), |(login, hosts)| (login, hosts));
        let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
        let (kind, database, port) = match kind {
            "cluster" if matches!(path, "" | "0") => (Kind::Cluster, "", 6379),
            "cluster" => {
                return Err(Error::config(
                    "a cluster has database 0 alone: the URL of one ends behind the last server",
                ));
            }
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                (Kind::Sentinel { name: master_name(name)? }, database, 26379)
            }
            "replicated" => (Kind::Replicated, path, 6379),
            _ => return Ok(None),
        };
        let read = |host: &str| {
            let is_alone = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
            let (host, port) = if is_alone { (host, port) } else { Address::split(host)? };
            Address::new(host, port)
        };
        let Some(seeds) = hosts.split(',').map(read).collect::<Option<Vec<Address>>>() else {
            return Err(Error::config(
                "the URL of several servers names them behind the login, each by host:port, with commas between them",
            ));
        };
        if database.parse::<u8>().is_err() && !database.is_empty() {
            return Err(Error::config("what is behind the last / of the URL is no database: a number up to 255"));
        }
        let at = if login.is_empty() { String::new() } else { format!("{login}@") };
        let slash = if database.is_empty() { "" } else { "/" };
        let login = format!("{scheme}://{at}{}{slash}{database}", seeds[0]);
        Ok(Some(Self { kind, scheme, login, seeds }))
    }
}

/// The name by which sentinels know a primary.
fn master_name(text: &str) -> Result<String> {
    let name = percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(Error::config(
            "the URL of sentinels names the primary that they look after behind the last of them: \
             redis-sentinel://host:port,host:port/master-name",
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Option<(Kind, String, usize)>> {
        ServersUrl::read(url).map(|url| url.map(|url| (url.kind, url.login, url.seeds.len())))
    }

    #[test]
    fn urls_of_several_servers_and_of_others() {
        let sentinel = |name: &str| Kind::Sentinel { name: name.to_owned() };
        for (url, kind, login, seeds) in [
            ("redis-cluster://a", Kind::Cluster, "redis://a:6379", 1),
            ("redis-cluster://a:1,b:2,c", Kind::Cluster, "redis://a:1", 3),
            ("valkey-cluster://u:p%40@a:1,b:2/0", Kind::Cluster, "redis://u:p%40@a:1", 2),
            ("rediss-cluster://:p@[::1]:7000,[::1]:7001", Kind::Cluster, "rediss://:p@[::1]:7000", 2),
            ("redis-sentinel://a,b:1,c/my.set", sentinel("my.set"), "redis://a:26379", 3),
            ("valkeys-sentinel://u:p@a/my%20set/3", sentinel("my set"), "rediss://u:p@a:26379/3", 1),
            ("redis-replicated://a:1,b", Kind::Replicated, "redis://a:1", 2),
            ("rediss-replicated://:p@a/7", Kind::Replicated, "rediss://:p@a:6379/7", 1),
        ] {
            assert_eq!(read(url).unwrap(), Some((kind, login.to_owned(), seeds)), "{url}");
        }
        for other in
            ["redis://a:1", "unix:///x", "redis+unix:///x", "nothing", "redis-other://a/b", "other-cluster://a"]
        {
            assert_eq!(read(other).unwrap(), None, "{other}");
        }
        for odd in [
            "redis-cluster://",
            "redis-cluster://a,,b",
            "redis-cluster://a:1/2",
            "redis-cluster://a:x",
            "redis-cluster://a:1,secret word",
            "redis-sentinel://a",
            "redis-sentinel://a/",
            "redis-sentinel://a/%00secret",
            "redis-sentinel://a/set/secret",
            "redis-sentinel://a/set/256",
            "redis-sentinel:///set",
            "redis-replicated://a/secret",
        ] {
            let error = read(odd).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{odd}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

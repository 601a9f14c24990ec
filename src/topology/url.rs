//! URLs that name several servers.

use super::address::Address;
use crate::config::url::{Parts, host_and_port};
use crate::error::{Error, Result};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServersUrl {
    pub(crate) kind: Kind,
    /// Scheme for the URL of each single server: `redis` or `rediss`.
    pub(crate) scheme: &'static str,
    /// The URL of the first server, with the same login and database.
    pub(crate) login: String,
    pub(crate) seeds: Vec<Address>,
}

/// How the servers of a URL belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The servers share the slots of a cluster.
    Cluster,
    /// The servers are sentinels, which know the primary by this name.
    Sentinel { name: String },
    /// The servers are a primary and its replicas.
    Replicated,
}

impl ServersUrl {
    /// Parses these forms, and returns `None` for a URL of another kind. Errors never contain the URL.
    ///
    /// - `redis-cluster://[user:password@]host[:port],host[:port],..`
    /// - `redis-sentinel://..host[:port],../name[/database]`
    /// - `redis-replicated://..host[:port],..[/database]`
    pub(crate) fn read(url: &str) -> Result<Option<Self>> {
        let Some((scheme, rest)) = url.split_once("://") else { return Ok(None) };
        let Some((server, kind)) = scheme.split_once('-') else { return Ok(None) };
        let scheme = match server {
            "redis" | "valkey" => "redis",
            "rediss" | "valkeys" => "rediss",
            _ => return Ok(None),
        };
        if !matches!(kind, "cluster" | "sentinel" | "replicated") {
            return Ok(None);
        }
        let parts = Parts::read(rest)?;
        let (path, port) = (parts.path, if kind == "sentinel" { 26379 } else { 6379 });
        let (kind, database) = match kind {
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                (Kind::Sentinel { name: master_name(name)? }, parts.database(database)?)
            }
            "cluster" => (Kind::Cluster, parts.database(path)?),
            _ => (Kind::Replicated, parts.database(path)?),
        };
        if kind == Kind::Cluster && database.is_some_and(|database| database != 0) {
            return Err(Error::config("a cluster has only database 0: its URL ends after the last server"));
        }
        let read = |host: &str| {
            let (host, port) = host_and_port(host, port)?;
            Address::new(host, port).ok_or_else(|| {
                Error::config(
                    "the URL of several servers names them behind the login, each by host:port, with commas between them",
                )
            })
        };
        let seeds = parts.hosts.split(',').map(read).collect::<Result<Vec<Address>>>()?;
        let at = parts.login.map(|login| format!("{login}@")).unwrap_or_default();
        let slash = database.filter(|_| kind != Kind::Cluster).map(|database| format!("/{database}"));
        let login = format!("{scheme}://{at}{}{}", seeds[0], slash.unwrap_or_default());
        Ok(Some(Self { kind, scheme, login, seeds }))
    }
}

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
    fn multi_server_urls_are_parsed_and_malformed_ones_refused() {
        let sentinel = |name: &str| Kind::Sentinel { name: name.to_owned() };
        for (url, kind, login, seeds) in [
            ("redis-cluster://a", Kind::Cluster, "redis://a:6379", 1),
            ("redis-cluster://a:1,b:2,c", Kind::Cluster, "redis://a:1", 3),
            ("valkey-cluster://u:p%40@a:1,b:2/0", Kind::Cluster, "redis://u:p%40@a:1", 2),
            ("rediss-cluster://:p@[::1]:7000,[::1]:7001", Kind::Cluster, "rediss://:p@[::1]:7000", 2),
            ("redis-sentinel://a,b:1,c/my.set", sentinel("my.set"), "redis://a:26379", 3),
            ("valkeys-sentinel://u:p@a/my%20set/3", sentinel("my set"), "rediss://u:p@a:26379/3", 1),
            ("redis-replicated://a:1,b", Kind::Replicated, "redis://a:1", 2),
            ("redis-cluster://a?db=0", Kind::Cluster, "redis://a:6379", 1),
            ("redis-sentinel://a/set?db=3", sentinel("set"), "redis://a:26379/3", 1),
            ("redis-replicated://a,b?database=3", Kind::Replicated, "redis://a:6379/3", 2),
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
            "redis-replicated://a?secret=1",
            "redis-cluster://a?db=1",
            "redis-cluster://u:se/secret@a",
            "redis-cluster://a#secret",
        ] {
            let error = read(odd).unwrap_err();
            assert!(matches!(error, Error::Config { .. }), "{odd}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}

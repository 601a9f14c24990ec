//! Features of the servers that locks use.

use std::cmp::Ordering;

/// Forks of Redis. The line `<fork>_version` of `INFO` names a fork's version; without such a line the server is
/// Redis.
const FORKS: [&str; 5] = ["valkey", "keydb", "dragonfly", "kvrocks", "garnet"];

/// Features that the servers of a client support, and permit for its login. From
/// [`Client::capabilities`](crate::Client::capabilities).
///
/// A feature counts as supported only if all servers support it. `None` means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Kind of server: `redis`, `valkey` and so on.
    pub server: Option<String>,
    /// The server's version; with several servers, the lowest.
    pub version: Option<String>,
    /// Number of servers that store names: one, or the primaries of a cluster.
    pub servers: usize,
    /// True if the client routes names by slot: it was connected by `redis-cluster://`.
    pub cluster: bool,
    /// Whether the server belongs to a cluster. If true while [`cluster`](Self::cluster) is false, the server refuses
    /// names whose slots are on other servers.
    pub in_cluster: Option<bool>,
    /// Whether the server supports `CLUSTER NODES`, which a cluster client needs.
    pub cluster_nodes: Option<bool>,
    /// Whether the server supports sharded channels. A cluster client uses them, unless
    /// [`Options::sharded`](crate::Options::sharded) says otherwise.
    pub sharded_channels: Option<bool>,
    /// Whether messages can be sent and received, on the kind of channels that the client uses. Without messages,
    /// waiters poll every [`Options::poll_cap`](crate::Options::poll_cap).
    pub messages: Option<bool>,
    /// Whether scripts run (`EVAL`). Without scripts there are no locks.
    pub scripts: Option<bool>,
    /// Whether the server runs scripts by their hash (`EVALSHA`). If not, turn
    /// [`Options::script_cache`](crate::Options::script_cache) off.
    pub script_cache: Option<bool>,
    /// Whether a script may access undeclared keys in several slots. The client learns this from the first commands
    /// that carry several calls ([`guide::clusters`](crate::guide::clusters)). `None` until then, and always without a
    /// cluster.
    pub undeclared_keys: Option<bool>,
}

impl Capabilities {
    /// Returns one sentence for each feature that is known to be missing, with the consequence. Empty if nothing is
    /// missing.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let no = |capability: Option<bool>| capability == Some(false);
        let all = [
            (no(self.scripts), "scripts (EVAL): there are no locks without"),
            (no(self.script_cache), "scripts by their hash (EVALSHA): set Options::script_cache to false"),
            (no(self.messages), "messages: waiters poll, every Options::poll_cap"),
            (
                self.in_cluster == Some(true) && !self.cluster,
                "the other servers of its cluster: connect by redis-cluster://",
            ),
        ];
        all.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, what)| what).collect()
    }

    /// The features that both of two servers support.
    pub(crate) fn and(self, other: Self) -> Self {
        let both = |one: Option<bool>, other: Option<bool>| match (one, other) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
        let is_older = match (&self.version, &other.version) {
            (Some(one), Some(other)) => order(one, other) != Ordering::Greater,
            (one, _) => one.is_some(),
        };
        let (server, version) = if is_older { (self.server, self.version) } else { (other.server, other.version) };
        Self {
            server,
            version,
            servers: self.servers + other.servers,
            cluster: self.cluster && other.cluster,
            in_cluster: both(self.in_cluster, other.in_cluster),
            cluster_nodes: both(self.cluster_nodes, other.cluster_nodes),
            sharded_channels: both(self.sharded_channels, other.sharded_channels),
            messages: both(self.messages, other.messages),
            scripts: both(self.scripts, other.scripts),
            script_cache: both(self.script_cache, other.script_cache),
            undeclared_keys: both(self.undeclared_keys, other.undeclared_keys),
        }
    }

    /// Reads the reply to `INFO server`.
    pub(crate) fn read_info(&mut self, info: &str) {
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned())
        };
        let fork = FORKS.into_iter().find_map(|fork| Some((fork, field(&format!("{fork}_version"))?)));
        if let Some((server, version)) = fork.or_else(|| Some(("redis", field("redis_version")?))) {
            (self.server, self.version) = (Some(server.to_owned()), Some(version));
        }
        self.in_cluster = field("redis_mode").or_else(|| field("server_mode")).map(|mode| mode == "cluster");
    }
}

/// Compares two versions number by number.
fn order(one: &str, other: &str) -> Ordering {
    let numbers = |version: &str| -> Vec<u32> {
        version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    numbers(one).cmp(&numbers(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(info: &str) -> Capabilities {
        let mut found = Capabilities { servers: 1, ..Capabilities::default() };
        found.read_info(info);
        found
    }

    #[test]
    fn server_name_version_and_mode_are_read_from_info() {
        for (info, server, version, in_cluster) in [
            (
                "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n",
                Some("redis"),
                Some("7.0.15"),
                Some(false),
            ),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\nserver_mode:cluster\r\n",
                Some("valkey"),
                Some("9.0.1"),
                Some(true),
            ),
            ("redis_version:7.4.0\ndragonfly_version:df-v1.24.0\n", Some("dragonfly"), Some("df-v1.24.0"), None),
            ("nothing", None, None, None),
        ] {
            let found = of(info);
            assert_eq!((found.server.as_deref(), found.version.as_deref()), (server, version), "{info}");
            assert_eq!(found.in_cluster, in_cluster, "{info}");
        }
    }

    #[test]
    fn combined_capabilities_have_lowest_version_and_shared_features() {
        let new = Capabilities { messages: Some(true), scripts: Some(true), ..of("valkey_version:9.10.0") };
        let old = Capabilities { messages: Some(false), ..of("valkey_version:9.9.1") };
        for found in [new.clone().and(old.clone()), old.and(new)] {
            assert_eq!((found.version.as_deref(), found.servers), (Some("9.9.1"), 2));
            assert_eq!((found.messages, found.scripts, found.undeclared_keys), (Some(false), None, None));
            assert_eq!(found.missing().len(), 1);
        }
    }
}

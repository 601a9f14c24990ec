//! Facts about the servers: plain data, read once. `checks` judges them without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use distlock::{Capabilities, ServerRole, TopologyKind};

use super::needs::{Kind, Sample};

/// Forks of Redis. `<fork>_version` in `INFO` names a fork's own version.
const FORKS: [&str; 5] = ["valkey", "keydb", "dragonfly", "kvrocks", "garnet"];

/// The user's choices.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The kinds of lock that must work. For other kinds, a missing right is only a note.
    pub(super) kinds: Vec<Kind>,
    /// Longest acceptable round trip of 99 % of the PINGs.
    pub(super) latency: Duration,
    /// The prefix of all lock names.
    pub(super) prefix: String,
}

#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) wanted: Wanted,
    pub(super) topology: TopologyKind,
    /// The servers that answered, primaries first.
    pub(super) servers: Vec<Server>,
    pub(super) unreachable: Vec<Unreachable>,
    pub(super) sentinels: Vec<Sentinel>,
    /// `None` if the query failed, for example while a server loads its data.
    pub(super) capabilities: Option<Capabilities>,
    pub(super) not_checked: Vec<NotChecked>,
}

#[derive(Clone, Debug)]
pub(super) struct Unreachable {
    pub(super) role: ServerRole,
    pub(super) address: String,
    pub(super) why: String,
}

/// Something that a server does not let this login read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotChecked {
    pub(super) server: String,
    pub(super) what: &'static str,
    pub(super) why: String,
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) address: String,
    /// The role that the client assumes. The role that the server reports is in `info`.
    pub(super) role: ServerRole,
    /// The user of this login, from `ACL WHOAMI`.
    pub(super) user: Option<String>,
    /// The fields of `INFO`.
    pub(super) info: Fields,
    /// The settings that `CONFIG GET` returned. Empty if `CONFIG` is refused.
    pub(super) settings: Fields,
    /// The fields of `CLUSTER INFO`. Empty outside of a cluster.
    pub(super) cluster: Fields,
    /// The server's reason for refusing `WAIT`.
    pub(super) wait_refused: Option<String>,
    pub(super) clock: Option<Clock>,
    pub(super) latency: Option<Latency>,
    pub(super) rights: Option<Rights>,
}

/// A server's clock, compared with the clock of this machine. In microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Positive if the server's clock is ahead.
    pub(super) offset: i64,
    /// Largest error of `offset`: half the round trip.
    pub(super) error: i64,
}

/// Round trips of some PINGs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latency {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// Rights that the server refused to this login.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    pub(super) commands: BTreeMap<&'static str, Refusal>,
    pub(super) keys: BTreeSet<Sample>,
    pub(super) channels: BTreeSet<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The access list does not allow it.
    Denied,
    /// The server has no such command: it is too old, or the command was renamed or disabled.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentinel {
    pub(super) address: String,
    /// The fields of `SENTINEL MASTER`.
    pub(super) fields: Fields,
    /// The reason why a failover is impossible, from `SENTINEL CKQUORUM`.
    pub(super) no_quorum: Option<String>,
}

/// Texts by name: fields of `INFO`, or settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Refusal {
    /// The refusal that an error of a server means. `None` if the error says nothing about rights.
    pub(super) fn of(error: &str) -> Option<Self> {
        let has = |text: &str| error.contains(text);
        if has("nknown Redis command") || has("nknown command") {
            return Some(Self::Unknown);
        }
        // Redis 6 and some versions of Redis 7 report a refused command of a script without a code.
        let is_denied = has("NOPERM") || has("ACL failure") || has("user executing the script can't");
        is_denied.then_some(Self::Denied)
    }
}

impl Fields {
    /// Reads lines like `name:value`.
    pub(super) fn of_lines(text: &str) -> Self {
        text.lines().filter_map(|line| line.trim_end().split_once(':')).collect()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.text(name) == Some(value)
    }

    pub(super) fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Values whose names are `prefix` and a number, such as `slave0`.
    pub(super) fn numbered<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let is_numbered = move |name: &str| {
            let number = name.strip_prefix(prefix).unwrap_or_default();
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        };
        self.0.iter().filter(move |(name, _)| is_numbered(name.as_str())).map(|(_, value)| value.as_str())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl Server {
    pub(super) fn new(address: &str, role: ServerRole) -> Self {
        Self {
            address: address.to_owned(),
            role,
            user: None,
            info: Fields::default(),
            settings: Fields::default(),
            cluster: Fields::default(),
            wait_refused: None,
            clock: None,
            latency: None,
            rights: None,
        }
    }

    /// The kind of server and its version.
    pub(super) fn version(&self) -> Option<(&'static str, &str)> {
        let fork = FORKS.into_iter().find_map(|fork| Some((fork, self.info.text(&format!("{fork}_version"))?)));
        fork.or_else(|| Some(("redis", self.info.text("redis_version")?)))
    }

    pub(super) fn is_primary(&self) -> bool {
        self.role == ServerRole::Primary
    }
}

impl Facts {
    pub(super) fn new(topology: TopologyKind, wanted: Wanted) -> Self {
        Self {
            wanted,
            topology,
            servers: Vec::new(),
            unreachable: Vec::new(),
            sentinels: Vec::new(),
            capabilities: None,
            not_checked: Vec::new(),
        }
    }

    pub(super) fn primaries(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| server.is_primary())
    }

    /// True for a cluster with sharded channels.
    pub(super) fn is_sharded(&self) -> bool {
        self.capabilities.as_ref().is_some_and(|found| found.cluster && found.sharded_channels == Some(true))
    }

    pub(super) fn is_wanted(&self, kind: Kind) -> bool {
        self.wanted.kinds.contains(&kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_lines_of_info() {
        let fields = Fields::of_lines("# Replication\r\nrole:master\r\nslave0:ip=::1,port=1\r\nslave_x:2\r\nn:3\r\n");
        assert_eq!(fields.text("role"), Some("master"));
        assert_eq!(fields.number("n"), Some(3));
        assert_eq!(fields.numbered("slave").collect::<Vec<_>>(), ["ip=::1,port=1"]);
    }

    #[test]
    fn version_of_a_fork_comes_before_the_version_of_redis_that_it_imitates() {
        let mut server = Server::new("a:1", ServerRole::Primary);
        server.info = Fields::of_lines("redis_version:7.2.4\nvalkey_version:9.0.1");
        assert_eq!(server.version(), Some(("valkey", "9.0.1")));
        server.info = Fields::of_lines("redis_version:7.2.4");
        assert_eq!(server.version(), Some(("redis", "7.2.4")));
    }

    #[test]
    fn only_errors_about_rights_and_missing_commands_are_refusals() {
        for (error, refusal) in [
            ("NOPERM User x has no permissions to run the 'get' command", Some(Refusal::Denied)),
            ("ERR ACL failure in script: User x has no permissions to run the 'get' command", Some(Refusal::Denied)),
            ("The user executing the script can't run this command or subcommand", Some(Refusal::Denied)),
            ("ERR Unknown Redis command called from script", Some(Refusal::Unknown)),
            ("@user_script: 7: Unknown Redis command called from Lua script", Some(Refusal::Unknown)),
            ("ERR unknown command 'CONFIG', with args beginning with: 'GET'", Some(Refusal::Unknown)),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", None),
            ("READONLY You can't write against a read only replica.", None),
            ("MOVED 1 127.0.0.1:7000", None),
        ] {
            assert_eq!(Refusal::of(error), refusal, "{error}");
        }
    }
}

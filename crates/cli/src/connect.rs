//! How the command reaches the servers: the options, a client of locks, and connections for raw commands.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use distlock::{Builder, Client, ServerRole, Tls, TopologyKind};
use fred::interfaces::ClientLike as _;

use crate::exit::Failure;

mod raw;

pub use raw::Raw;

/// The password's environment variable. It is no option, because `ps` shows options to every user.
const PASSWORD: &str = "DISTLOCK_PASSWORD";
/// Time limit of closing a connection.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// How to reach the servers.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Connection")]
pub struct Target {
    /// The server: redis://[user:password@]host[:port][/database], rediss:// for TLS, unix:///path; redis-cluster://,
    /// redis-sentinel:// and redis-replicated:// name several servers
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DISTLOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    url: String,
    /// User name, instead of the one in the URL
    #[arg(long, global = true, value_name = "NAME", env = "DISTLOCK_USERNAME", hide_env_values = true)]
    username: Option<String>,
    /// File with the password. Without it, the password is read from the environment (DISTLOCK_PASSWORD) or the URL
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// PEM file of the authorities that TLS trusts, instead of the platform's
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Prefix of every name, as Builder::name_prefix and Redisson's NameMapper add it
    #[arg(long, global = true, value_name = "TEXT", env = "DISTLOCK_NAME_PREFIX", hide_env_values = true)]
    prefix: Option<String>,
}

/// Leaves out the URL, which may contain a password.
impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Target {
    /// Returns a builder for these servers, with their login.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if the password's file cannot be read.
    pub fn builder(&self) -> Result<Builder, Failure> {
        let mut builder = Client::builder(&self.url).name_prefix(self.prefix());
        if let Some(username) = &self.username {
            builder = builder.username(username);
        }
        if let Some(password) = self.password()? {
            builder = builder.password(password);
        }
        if self.ca.is_some() {
            builder = builder.tls(self.tls());
        }
        Ok(builder)
    }

    /// Connects a client of locks.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`], [`Failure::Unreachable`] or [`Failure::Server`], as [`Client::connect`] fails.
    pub async fn client(&self) -> Result<Client, Failure> {
        Ok(self.builder()?.connect().await?)
    }

    /// Connects a client of locks, and a raw connection to every primary.
    ///
    /// # Errors
    ///
    /// As [`client`](Self::client).
    pub async fn servers(&self) -> Result<Servers, Failure> {
        // The probe of rights at connect would fail at servers that refuse writes.
        let client = self.builder()?.configure(|options| options.preflight = false).connect().await?;
        let info = client.topology();
        let mut servers =
            Servers { client, kind: info.kind, login: self.login()?, primaries: Vec::new(), slots: Vec::new() };
        for server in info.servers.iter().filter(|server| server.role == ServerRole::Primary) {
            let raw = servers.open(&server.address).await?;
            servers.primaries.push(raw);
        }
        if servers.kind == TopologyKind::Cluster {
            for (index, primary) in servers.primaries.iter().enumerate() {
                let nodes = primary.call(["CLUSTER", "NODES"]).await?.into_string().unwrap_or_default();
                servers.slots.extend(own_slots(&nodes).into_iter().map(|slots| (slots, index)));
            }
        }
        Ok(servers)
    }

    /// Returns the prefix of every name; empty without one.
    pub fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or_default()
    }

    /// Returns the name under which the sentinels of the URL know the primary. `None` for a URL of another kind.
    pub fn primary_name(&self) -> Option<String> {
        let (scheme, rest) = self.url.split_once("://")?;
        let (_, path) = rest.split_once('/').filter(|_| scheme.ends_with("-sentinel"))?;
        decoded(path.split(['/', '?']).next()?.trim_end())
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.password_file else {
            return Ok(std::env::var(PASSWORD).ok().filter(|password| !password.is_empty()));
        };
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("--password-file {}: {error}", file.display())))?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    fn tls(&self) -> Tls {
        self.ca.as_ref().map_or_else(Tls::new, |ca| Tls::new().ca_file(ca))
    }

    fn login(&self) -> Result<Login, Failure> {
        let of_url = Login::of(&self.url);
        Ok(Login {
            username: self.username.clone().or(of_url.username),
            password: self.password()?.or(of_url.password),
            tls: of_url.tls.map(|_| self.tls()),
            ..of_url
        })
    }
}

/// Login and TLS of raw connections.
#[derive(Default)]
struct Login {
    username: Option<String>,
    password: Option<String>,
    database: Option<u8>,
    /// `None` for connections without TLS.
    tls: Option<Tls>,
}

impl Login {
    /// Reads the parts of a URL. A client has connected with the URL before, so the URL is well formed.
    fn of(url: &str) -> Self {
        let (scheme, rest) = url.trim().split_once("://").unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_socket = scheme.ends_with("unix");
        let (user, path) = if is_socket {
            (rest.split_once("@/").filter(|_| !rest.starts_with('/')).map(|(user, _)| user), "")
        } else {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            (authority.rsplit_once('@').map(|(user, _)| user), path)
        };
        let (username, password) = user.map_or(("", ""), |user| user.split_once(':').unwrap_or((user, "")));
        // The path of sentinels begins with the name of the primary.
        let of_path = if scheme.ends_with("-sentinel") { path.split_once('/').unwrap_or_default().1 } else { path };
        let of_query =
            query.split('&').find_map(|pair| pair.strip_prefix("db=").or_else(|| pair.strip_prefix("database=")));
        let is_tls = scheme.starts_with("rediss") || scheme.starts_with("valkeys");
        Self {
            username: decoded(username),
            password: decoded(password),
            database: of_query.unwrap_or(of_path).parse().ok(),
            tls: is_tls.then(Tls::new),
        }
    }
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    Some(text).filter(|text| !text.is_empty())
}

/// A client of locks, and raw connections to its servers.
pub struct Servers {
    client: Client,
    kind: TopologyKind,
    login: Login,
    primaries: Vec<Raw>,
    /// Clusters: ranges of slots, each with the index of its primary.
    slots: Vec<(RangeInclusive<u16>, usize)>,
}

impl Servers {
    /// Returns the client of locks.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns how the servers belong together.
    pub const fn kind(&self) -> TopologyKind {
        self.kind
    }

    /// Returns the primaries: one, or one for each primary of a cluster.
    pub fn primaries(&self) -> &[Raw] {
        &self.primaries
    }

    /// Connects to every known replica.
    pub async fn replicas(&self) -> Vec<Result<Raw, Failure>> {
        let mut replicas = Vec::new();
        for server in self.client.topology().servers.iter().filter(|server| server.role == ServerRole::Replica) {
            replicas.push(self.open(&server.address).await);
        }
        replicas
    }

    /// Connects to every known sentinel, without a login.
    pub async fn sentinels(&self) -> Vec<Result<Raw, Failure>> {
        let login = Login { tls: self.login.tls.clone(), ..Login::default() };
        let mut sentinels = Vec::new();
        for server in self.client.topology().servers.iter().filter(|server| server.role == ServerRole::Sentinel) {
            sentinels.push(Raw::open(&server.address, &login).await);
        }
        sentinels
    }

    /// Returns the primary that has the slot of this key.
    ///
    /// # Errors
    ///
    /// [`Failure::Server`] if no primary of the cluster has the slot.
    pub fn of(&self, key: &[u8]) -> Result<&Raw, Failure> {
        let index = if self.kind == TopologyKind::Cluster {
            let slot = fred::util::redis_keyslot(key);
            let found = self.slots.iter().find(|(slots, _)| slots.contains(&slot));
            found.map(|(_, index)| *index).ok_or_else(|| {
                Failure::Server(format!("CLUSTERDOWN no primary has slot {slot}: wait until every slot is served"))
            })?
        } else {
            0
        };
        self.primaries.get(index).ok_or_else(|| Failure::Unreachable("no primary is known".to_owned()))
    }

    /// Groups items by the primary that has the slot of their key.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub fn grouped<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> &[u8],
    ) -> Result<Vec<(&Raw, Vec<T>)>, Failure> {
        let mut groups: Vec<(&Raw, Vec<T>)> = Vec::new();
        for item in items {
            let raw = self.of(key(&item))?;
            match groups.iter_mut().find(|(other, _)| other.address() == raw.address()) {
                Some((_, group)) => group.push(item),
                None => groups.push((raw, vec![item])),
            }
        }
        Ok(groups)
    }

    /// Closes all connections.
    pub async fn close(self) {
        for primary in &self.primaries {
            // `quit` may wait for a server that does not answer.
            let _ = tokio::time::timeout(CLOSE_WITHIN, primary.client.quit()).await;
        }
        let _ = self.client.shutdown(Duration::ZERO).await;
    }

    async fn open(&self, address: &str) -> Result<Raw, Failure> {
        let address = match self.kind {
            // The database follows the address of a single server.
            TopologyKind::Single => address.rsplit_once('/').map_or(address, |(address, _)| address),
            _ => address,
        };
        Raw::open(address, &self.login).await
    }
}

/// Returns the slots of the server that wrote this reply of `CLUSTER NODES`.
fn own_slots(nodes: &str) -> Vec<RangeInclusive<u16>> {
    let own = nodes.lines().find(|line| line.split(' ').nth(2).is_some_and(|flags| flags.contains("myself")));
    let words = own.unwrap_or_default().split(' ').skip(8);
    // A slot that is being moved is in brackets. Its server lists it in a range, too, until the move ends.
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
    };
    words.filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_and_database_are_read_from_every_kind_of_url() {
        for (url, username, password, database, is_tls) in [
            ("redis://h", None, None, None, false),
            ("redis://u:p%40@h:1/3", Some("u"), Some("p@"), Some(3), false),
            ("rediss://:p@[::1]:7?db=2", None, Some("p"), Some(2), true),
            ("redis-cluster://:p@a:1,b:2", None, Some("p"), None, false),
            ("rediss-sentinel://u:p@a,b/5/3", Some("u"), Some("p"), Some(3), true),
            ("redis-sentinel://a/5", None, None, None, false),
            ("redis-replicated://a,b/4", None, None, Some(4), false),
            ("unix://u:p@/run/redis.sock?db=1", Some("u"), Some("p"), Some(1), false),
            ("unix:///run/a@/redis.sock", None, None, None, false),
        ] {
            let login = Login::of(url);
            assert_eq!((login.username.as_deref(), login.password.as_deref()), (username, password), "{url}");
            assert_eq!((login.database, login.tls.is_some()), (database, is_tls), "{url}");
        }
    }

    #[test]
    fn own_slots_leave_out_other_servers_and_moving_slots() {
        let nodes = "a 1:1@2 master - 0 0 1 connected 0-99\n\
                     b 1:3@4 myself,master - 0 0 2 connected 100-200 300 [300->-a]\n\
                     c 1:5@6 slave b 0 0 2 connected\n";
        assert_eq!(own_slots(nodes), [100..=200, 300..=300]);
    }
}

//! Reads single options.

use std::collections::HashMap;
use std::time::Duration;

use super::address::{self, Place, Server};
use super::tree::{Kind, Node};
use super::value;
use crate::config::{Acks, Options, Secret, Sharded};

/// Why an option is not used.
pub(super) enum Why {
    /// The option is wrong, or leaving it out would change what a lock means: the whole file is refused.
    Wrong(String),
    /// Like `Wrong`, with a place inside the option's value.
    WrongAt(usize, String),
    /// The option cannot be used. A lenient reader leaves it out.
    Cannot(String),
    /// Like `Cannot`, but matters only over TLS.
    CannotOverTls(String),
}

impl From<&str> for Why {
    fn from(what: &str) -> Self {
        Self::Wrong(what.to_owned())
    }
}

#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) username: Option<Secret>,
    pub(super) password: Option<Secret>,
}

/// The options read so far.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) options: Options,
    pub(super) scan_interval: Option<Duration>,
    /// The login of the section being read: the root's or the servers'.
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) servers: Vec<Server>,
    pub(super) master_name: Option<String>,
    pub(super) database: Option<u8>,
    pub(super) address_map: HashMap<String, String>,
    /// Place of the command timeout, which is checked against the watchdog at the end.
    pub(super) timeout_at: Option<usize>,
    /// True if the file has a name mapper, and the caller gave its prefix.
    pub(super) is_mapped: bool,
    /// The name mapper's prefix, as given by the caller.
    pub(super) told_prefix: Option<String>,
}

type Taking = Result<(), Why>;

/// Returns `value` if it is within the bounds.
fn within(value: Duration, least: Duration, most: Duration) -> Result<Duration, String> {
    if value < least || value > most {
        return Err(format!("{value:?} cannot be: {least:?} to {most:?} are possible here"));
    }
    Ok(value)
}

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A time that locks do not depend on.
fn span(node: &Node, least: Duration) -> Result<Duration, Why> {
    within(value::millis(node)?, least, DAY).map_err(Why::Cannot)
}

fn word(node: &Node) -> Result<Option<Secret>, Why> {
    Ok(value::text(node)?.filter(|text| !text.is_empty()).map(|text| Secret(text.to_owned())))
}

pub(super) fn watchdog(taken: &mut Taken, node: &Node) -> Taking {
    let time = within(value::millis(node)?, crate::config::SHORTEST_WATCHDOG, crate::config::LONGEST_LEASE);
    taken.options.watchdog = time.map_err(Why::Wrong)?;
    Ok(())
}

pub(super) fn watchdog_batch(taken: &mut Taken, node: &Node) -> Taking {
    let size = usize::try_from(value::integer(node)?).ok().filter(|size| (1..=5_000).contains(size));
    taken.options.watchdog_batch = size.ok_or_else(|| Why::Cannot("1 to 5000 are possible here".to_owned()))?;
    Ok(())
}

pub(super) fn java_fair_wait(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.java_fair_wait =
        within(value::millis(node)?, MS, crate::config::LONGEST_LEASE).map_err(Why::Wrong)?;
    Ok(())
}

pub(super) fn check_synced(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.acks = if value::truth(node)? { Acks::Redisson } else { Acks::Off };
    Ok(())
}

pub(super) fn sync_timeout(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.ack_timeout = span(node, MS)?;
    Ok(())
}

pub(super) fn script_cache(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.script_cache = value::truth(node)?;
    Ok(())
}

pub(super) fn username(taken: &mut Taken, node: &Node) -> Taking {
    taken.login.username = word(node)?;
    Ok(())
}

pub(super) fn password(taken: &mut Taken, node: &Node) -> Taking {
    taken.login.password = word(node)?;
    Ok(())
}

pub(super) fn sentinel_username(taken: &mut Taken, node: &Node) -> Taking {
    taken.sentinel_login.username = word(node)?;
    Ok(())
}

pub(super) fn sentinel_password(taken: &mut Taken, node: &Node) -> Taking {
    taken.sentinel_login.password = word(node)?;
    Ok(())
}

/// True if the node is the Redisson class of this name, in any package of Redisson, or null.
fn is_class(node: &Node, name: &str) -> bool {
    match (&node.tag, &node.kind) {
        (Some(tag), _) => tag.rsplit('.').next() == Some(name) && tag.starts_with("org.redisson."),
        (None, Kind::Scalar { text, is_plain: true }) => value::is_null(text),
        _ => false,
    }
}

pub(super) fn credentials_resolver(_: &mut Taken, node: &Node) -> Taking {
    if is_class(node, "DefaultCredentialsResolver") {
        return Ok(());
    }
    Err(Why::Cannot("it names Java code, which cannot run here: give the login by other means".to_owned()))
}

pub(super) fn command_mapper(_: &mut Taken, node: &Node) -> Taking {
    if is_class(node, "DefaultCommandMapper") {
        return Ok(());
    }
    Err(Why::Cannot("commands have their own names here: it names Java code, which cannot run here".to_owned()))
}

/// The mapper is Java code that decides the key of a lock. Without it, Rust and Java would not exclude each other.
pub(super) fn name_mapper(taken: &mut Taken, node: &Node) -> Taking {
    if is_class(node, "DefaultNameMapper") {
        return Ok(());
    }
    taken.is_mapped = true;
    if taken.told_prefix.is_some() {
        return Ok(());
    }
    Err(Why::Wrong(
        "it names Java code, which decides under which keys locks are: if it puts something before every name, say what by \
         RedissonYaml::name_prefix; any other mapper cannot be taken over"
            .to_owned(),
    ))
}

const VERIFIED: &str = "certificates are verified here, and the host's name with them";

pub(super) fn ssl_verification(_: &mut Taken, node: &Node) -> Taking {
    match value::text(node)? {
        None | Some("STRICT") => Ok(()),
        Some("NONE" | "CA_ONLY") => Err(Why::CannotOverTls(VERIFIED.to_owned())),
        Some(_) => Err("STRICT, CA_ONLY or NONE is expected here".into()),
    }
}

pub(super) fn ssl_identification(_: &mut Taken, node: &Node) -> Taking {
    if value::truth(node)? { Ok(()) } else { Err(Why::CannotOverTls(VERIFIED.to_owned())) }
}

pub(super) fn ssl_ciphers(_: &mut Taken, node: &Node) -> Taking {
    if is_class(node, "") {
        return Ok(());
    }
    Err(Why::CannotOverTls("which ciphers may be used cannot be said here".to_owned()))
}

/// Accepts the versions of TLS that this crate supports.
pub(super) fn ssl_protocols(_: &mut Taken, node: &Node) -> Taking {
    let spoken = |name: Option<&str>| matches!(name, None | Some("TLSv1.2" | "TLSv1.3"));
    let all = match &node.kind {
        Kind::List(list) => {
            let names: Result<Vec<_>, _> = list.iter().map(value::text).collect();
            names?.into_iter().all(spoken)
        }
        _ => spoken(value::text(node)?),
    };
    if all { Ok(()) } else { Err(Why::CannotOverTls("TLS 1.2 and 1.3 are spoken here, and nothing older".to_owned())) }
}

pub(super) fn timeout(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.command_timeout = span(node, MS)?;
    taken.timeout_at = Some(node.at.start);
    Ok(())
}

pub(super) fn connect_timeout(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.connect_timeout = span(node, MS)?;
    Ok(())
}

pub(super) fn subscribe_timeout(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.subscribe_timeout = span(node, MS)?;
    Ok(())
}

/// In Redisson 0 means never. Here the connection for messages is checked nevertheless.
pub(super) fn ping_interval(taken: &mut Taken, node: &Node) -> Taking {
    if value::integer(node)? != 0 {
        taken.options.ping_interval = span(node, 10 * MS)?;
    }
    Ok(())
}

pub(super) fn client_name(taken: &mut Taken, node: &Node) -> Taking {
    let name = value::text(node)?.unwrap_or_default();
    if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Why::Cannot("servers refuse names with a space in them, or what is no printable ASCII".to_owned()));
    }
    name.clone_into(&mut taken.options.client_name);
    Ok(())
}

pub(super) fn retry_attempts(taken: &mut Taken, node: &Node) -> Taking {
    let attempts = u32::try_from(value::integer(node)?);
    taken.options.retry_attempts = attempts.map_err(|_| "a number of attempts is expected here, 0 or more")?;
    Ok(())
}

pub(super) fn retry_interval(taken: &mut Taken, node: &Node) -> Taking {
    let time = span(node, MS)?;
    taken.options.retry_delay = (time, time);
    Ok(())
}

pub(super) fn retry_delay(taken: &mut Taken, node: &Node) -> Taking {
    let class = node.tag.as_deref().and_then(|tag| tag.strip_prefix("org.redisson.config.")).unwrap_or_default();
    let names = match class {
        "ConstantDelay" => ["delay", "delay"],
        "EqualJitterDelay" | "FullJitterDelay" => ["baseDelay", "maxDelay"],
        "DecorrelatedJitterDelay" => ["minDelay", "maxDelay"],
        _ if is_class(node, "") => return Ok(()),
        _ => return Err(Why::Cannot("it names Java code, which cannot run here".to_owned())),
    };
    let Kind::Map(pairs) = &node.kind else { return Err("a map of delays is expected here".into()) };
    if pairs.iter().any(|pair| !names.contains(&pair.key.as_str())) {
        return Err(format!("{class} has {}", names.join(" and ")).as_str().into());
    }
    let [least, most] = names.map(|name| {
        let pair = pairs.iter().find(|pair| pair.key == name).ok_or(Why::from("a delay is missing here"))?;
        value::iso_duration(&pair.value).map_err(|what| Why::WrongAt(pair.value.at.start, what.to_owned()))
    });
    let least = within(least?, MS, DAY).map_err(Why::Cannot)?;
    taken.options.retry_delay = (least, within(most?, least, DAY).map_err(Why::Cannot)?);
    Ok(())
}

fn server(node: &Node) -> Result<Server, Why> {
    let text = value::text(node).and_then(|text| text.ok_or("an address is expected here"));
    text.and_then(address::read).map_err(|what| Why::WrongAt(node.at.start, what.to_owned()))
}

pub(super) fn address(taken: &mut Taken, node: &Node) -> Taking {
    // Redisson accepts a list with one element as that element.
    let node = match &node.kind {
        Kind::List(list) if list.len() == 1 => &list[0],
        _ => node,
    };
    taken.servers = vec![server(node)?];
    Ok(())
}

fn list(node: &Node) -> Result<Vec<Server>, Why> {
    let Kind::List(list) = &node.kind else { return Err("a list of addresses is expected here".into()) };
    let servers: Vec<_> = list.iter().map(server).collect::<Result<_, _>>()?;
    if servers.iter().any(|server| matches!(server.place, Place::Unix(_))) {
        return Err("one server alone can be reached by a socket of the file system".into());
    }
    Ok(servers)
}

pub(super) fn addresses(taken: &mut Taken, node: &Node) -> Taking {
    taken.servers = list(node)?;
    if taken.servers.is_empty() { Err("at least one address is needed".into()) } else { Ok(()) }
}

/// Locks live at the primary, so replicas are never queried.
pub(super) fn replica_addresses(_: &mut Taken, node: &Node) -> Taking {
    list(node).map(drop)
}

pub(super) fn scan_interval(taken: &mut Taken, node: &Node) -> Taking {
    taken.scan_interval = Some(span(node, 10 * MS)?);
    Ok(())
}

pub(super) fn nat_map(taken: &mut Taken, node: &Node) -> Taking {
    if is_class(node, "") {
        return Ok(());
    }
    for (from, to) in value::texts(node)? {
        let known = |text| {
            crate::topology::Address::split(text).and_then(|(host, port)| crate::topology::Address::new(host, port))
        };
        let (Some(from), Some(to)) = (known(from), known(to)) else {
            return Err("addresses are host:port on both sides here".into());
        };
        taken.address_map.insert(from.to_string(), to.to_string());
    }
    Ok(())
}

pub(super) fn nat_mapper(taken: &mut Taken, node: &Node) -> Taking {
    if is_class(node, "DefaultNatMapper") {
        return Ok(());
    }
    let Kind::Map(pairs) = &node.kind else { return Err("a class with its fields is expected here".into()) };
    let field = |name: &str| pairs.iter().find(|pair| pair.key == name && pairs.len() == 1).map(|pair| &pair.value);
    match (is_class(node, "HostPortNatMapper"), field("hostsPortMap")) {
        (true, Some(map)) => nat_map(taken, map),
        _ => Err(Why::Cannot(
            "addresses can be translated by host:port alone: use natMap, or HostPortNatMapper".to_owned(),
        )),
    }
}

pub(super) fn sharded(taken: &mut Taken, node: &Node) -> Taking {
    taken.options.sharded = match value::text(node)? {
        None | Some("AUTO") => Sharded::Auto,
        Some("ON") => Sharded::On,
        Some("OFF") => Sharded::Off,
        Some(_) => return Err("AUTO, ON or OFF is expected here".into()),
    };
    Ok(())
}

pub(super) fn database(taken: &mut Taken, node: &Node) -> Taking {
    taken.database = Some(u8::try_from(value::integer(node)?).map_err(|_| "0 to 255 are possible here")?);
    Ok(())
}

pub(super) fn database_of_cluster(_: &mut Taken, node: &Node) -> Taking {
    if value::integer(node)? == 0 { Ok(()) } else { Err("a cluster has only database 0".into()) }
}

pub(super) fn master_name(taken: &mut Taken, node: &Node) -> Taking {
    let name = value::text(node)?.filter(|name| !name.is_empty() && !name.chars().any(char::is_control));
    taken.master_name = Some(name.ok_or("the name of a primary is expected here")?.to_owned());
    Ok(())
}

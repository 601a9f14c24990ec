//! Reads the values of single options.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::address::{self, Server, host_and_port, is_socket};
use crate::read::Reading;
use crate::tree::{Kind, Node};

/// Reason not to use an option.
pub(crate) enum Why {
    /// The whole file is refused: the value is wrong, or leaving the option out would change what a lock means. The
    /// place is set if the fault is inside the option's value.
    Wrong(Option<usize>, String),
    /// The option cannot be used, and is left out.
    Cannot(String),
    /// Like `Cannot`, but only if the file uses TLS.
    CannotOverTls(&'static str),
}

pub(crate) fn cannot(what: &str) -> Why {
    Why::Cannot(what.to_owned())
}

impl From<&str> for Why {
    fn from(what: &str) -> Self {
        Self::Wrong(None, what.to_owned())
    }
}

type Taking = Result<(), Why>;
type Read<T> = Result<Option<T>, Why>;

pub(crate) const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Returns `value` if it is within the bounds.
fn within(value: Duration, least: Duration, most: Duration) -> Result<Duration, String> {
    if value < least || value > most {
        return Err(format!("{value:?} cannot be: {least:?} to {most:?} are possible here"));
    }
    Ok(value)
}

/// A time that locks depend on. A time out of bounds refuses the file.
pub(crate) fn lease(node: &Node, least: Duration) -> Read<Duration> {
    within(node.millis()?, least, TEN_YEARS).map(Some).map_err(|what| Why::Wrong(None, what))
}

/// A time that locks do not depend on. A time out of bounds is left out.
pub(crate) fn time(node: &Node, least: Duration) -> Read<Duration> {
    within(node.millis()?, least, DAY).map(Some).map_err(Why::Cannot)
}

/// A user name or a password.
pub(crate) fn word(node: &Node) -> Read<String> {
    Ok(node.text()?.filter(|text| !text.is_empty()).map(str::to_owned))
}

/// A whole number. `why`: the error for a number out of bounds.
pub(crate) fn number<T: TryFrom<i64>>(node: &Node, bounds: RangeInclusive<i64>, why: impl Into<Why>) -> Read<T> {
    let number = node.integer()?;
    T::try_from(number).ok().filter(|_| bounds.contains(&number)).map(Some).ok_or_else(|| why.into())
}

/// A name that passes this test. Null is the empty name.
pub(crate) fn name(node: &Node, is_allowed: fn(&str) -> bool, why: impl Into<Why>) -> Read<String> {
    let name = node.text()?.unwrap_or_default();
    if is_allowed(name) { Ok(Some(name.to_owned())) } else { Err(why.into()) }
}

/// The value of one of these words. Null means the first word.
pub(crate) fn choice<T: Copy>(node: &Node, words: &[(&str, T)], why: &str) -> Result<T, Why> {
    let word = node.text()?.unwrap_or(words[0].0);
    words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value).ok_or_else(|| why.into())
}

/// Accepts only Redisson's default class of this name, because other Java classes cannot run here.
pub(crate) fn class(node: &Node, default: &str, why: &str) -> Taking {
    if node.is_class(default) { Ok(()) } else { Err(cannot(why)) }
}

/// Refuses a mapper unless the caller has given its prefix. The mapper is Java code that decides the key of a lock, so
/// without it Rust and Java would not exclude each other.
pub(crate) fn name_mapper(to: &mut Reading<'_>, node: &Node) -> Taking {
    to.has_mapper |= !node.is_class("DefaultNameMapper");
    if !to.has_mapper || to.reader.name_prefix.is_some() {
        return Ok(());
    }
    Err("it names Java code, which decides under which keys locks are: if it puts something before every name, say what by \
         RedissonYaml::name_prefix; any other mapper cannot be taken over"
        .into())
}

pub(crate) fn over_tls(is_fine: bool, why: &'static str) -> Taking {
    if is_fine { Ok(()) } else { Err(Why::CannotOverTls(why)) }
}

pub(crate) const VERIFIED: &str = "certificates are verified here, and the host's name with them";

/// Accepts the versions of TLS that distlock supports.
pub(crate) fn ssl_protocols(_: &mut Reading<'_>, node: &Node) -> Taking {
    let names = match &node.kind {
        Kind::List(list) => list.iter().map(Node::text).collect::<Result<Vec<_>, _>>()?,
        _ => vec![node.text()?],
    };
    let is_supported = |name: Option<&str>| matches!(name, None | Some("TLSv1.2" | "TLSv1.3"));
    over_tls(names.into_iter().all(is_supported), "TLS 1.2 and 1.3 are spoken here, and nothing older")
}

pub(crate) fn retry_delay(to: &mut Reading<'_>, node: &Node) -> Taking {
    let class = node.tag.as_deref().and_then(|tag| tag.strip_prefix("org.redisson.config.")).unwrap_or_default();
    let names = match class {
        "ConstantDelay" => ["delay", "delay"],
        "EqualJitterDelay" | "FullJitterDelay" => ["baseDelay", "maxDelay"],
        "DecorrelatedJitterDelay" => ["minDelay", "maxDelay"],
        _ if node.is_null() => return Ok(()),
        _ => return Err(cannot("it names Java code, which cannot run here")),
    };
    let Kind::Map(pairs) = &node.kind else { return Err("a map of delays is expected here".into()) };
    if pairs.iter().any(|pair| !names.contains(&pair.key.as_str())) {
        return Err(Why::Wrong(None, format!("{class} has {}", names.join(" and "))));
    }
    let [least, most] = names.map(|name| {
        let pair = pairs.iter().find(|pair| pair.key == name).ok_or("a delay is missing here")?;
        pair.value.iso_duration().map_err(|what| Why::Wrong(Some(pair.value.at.start), what.to_owned()))
    });
    let least = within(least?, MS, DAY).map_err(Why::Cannot)?;
    to.config.retry_delay = Some((least, within(most?, least, DAY).map_err(Why::Cannot)?));
    Ok(())
}

fn server(node: &Node) -> Result<Server, Why> {
    let text = node.text().and_then(|text| text.ok_or("an address is expected here"));
    text.and_then(address::read).map_err(|what| Why::Wrong(Some(node.at.start), what.to_owned()))
}

pub(crate) fn address(to: &mut Reading<'_>, node: &Node) -> Taking {
    // Redisson accepts a list with one element as that element.
    let only = match &node.kind {
        Kind::List(list) if list.len() == 1 => &list[0],
        _ => node,
    };
    to.servers = vec![server(only)?];
    Ok(())
}

pub(crate) fn servers(node: &Node) -> Result<Vec<Server>, Why> {
    let Kind::List(list) = &node.kind else { return Err("a list of addresses is expected here".into()) };
    let servers: Vec<_> = list.iter().map(server).collect::<Result<_, _>>()?;
    if servers.iter().any(|server| is_socket(&server.address)) {
        return Err("one server alone can be reached by a socket of the file system".into());
    }
    Ok(servers)
}

pub(crate) fn addresses(to: &mut Reading<'_>, node: &Node) -> Taking {
    to.servers = servers(node)?;
    if to.servers.is_empty() { Err("at least one address is needed".into()) } else { Ok(()) }
}

pub(crate) fn nat_map(to: &mut Reading<'_>, node: &Node) -> Taking {
    if node.is_null() {
        return Ok(());
    }
    let Kind::Map(pairs) = &node.kind else { return Err("a map is expected here".into()) };
    for pair in pairs {
        let used = pair.value.text()?.ok_or("a value is missing in this map")?;
        let (Some(reported), Some(used)) = (host_and_port(&pair.key), host_and_port(used)) else {
            return Err("addresses are host:port on both sides here".into());
        };
        to.config.nat_map.insert(reported, used);
    }
    Ok(())
}

pub(crate) fn nat_mapper(to: &mut Reading<'_>, node: &Node) -> Taking {
    if node.is_class("DefaultNatMapper") {
        return Ok(());
    }
    let Kind::Map(pairs) = &node.kind else { return Err("a class with its fields is expected here".into()) };
    match &pairs[..] {
        [map] if node.is_class("HostPortNatMapper") && map.key == "hostsPortMap" => nat_map(to, &map.value),
        _ => Err(cannot("addresses can be translated by host:port alone: use natMap, or HostPortNatMapper")),
    }
}

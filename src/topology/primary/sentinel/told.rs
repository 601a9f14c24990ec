//! What sentinels say when they are asked.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::topology::address::Address;
use crate::topology::primary::witnesses::ask;
use crate::topology::role::{number, text};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply, Transport};

static SENTINEL: Script = Script::bare("topology/sentinel", "SENTINEL");

/// What a sentinel says of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) address: Address,
    /// How often sentinels had put a server there when they put this one.
    pub(super) epoch: u64,
    /// It is taken to be down, or is being replaced.
    pub(super) is_down: bool,
    /// How many other sentinels it knows.
    pub(super) others: usize,
}

fn call(subcommand: &'static str, name: &str) -> Call {
    let words = [Bytes::from_static(subcommand.as_bytes()), Bytes::copy_from_slice(name.as_bytes())];
    Call { script: &SENTINEL, keys: 0, words: words.map(Arg::Text).into() }
}

/// The fields of a reply that is a map, or a list of names and values.
fn fields(reply: &Reply) -> BTreeMap<&str, &Reply> {
    let Reply::List(parts) = reply else { return BTreeMap::new() };
    parts.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, &pair[1]))).collect()
}

fn address_in(fields: &BTreeMap<&str, &Reply>) -> Option<Address> {
    let port = fields.get("port").and_then(|port| number(port)).and_then(|port| u16::try_from(port).ok())?;
    Address::new(fields.get("ip").and_then(|ip| text(ip))?, port)
}

/// What a sentinel says of the primary within `limit`. An error in its words.
pub(super) async fn master(sentinel: &dyn Transport, name: &str, limit: Duration) -> Result<Told, String> {
    let reply = ask(sentinel, call("MASTER", name), limit).await?;
    told(&reply).ok_or_else(|| "its answer to SENTINEL MASTER cannot be read".to_owned())
}

fn told(reply: &Reply) -> Option<Told> {
    let fields = fields(reply);
    let number_of = |field: &str| fields.get(field).and_then(|value| number(value));
    let flags = fields.get("flags").and_then(|flags| text(flags)).unwrap_or_default();
    let has = |wanted: &[&str]| flags.split(',').any(|flag| wanted.contains(&flag));
    let epoch = number_of("config-epoch").and_then(|epoch| u64::try_from(epoch).ok()).unwrap_or(0);
    // The sentinel that leads a failover names the primary of before until all replicas follow the new one, and has the epoch of that
    // already: those who took this for the old one's would not believe the new one.
    let is_replacing = has(&["failover_in_progress"]);
    Some(Told {
        address: address_in(&fields)?,
        epoch: epoch.saturating_sub(u64::from(is_replacing)),
        is_down: is_replacing || has(&["s_down", "o_down"]),
        others: number_of("num-other-sentinels").and_then(|others| usize::try_from(others).ok()).unwrap_or(0),
    })
}

/// The replicas of this primary by a sentinel; None where that has another one. What it names may change in between: then its list
/// may lack the one that is promoted.
pub(super) async fn replicas_of(
    primary: &Address,
    sentinel: &dyn Transport,
    name: &str,
    limit: Duration,
) -> Option<Vec<Address>> {
    let before = master(sentinel, name, limit).await.ok()?;
    let replicas = listed(sentinel, "REPLICAS", name, limit).await?;
    let after = master(sentinel, name, limit).await.ok()?;
    (before.address == *primary && after.address == *primary).then_some(replicas)
}

/// What more than so many of them say.
pub(super) fn agreed_upon(answers: &[Told], most: usize) -> Option<&Told> {
    answers.iter().find(|told| answers.iter().filter(|other| other.address == told.address).count() > most)
}

/// Those that a sentinel lists.
pub(super) async fn listed(
    sentinel: &dyn Transport,
    what: &'static str,
    name: &str,
    limit: Duration,
) -> Option<Vec<Address>> {
    let Ok(Reply::List(list)) = ask(sentinel, call(what, name), limit).await else { return None };
    Some(list.iter().filter_map(|one| address_in(&fields(one))).collect())
}

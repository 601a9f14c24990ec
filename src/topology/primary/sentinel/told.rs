//! Queries to sentinels, and the sentinels' replies.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::topology::address::Address;
use crate::topology::primary::witnesses::ask;
use crate::topology::role::{number, text};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply, Transport};

static SENTINEL: Script = Script::bare("topology/sentinel", "SENTINEL");

/// The report of a sentinel about the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) address: Address,
    /// Config epoch at which the sentinels made this server the primary.
    pub(super) epoch: u64,
    /// True if the sentinel considers the server down, or is replacing it.
    pub(super) is_down: bool,
    /// Number of other sentinels that this sentinel knows.
    pub(super) others: usize,
}

fn call(subcommand: &'static str, name: &str) -> Call {
    let words = [Bytes::from_static(subcommand.as_bytes()), Bytes::copy_from_slice(name.as_bytes())];
    Call { script: &SENTINEL, keys: 0, words: words.map(Arg::Text).into() }
}

/// Fields of a reply, which may be a map or a list of names and values.
fn fields(reply: &Reply) -> BTreeMap<&str, &Reply> {
    let Reply::List(parts) = reply else { return BTreeMap::new() };
    parts.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, &pair[1]))).collect()
}

fn address_in(fields: &BTreeMap<&str, &Reply>) -> Option<Address> {
    let port = fields.get("port").and_then(|port| number(port)).and_then(|port| u16::try_from(port).ok())?;
    Address::new(fields.get("ip").and_then(|ip| text(ip))?, port)
}

/// Asks a sentinel for the primary. The error has the sentinel's own text.
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
    // During a failover, the leading sentinel names the old primary with the new epoch, until all replicas follow the
    // new primary. The epoch is lowered here, so that the new primary is accepted at the new epoch.
    let is_replacing = has(&["failover_in_progress"]);
    Some(Told {
        address: address_in(&fields)?,
        epoch: epoch.saturating_sub(u64::from(is_replacing)),
        is_down: is_replacing || has(&["s_down", "o_down"]),
        others: number_of("num-other-sentinels").and_then(|others| usize::try_from(others).ok()).unwrap_or(0),
    })
}

/// Asks a sentinel for the replicas of this primary. `None` if the sentinel names another primary. The sentinel is
/// asked for the primary before and after the list, because a list from a failover may lack the promoted replica.
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

/// Returns a report whose address more than `most` sentinels name.
pub(super) fn agreed_upon(answers: &[Told], most: usize) -> Option<&Told> {
    answers.iter().find(|told| answers.iter().filter(|other| other.address == told.address).count() > most)
}

/// Returns the addresses of the replicas or the other sentinels that a sentinel lists.
pub(super) async fn listed(
    sentinel: &dyn Transport,
    what: &'static str,
    name: &str,
    limit: Duration,
) -> Option<Vec<Address>> {
    let Ok(Reply::List(list)) = ask(sentinel, call(what, name), limit).await else { return None };
    Some(list.iter().filter_map(|one| address_in(&fields(one))).collect())
}

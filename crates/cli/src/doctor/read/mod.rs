//! Reads the facts from the servers. A refused question is noted in the facts; it is no failure.

use bytes::Bytes;
use distlock::ServerRole;
use fred::types::Value;

use super::facts::{Facts, NotChecked, Unreachable, Wanted};
use crate::connect::{Raw, Servers};
use crate::exit::Failure;

mod rights;
mod sentinels;
mod server;

/// Reads everything. `name` is the primary's name at the sentinels.
pub(super) async fn all(servers: &Servers, name: Option<&str>, wanted: Wanted) -> Facts {
    let mut facts = Facts::new(servers.kind(), wanted);
    match servers.client().capabilities().await {
        Ok(found) => facts.capabilities = Some(found),
        Err(error) => {
            let all = servers.primaries().iter().map(Raw::address).collect::<Vec<_>>().join(", ");
            facts.not_checked.push(NotChecked { server: all, what: "features", why: error.to_string() });
        }
    }
    for raw in servers.primaries() {
        add(&mut facts, raw, ServerRole::Primary).await;
        add_rights(&mut facts, servers, raw).await;
    }
    for (address, replica) in known(servers, ServerRole::Replica).into_iter().zip(servers.replicas().await) {
        match replica {
            Ok(raw) => add(&mut facts, &raw, ServerRole::Replica).await,
            Err(failure) => unreachable(&mut facts, ServerRole::Replica, &address, failure),
        }
    }
    let Some(name) = name else { return facts };
    for (address, sentinel) in known(servers, ServerRole::Sentinel).into_iter().zip(servers.sentinels().await) {
        let read = match &sentinel {
            Ok(raw) => sentinels::read(raw, name).await,
            Err(failure) => Err(failure.clone()),
        };
        match read {
            Ok(sentinel) => facts.sentinels.push(sentinel),
            Err(Failure::Server(why)) => {
                facts.not_checked.push(NotChecked { server: address, what: "sentinel", why });
            }
            Err(failure) => unreachable(&mut facts, ServerRole::Sentinel, &address, failure),
        }
    }
    facts
}

async fn add(facts: &mut Facts, raw: &Raw, role: ServerRole) {
    match server::read(raw, role, &mut facts.not_checked).await {
        Ok(server) => facts.servers.push(server),
        Err(failure) => unreachable(facts, role, raw.address(), failure),
    }
}

async fn add_rights(facts: &mut Facts, servers: &Servers, raw: &Raw) {
    match rights::read(servers, raw, &facts.wanted.prefix, facts.is_sharded()).await {
        Ok(rights) => {
            if let Some(server) = facts.servers.iter_mut().find(|server| server.address == raw.address()) {
                server.rights = Some(rights);
            }
        }
        Err(failure) => {
            let (server, why) = (raw.address().to_owned(), reason(failure));
            facts.not_checked.push(NotChecked { server, what: "rights", why });
        }
    }
}

fn unreachable(facts: &mut Facts, role: ServerRole, address: &str, failure: Failure) {
    facts.unreachable.push(Unreachable { role, address: address.to_owned(), why: reason(failure) });
}

/// The addresses of the servers with this role, in the order of `Servers::replicas` and `Servers::sentinels`.
fn known(servers: &Servers, role: ServerRole) -> Vec<String> {
    let all = servers.client().topology().servers.into_iter();
    all.filter(|server| server.role == role).map(|server| server.address).collect()
}

/// The text of a failure, without advice about the URL.
fn reason(failure: Failure) -> String {
    match failure {
        Failure::Unreachable(text) => text,
        other => other.to_string(),
    }
}

fn words(words: &[&str]) -> Vec<Bytes> {
    words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn text(value: &Value) -> String {
    value.as_str_lossy().unwrap_or_default().into_owned()
}

/// The texts of a list. Another reply counts as a list of one element.
fn texts(value: Value) -> Vec<String> {
    value.into_array().iter().map(text).collect()
}

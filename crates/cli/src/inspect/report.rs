//! Everything that the keys of a name say, as data. The module of `inspect` documents the JSON.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Value as Json, json};

use crate::keys::{Language, to_hex};

/// Which half of a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Read,
    Write,
}

impl Half {
    /// `read` or `write`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub owner: String,
    pub holds: u64,
    /// Ids of the listed holds. The only hold of an owner is usually not listed.
    pub ids: Vec<String>,
    /// Read-write locks only.
    pub half: Option<Half>,
    /// Readers only: the owner's own lease in ms, 0 if it has ended. `None` = unknown.
    pub ttl: Option<i64>,
}

impl Holder {
    /// True for a reader whose lease has ended. It holds nothing, although the hash still names it.
    pub fn is_dead(&self) -> bool {
        self.ttl == Some(0)
    }
}

/// A waiting owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub owner: String,
    /// Time in ms until the deadline of its place in the queue, the end of a writer's mark, or the end of a party's
    /// lease. Negative if that has passed. `None` = unknown.
    pub left: Option<i64>,
}

/// Permits of a semaphore with leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permits {
    pub total: i64,
    pub free: i64,
    pub held: i64,
    /// Ids and leases in ms, sorted by the ends of the leases. `None` = no end.
    pub holders: Vec<(Bytes, Option<i64>)>,
}

/// A barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Number of parties that the round needs; `None` before the first arrival of a round.
    pub parties: Option<i64>,
    /// Number of rounds that have ended, finished or broken, since the keys were created.
    pub finished: i64,
    /// Number of broken rounds. The server remembers the last ones only.
    pub broken: usize,
    pub arrived: Vec<Waiter>,
    pub more: i64,
}

/// Everything that `inspect` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub name: String,
    pub key: String,
    pub server: String,
    pub flavour: Option<&'static str>,
    /// Type of the main key, if the key exists and is no lock.
    pub foreign: Option<String>,
    pub held: bool,
    /// Lease of the key in ms. `None` = no end, or no key.
    pub ttl: Option<i64>,
    pub holders: Vec<Holder>,
    pub more_holders: i64,
    pub queue: Vec<Waiter>,
    pub more_waiters: i64,
    pub waiting_writers: Vec<Waiter>,
    pub permits: Option<Permits>,
    pub number: Option<i64>,
    pub fencing_counter: Option<i64>,
    pub barrier: Option<Barrier>,
    pub subscribers: i64,
    /// Labels of the clients, by the first digits of their ids.
    pub labels: BTreeMap<String, String>,
}

impl Report {
    /// The half of a read-write lock that is held.
    pub fn half(&self) -> Option<Half> {
        let halves = || self.holders.iter().filter_map(|holder| holder.half);
        halves().find(|half| *half == Half::Write).or_else(|| halves().next())
    }

    /// The first digits of the ids of all clients that hold or wait.
    pub fn clients(&self) -> BTreeSet<String> {
        let owners = self.holders.iter().map(|holder| &holder.owner);
        let owners = owners.chain(self.queue.iter().map(|waiter| &waiter.owner)).map(|owner| client_of(owner));
        let permits = self.permits.iter().flat_map(|permits| &permits.holders).map(|(id, _)| client_of(&to_hex(id)));
        owners.chain(permits).collect()
    }

    /// The label of a client. `holder`: an owner, or the id of a permit in hex.
    pub fn label(&self, holder: &str) -> Option<&str> {
        self.labels.get(&client_of(holder)).map(String::as_str)
    }

    fn labelled(&self, mut entry: Json, holder: &str) -> Json {
        if let Some(label) = self.label(holder) {
            entry["label"] = json!(label);
        }
        entry
    }

    /// The report as JSON.
    pub fn json(&self) -> Json {
        let mut all = json!({
            "name": self.name,
            "key": self.key,
            "server": self.server,
            "flavour": self.flavour,
            "held": self.held,
            "ttl_ms": self.ttl,
            "holders": self.holders.iter().map(|one| self.labelled(holder(one), &one.owner)).collect::<Vec<_>>(),
            "more_holders": self.more_holders,
            "queue": self.positions(),
            "more_waiters": self.more_waiters,
            "subscribers": self.subscribers,
        });
        if let Some(kind) = &self.foreign {
            all["key_type"] = json!(kind);
        }
        if let Some(half) = self.half() {
            all["mode"] = json!(half.as_str());
            all["waiting_writers"] = json!(self.waiting_writers.iter().map(waiter).collect::<Vec<_>>());
        }
        if let Some(counter) = self.fencing_counter {
            all["fencing_counter"] = json!(counter);
        }
        if let Some(number) = self.number {
            all["number"] = json!(number);
        }
        if let Some(permits) = &self.permits {
            all["permits"] = self.of_permits(permits);
        }
        if let Some(barrier) = &self.barrier {
            all["barrier"] = json!({
                "parties": barrier.parties,
                "finished_rounds": barrier.finished,
                "broken_rounds": barrier.broken,
                "arrived": barrier.arrived.iter().map(waiter).collect::<Vec<_>>(),
                "more_arrived": barrier.more,
            });
        }
        all
    }

    fn positions(&self) -> Vec<Json> {
        let numbered = |(index, one): (usize, &Waiter)| {
            let mut all = self.labelled(waiter(one), &one.owner);
            all["position"] = json!(index + 1);
            all
        };
        self.queue.iter().enumerate().map(numbered).collect()
    }

    fn of_permits(&self, permits: &Permits) -> Json {
        let held = |(id, ttl): &(Bytes, Option<i64>)| {
            let (hex, language) = (to_hex(id), Language::of_permit(id).as_str());
            self.labelled(json!({ "id": hex, "language": language, "ttl_ms": ttl }), &hex)
        };
        let holders: Vec<Json> = permits.holders.iter().map(held).collect();
        json!({ "total": permits.total, "free": permits.free, "held": permits.held, "holders": holders })
    }
}

/// The first digits of a client's id, with which its owners and the ids of its permits begin.
fn client_of(holder: &str) -> String {
    holder.chars().filter(|digit| *digit != '-').take(16).collect()
}

fn language(owner: &str) -> Option<&'static str> {
    Language::of(owner).map(Language::as_str)
}

fn holder(holder: &Holder) -> Json {
    let mut all = json!({
        "owner": holder.owner,
        "language": language(&holder.owner),
        "holds": holder.holds,
        "hold_ids": holder.ids,
    });
    if let Some(half) = holder.half {
        all["half"] = json!(half.as_str());
        if half == Half::Read {
            all["ttl_ms"] = json!(holder.ttl);
        }
    }
    all
}

fn waiter(waiter: &Waiter) -> Json {
    json!({ "owner": waiter.owner, "language": language(&waiter.owner), "deadline_ms": waiter.left })
}

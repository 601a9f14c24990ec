//! The table of holds, the very source of `src/engine/ledger.rs`, and the registry of waiters with its channels and spares
//! (`src/engine/registry/`), under every order of events that loom can think of; and the counting of shared owners' holds, as an
//! exhaustive search (`holds.rs`).
//!
//! The registry: a turn is had by one and never lost, news reaches whoever is to look next, a subscription is there for whoever
//! relies on it, and in the end nothing is left. What is around it (names, topology, reaper, server) is in miniature: `around.rs`.
//!
//! The table: *held means registered, released means not*. Whenever a guard is open the table has its hold and the
//! watchdog finds it; after the last release the table is empty; what the server says of an earlier hold never ends, nor
//! revives, a later one; nothing deadlocks. For each property there is a table or a use of it that is broken in one
//! place, as upstream's was (Redisson #6651, #6844, #7272), and the model must find it out.

#![cfg(test)]

#[path = "../../src/engine/ledger.rs"]
#[allow(dead_code, clippy::type_complexity, reason = "the models use a part of it")]
mod ledger;

mod around;
mod broken;
mod client;
mod engine;
mod holds;
mod registry;
mod server;
// Of its functions the models use one.
#[allow(dead_code)]
#[path = "../../src/slim.rs"]
mod slim;
mod sync;
mod tests;

// The registry finds its neighbours at these paths.
use around::{config, hash, names, owner, runtime, topology, world};

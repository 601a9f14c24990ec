//! The table of holds, the very source of `src/engine/ledger.rs`, under every order of events that loom can think of.
//!
//! What is shown: *held means registered, released means not*. Whenever a guard is open the table has its hold and the
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
mod sync;
mod tests;

// The registry finds its neighbours at these paths.
use around::{config, hash, names, owner, runtime, topology, world};

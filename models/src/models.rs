//! Exhaustive checks of the crate's shared tables. Two parts run the crate's own source under loom, in every order of
//! events that loom can produce. The third part is a search of its own.
//!
//! - **Registry** of waiters, with its channels and spare owners (`src/engine/registry/`). Exactly one waiter of a name
//!   has the turn (the task to look at the lock), and the turn is never lost. Each event reaches the waiter that must
//!   look at the lock next. A waiter that relies on a subscription has one. In the end nothing is left. Small stand-ins
//!   replace names, topology, reaper and server (`around.rs`, `server.rs`).
//! - **Table of holds** (`src/engine/ledger.rs`). *Held means registered, released means not*: while a guard is open,
//!   the table has its hold and the watchdog finds it. After the last release the table is empty. An answer about an
//!   earlier hold neither ends nor revives a later one. Nothing deadlocks. For each property there is a broken table,
//!   or a broken use of the table, with a flaw that Redisson had (#6651, #6844, #7272). The model must detect the flaw.
//! - **Counting** of the holds of a shared owner, as an exhaustive search (`holds.rs`).

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
// The models use only one function of this module.
#[allow(dead_code)]
#[path = "../../crates/wire/src/slim.rs"]
mod slim;
mod sync;
mod tests;

// The registry expects its neighbours at these paths.
use around::{config, hash, names, owner, runtime, topology, world};

//! Failovers one after the other, under the eyes of a resource that eight processes come into: who was inside with somebody else, and
//! why, and how soon they were told.

mod by_hand;
mod check;
mod cluster;
mod late;
mod partition;
mod resource;
mod run;
mod sentinel;
mod worker;

use bed::{ms, secs};

/// The processes want the machine for themselves.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How a primary loses its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Somebody asks for that.
    Asked,
    Killed,
    /// Frozen; later it goes on, as the primary that it was.
    Stopped,
}

//! Failovers under eight processes that enter a resource under fenced locks. The resource writes down who was inside with whom.

mod by_hand;
mod check;
mod cluster;
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
    /// By request.
    Asked,
    Killed,
    /// Frozen. It resumes later, as the primary that it was.
    Stopped,
}

//! Failovers under eight processes that enter a resource under fenced locks. The resource records every entry and
//! exit. Also kills, cuts and failovers under four processes that hold permits.

mod by_hand;
mod check;
mod cluster;
mod partition;
mod permits;
mod resource;
mod run;
mod sentinel;
mod worker;

use bed::{ms, secs};

/// One test at a time, because the processes need the whole machine.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Asked,
    Killed,
    /// Frozen. It resumes later, still as a primary.
    Stopped,
}

//! What a client runs on: its own tokio runtime, the reaper that finishes there what nobody waits for any more, and what to
//! make of a time in which this process did not run.

pub(crate) mod home;
pub(crate) mod reaper;
pub(crate) mod repeated;
pub(crate) mod standstill;

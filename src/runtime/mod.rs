//! The client's tokio runtime, the reaper that completes work of dropped callers there, and the handling of standstills
//! of this process.

pub(crate) mod home;
pub(crate) mod reaper;
pub(crate) mod repeated;

pub(crate) use distlock_wire::standstill;

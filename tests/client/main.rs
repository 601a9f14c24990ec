//! The client, whatever its locks are: from its beginning to its end, what it renews and tells, and what it needs.

mod acl;
mod capabilities;
mod lifecycle;
mod not_reentrant;
#[cfg(feature = "metrics")]
mod observability;
mod renewal;
mod scripts;
mod traps;
mod watchdog;

//! The client independently of lock flavours: its life, renewal, metrics, capabilities, rights and runtimes.

mod acl;
mod capabilities;
mod commands;
#[cfg(feature = "metrics")]
mod dashboards;
mod dropped_guards;
mod durations;
mod executors;
mod given_up;
#[cfg(feature = "metrics")]
mod handoff;
mod housekeeping;
mod label;
mod lifecycle;
mod lock_delay;
mod not_reentrant;
#[cfg(feature = "metrics")]
mod observability;
#[cfg(feature = "fred")]
mod over;
mod own_runtime;
mod renewal;
mod revoke;
mod rig;
mod runtimes;
mod scripts;
mod shared_owners;
mod traps;
mod wakers;

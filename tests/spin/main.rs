//! The spin lock, which uses no messages, and other locks of the same name. `tests/conformance` has the rules for all
//! locks, and `sim/timing/backoff.rs` checks how often waiters poll.

mod cancel;
mod cost;
mod faults;
mod mixed;
mod quiet;
mod rig;

//! The spin lock: no messages, and its neighbours on the same name. What it shares with other locks is in `tests/conformance`; how
//! often its waiters look is in `sim/timing/backoff.rs`.

mod cancel;
mod cost;
mod faults;
mod mixed;
mod quiet;
mod rig;

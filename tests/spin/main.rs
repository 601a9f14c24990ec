//! The spin lock: no messages, pauses that are really kept, and its neighbours on the same name. What it shares with other locks is in `tests/conformance`.

mod backoff;
mod cancel;
mod cost;
mod faults;
mod mixed;
mod quiet;
mod rig;

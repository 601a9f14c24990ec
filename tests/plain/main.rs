//! The plain lock: `SET NX PX`, compare and delete, with other users of the same scheme. `tests/conformance` has the
//! rules for all locks, and `tests/peers` uses real libraries of other languages.

mod cancel;
mod copies;
mod cost;
mod faults;
mod forms;
mod policy;
mod quorum;
mod rig;
mod strangers;

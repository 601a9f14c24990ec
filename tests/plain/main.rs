//! The plain lock: `SET NX PX`, compare and delete, beside those who write it in their own way. What it shares with other locks
//! is in `tests/conformance`; real libraries of other languages are in `tests/peers`.

mod cancel;
mod copies;
mod cost;
mod faults;
mod forms;
mod policy;
mod quorum;
mod rig;
mod strangers;

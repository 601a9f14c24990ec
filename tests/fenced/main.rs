//! The fenced lock: every section has one number, however it is acquired and whatever happens to the lock and its
//! counter (M3).

mod cancel;
mod cost;
mod counter;
mod faults;
mod history;
mod lost;
mod neighbours;
mod restart;
mod rig;
mod tokens;

//! The fenced lock: one number for every section, on every way to acquire, whatever happens to the lock and its counter
//! (M3).

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

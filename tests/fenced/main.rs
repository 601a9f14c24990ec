//! The fenced lock: a number for every section, on every way in, whatever happens to the lock and to its counter (M3).

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

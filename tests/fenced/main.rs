//! The fenced lock: every section (time in which the lock is held) has one number, however it is acquired and whatever
//! happens to the lock and its counter (M3 in `tests/README.md`).

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

//! The reentrant lock by itself. `tests/faults` uses it, too, for all kinds of faults.

mod cancel;
mod cost;
mod state;

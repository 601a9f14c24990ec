//! The reentrant lock by itself. `tests/faults` also uses it, for all kinds of faults.

mod cancel;
mod cost;
mod state;

//! The reentrant lock by itself. Faults of all kinds are shown on it too, in `tests/faults`.

mod cancel;
mod cost;
mod state;

//! Permits, semaphores and latches: random runs under every fault, and late copies of their commands. `SEED=n` replays
//! one run, `SEEDS=n` sets their number, `TRACE=1` prints the events.
//!
//! A *span* is a time in which a caller certainly had permits. `N1` to `N4` are rules in `tests/README.md`.

mod copies;
mod history;
pub mod latches;
pub mod permits;
pub mod plan;
mod scene;
pub mod semaphores;

//! Random sequences on permits, on a semaphore and on a latch. Our client and a real Redisson act on the same keys.
//! After each step, the answer and the state in Redis must match a model in plain Rust. Where the two clients differ,
//! the model has both behaviours.
//!
//! No step waits for a time. To end a lease or the life of a key, the test changes Redis as the passing time would
//! ([`Side::Server`](story::Side)).
//!
//! A failure prints its seed and the whole sequence. `SEED=n` replays one sequence. `SEQUENCES=n` and `STEPS=n` set the
//! number of sequences and their length.

mod latch;
mod model;
mod number;
mod permits;
mod semaphore;
mod steps;
mod story;

pub async fn permits_match_the_model_after_each_step(version: &str) {
    story::play_all::<permits::Gate>(version).await;
}

pub async fn semaphore_matches_the_model_after_each_step(version: &str) {
    story::play_all::<semaphore::Seats>(version).await;
}

pub async fn latch_matches_the_model_after_each_step(version: &str) {
    story::play_all::<latch::Latched>(version).await;
}

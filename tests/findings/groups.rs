//! Several locks as one (findings 17 to 20, 22).

/// What is lost is given back (19).
mod lost;
/// Long lists (22).
mod many;
/// A reader's patience is that of the whole acquire (18).
mod patience;
#[path = "../redlock/rig.rs"]
mod rig;
/// Segments that are bad or silent (17).
mod striped;
/// Where who waits for a RedLock waits (20), and what it tells (22).
mod votes;

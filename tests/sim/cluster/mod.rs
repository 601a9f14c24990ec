//! Clusters in virtual time: slots move, primaries hand over, die, stand still and are cut off, under clients that lock.

mod actor;
mod cases;
pub mod random;
mod scene;

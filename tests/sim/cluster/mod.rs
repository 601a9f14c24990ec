//! Clusters in virtual time: slots move; primaries hand over, die, freeze and are cut off while clients lock.

mod actor;
mod cases;
pub mod random;
mod scene;

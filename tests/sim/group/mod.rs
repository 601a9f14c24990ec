//! Locks that are made of others, over several simulated servers: RedLock (X2) and multi locks (X1). `sequences` has random runs.

mod enumeration;
pub mod fleet;
mod special;
mod trial;

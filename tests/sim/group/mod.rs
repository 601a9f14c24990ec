//! Locks that are made of others, over several simulated servers: RedLock (M1-R, X2) and multi locks (X1).

mod actor;
mod alike;
mod enumeration;
pub mod fleet;
mod nemesis;
mod play;
mod random;
mod special;
mod trial;

#![doc = include_str!("../README.md")]

mod cluster;
mod commands;
mod core;
mod events;
mod faults;
mod line;
mod link;
mod lua;
mod node;
mod number;
mod place;
mod random;
mod reply;
mod server;
mod store;
mod zset;

pub use cluster::{SimCluster, SimClusterLink};
/// The version of distlock that this version of the simulator works with.
pub use distlock;
pub use faults::{Chaos, LinkOptions, Mishap};
pub use link::SimLink;
pub use reply::SimReply;
pub use server::{SimScript, SimServer};

#[cfg(test)]
mod tests;

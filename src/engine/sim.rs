//! The simulated Redis: the real scripts over a store in memory, a virtual clock, one seed for everything.
//!
//! [`SimServer`] is the server, [`SimLink`] one client's way to it. Time is tokio's: with a paused clock it is virtual,
//! and days pass in a second. Sharded and plain channels are one here.

mod commands;
mod core;
mod events;
mod faults;
mod line;
mod link;
mod lua;
mod number;
mod random;
mod reply;
mod server;
mod store;
mod zset;

pub use faults::{Chaos, LinkOptions, Mishap};
pub use link::SimLink;
pub use reply::SimReply;
pub use server::{SimScript, SimServer};

#[cfg(test)]
mod tests;

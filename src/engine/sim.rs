//! The simulated Redis: the real scripts over a store in memory, a virtual clock, one seed for everything.

mod commands;
mod lua;
mod number;
mod reply;
mod store;
mod zset;

pub use reply::SimReply;

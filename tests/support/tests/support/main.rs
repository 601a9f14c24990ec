//! The fixtures themselves.

mod admin;
mod agent;
mod child;
mod proxy;
mod server;

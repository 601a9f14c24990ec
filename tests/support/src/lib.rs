//! What distlock's tests, benches and examples stand on.

pub mod admin;
pub mod agent;
pub mod proxy;
pub mod server;

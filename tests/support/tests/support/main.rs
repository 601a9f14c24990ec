//! The fixtures themselves.

mod admin;
mod agent;
mod child;
mod cluster;
mod proxy;
mod replicas;
mod sentinels;
mod server;

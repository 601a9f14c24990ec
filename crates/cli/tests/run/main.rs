//! `distlock run`, as a user starts it: real processes and a real server.
//!
//! CMD and all its children share the pipe of `distlock`'s stdout. [`rig::Program::ended`] reads the pipe to its end,
//! so each test also checks that no process is left.

mod group;
mod killed;
mod lost;
mod permits;
mod rig;
mod signals;
mod status;
#[cfg(target_os = "linux")]
mod terminal;

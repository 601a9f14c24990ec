//! distlock
mod client;
mod config;
mod engine;
mod error;
mod guard;
mod lock;
mod owner;
pub mod reentrant;

pub use client::{Builder, Client, Renewed, Stats};
pub use config::Options;
#[cfg(feature = "sim")]
pub use engine::sim;
pub use error::{Error, Lost, NotHeld, Result, Step};
pub use guard::{Guard, Released};
pub use lock::{Acquire, DistLock, Flavour, State};
pub use owner::Owner;
pub use reentrant::ReentrantLock;

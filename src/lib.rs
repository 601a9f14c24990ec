//! distlock
#![allow(missing_docs, dead_code)]
mod engine;
#[cfg(feature = "sim")]
pub use engine::sim;

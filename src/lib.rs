//! distlock
#![allow(missing_docs, dead_code)]
mod engine;

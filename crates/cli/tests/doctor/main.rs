//! `distlock doctor` and `distlock bench`, as a user starts them, on real servers.
//!
//! The servers of a test are sound except for one planted fault. `doctor` must find that fault and no other. A single
//! server also has the finding `no-replica`.

mod bench;
mod cluster;
mod network;
mod replicas;
mod report;
mod rights;
mod sentinel;
mod sound;
mod storage;

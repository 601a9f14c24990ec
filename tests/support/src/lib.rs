//! Support for distlock's tests, benches and examples: servers, faults, child processes, agents of other languages.

pub mod admin;
pub mod agent;
pub mod child;
mod clock;
pub mod cluster;
pub mod leak;
pub mod numbers;
pub mod pages;
pub mod peer;
pub mod ports;
pub mod proxy;
pub mod reaper;
pub mod replicas;
pub mod sentinels;
pub mod server;
mod set;
mod state;
#[cfg(target_os = "linux")]
pub mod terminal;
mod until;
pub mod wait;

pub use admin::Admin;
pub use child::Child;
pub use clock::Clock;
pub use cluster::{Cluster, ClusterOptions, Node, slot_of};
pub use leak::{Baseline, TtlSampler, assert_nothing_left};
pub use numbers::Numbers;
pub use proxy::{Action, Matcher, Mode, Proxy};
pub use replicas::{Member, Replicas, ReplicasOptions};
pub use sentinels::{Promotion, Sentinels, SentinelsOptions};
pub use server::RedisServer;
pub use set::ServerSet;

/// Reports that something is not tested here. The script `x` lists these reports at its end.
pub fn skip(what: &str) {
    // The harness would capture `eprintln` in a test that passes.
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), format!("\nSKIPPED: {what}\n").as_bytes());
}

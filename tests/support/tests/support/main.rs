//! Tests of the fixtures themselves.

mod admin;
mod agent;
mod child;
mod cluster;
mod proxy;
mod replicas;
mod sentinels;
mod server;

use std::path::Path;

pub use distlock_support::wait::until;
use distlock_support::{Child, reaper};

/// A new connection, which waits for replies longer than the redis crate's half a second.
pub async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    let patience = Some(std::time::Duration::from_secs(90));
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    let client = redis::Client::open(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Runs a child test that says one line of process ids and folders, and kills it. Waits until all of these are gone.
pub async fn end_with_their_process(test: &str) {
    let mut process = Child::spawn(test, &[]);
    let line = process.line().await.expect("a line");
    let is_there = |thing: &str| match thing.parse() {
        Ok(pid) => !reaper::has_ended(pid),
        Err(_) => Path::new(thing).exists(),
    };
    assert!(line.split(' ').all(is_there), "{line}");
    process.kill9();
    until(&format!("the end of {line}"), async || !line.split(' ').any(is_there)).await;
}

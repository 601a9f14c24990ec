//! The conformance suite: what every flavour of lock must do, over the one trait. A line a flavour.
//!
//! Bodies are in `suite/`; each gets a server of its own and ends with the check that nothing is left. Rows of Redisson's
//! own tests are cited by their names (`reference/lessons.md` §1.1).

#[path = "../bed/mod.rs"]
mod bed;
mod suite;

use std::sync::Arc;

use distlock::{Client, DistLock, Flavour};

/// The tests of one flavour: its name, and how a lock of it is made.
macro_rules! conformance {
    ($flavour:ident, $make:expr) => {
        mod $flavour {
            use super::*;

            fn make(client: &Client, name: &str) -> Arc<dyn DistLock> {
                let make: fn(&Client, &str) -> Arc<dyn DistLock> = $make;
                make(client, name)
            }

            suite::each!(body);
        }
    };
}

/// One test: the runtime it runs on, and its body.
macro_rules! body {
    (one_thread $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            bed::run(make, suite::$module::$body).await;
        }
    };
    (threads $module:ident::$body:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $body() {
            bed::run(make, suite::$module::$body).await;
        }
    };
    (cluster_node $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            bed::run_on(suite::$module::cluster_node().await, make, suite::$module::$body).await;
        }
    };
}

conformance!(reentrant, |client, name| client.lock(Flavour::Reentrant, name));
conformance!(fair, |client, name| client.lock(Flavour::Fair, name));
conformance!(write, |client, name| client.lock(Flavour::Write, name));
conformance!(read, |client, name| client.lock(Flavour::Read, name));

//! The conformance suite: what every flavour of lock must do, over the trait `DistLock`. Each flavour has one line
//! below.
//!
//! Test bodies are in `suite/`. Lists in `suite/mod.rs` group them by what they require of a flavour. Each body runs on
//! its own server and ends with the leak check. Comments cite the Redisson test that a body is modelled on. No body
//! asserts time: clients never poll (`Bed::still_client`), so that only the tested event can wake a waiter.
//! `tests/sim/timing` asserts how soon.

mod subject;
mod suite;

use std::sync::Arc;

use distlock::{Flavour, MultiLock, RedLock};

use subject::{Kind, Subject};

/// The tests of one flavour: its name, the lists that apply to it, and its `Kind`.
macro_rules! conformance {
    ($flavour:ident: $($list:ident)+, $kind:expr) => {
        mod $flavour {
            use super::*;

            const KIND: Kind = $kind;

            $(suite::$list!(body);)+
        }
    };
}

macro_rules! body {
    (one_thread $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            bed::run(KIND.lock, async |bed| suite::$module::$body(&Subject::new(bed, KIND)).await).await;
        }
    };
    (threads $module:ident::$body:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $body() {
            bed::run(KIND.lock, async |bed| suite::$module::$body(&Subject::new(bed, KIND)).await).await;
        }
    };
    // The body inspects the server.
    (one_server $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            bed::at_one(KIND.lock, async |bed| suite::$module::$body(&Subject::new(bed, KIND)).await).await;
        }
    };
    (cluster_node $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            let server = bed::cluster_node().await;
            bed::run_on(server, KIND.lock, async |bed| suite::$module::$body(&Subject::new(bed, KIND)).await).await;
        }
    };
}

// `./x test` selects these tests by the module's name.
mod conformance {
    use super::*;

    const REENTRANT: Kind = Kind::mutex(|client, name| client.lock(Flavour::Reentrant, name));
    const FAIR: Kind = Kind::mutex(|client, name| client.lock(Flavour::Fair, name))
        .queued_in(|name| format!("redisson_lock_queue:{{{name}}}"));
    const WRITE: Kind = Kind::mutex(|client, name| client.lock(Flavour::Write, name)).held_by_a_writer();
    const READ: Kind = Kind::mutex(|client, name| client.lock(Flavour::Read, name));

    conformance!(reentrant: alone again renewed beside again_beside queued crowded endless, REENTRANT);
    conformance!(fair: alone again renewed beside again_beside queued crowded endless, FAIR);
    conformance!(write: alone again renewed beside again_beside queued crowded endless, WRITE);
    // Readers, and a writer that waits for them. Without `queued` and `crowded`, because readers do not
    // exclude each other (`rwlock::upstream` has crowds of both halves). Without `endless`, because a reader without a
    // lease counts as dead (`rwlock::dead`).
    conformance!(read: alone again renewed beside again_beside, READ.against(WRITE.lock));
    // A writer, and readers that wait for the writer. `write` has the tests of a writer alone.
    conformance!(reader_waits: beside again_beside endless, WRITE.against(READ.lock));

    // Without `renewed`, because fenced locks use the reentrant lock's renewal. `tests/fenced` has crowds that check
    // tokens.
    conformance!(fenced: alone again beside again_beside queued endless, Kind::mutex(|client, name| client.lock(Flavour::Fenced, name)));

    conformance!(spin: alone again renewed beside again_beside queued crowded endless, Kind::mutex(|client, name| client.lock(Flavour::Spin, name)));

    const PLAIN: Kind = Kind::mutex(|client, name| client.lock(Flavour::Plain, name)).as_text();

    // Without `again`, because a plain lock is not reentrant.
    conformance!(plain: alone renewed beside queued crowded endless, PLAIN);

    const BOTH: Kind = Kind::mutex(|client, name| {
        let lock = |name: &str| client.lock(Flavour::Reentrant, name);
        Arc::new(MultiLock::of(vec![lock(name), lock(&format!("{name}/2"))]))
    });

    // Without `queued` and `crowded`, because it is the members that exclude. `tests/multi` has crowds with
    // name lists in all orders.
    conformance!(multi: alone again renewed beside again_beside endless, BOTH.of(|name| vec![name.to_owned(), format!("{name}/2")]));

    // A majority of one server, because a bed has one server. `tests/redlock` uses five. `multi` tests renewals of
    // several holds.
    const MAJORITY: Kind = Kind::mutex(|client, name| {
        // With the default node timeout, a busy server would count as unreachable.
        Arc::new(RedLock::new([client.clone()], name).node_timeout(bed::PATIENCE))
    });

    conformance!(redlock: alone again beside again_beside endless, MAJORITY.of_several());

    // One segment, because different owners can hold different segments of a striped lock. The guard is the segment's
    // guard.
    conformance!(striped: beside again_beside, Kind::mutex(|client, name| Arc::new(client.striped(name, 1))).one_segment());
}

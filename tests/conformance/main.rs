//! The conformance suite: what every flavour of lock must do, over the trait `DistLock`. Each flavour has one line
//! below. Permits with a total of one have a line, too: as a mutex, they run the bodies that need no owner.
//!
//! Test bodies are in `suite/`. Lists in `suite/mod.rs` group them by what they require of a flavour. Each body runs on
//! its own server and ends with the leak check. Comments cite the Redisson test that a body is modelled on. No body
//! asserts time: clients never poll (`Bed::still_client`), so that only the tested event can wake a waiter.
//! `tests/sim/timing` asserts how soon.

mod mutex;
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

/// Runs a body on this bed.
macro_rules! on {
    ($bed:ident, $module:ident::$body:ident) => {{
        let subject = Subject::start($bed, KIND).await;
        suite::$module::$body(&subject).await;
        subject.end().await;
    }};
}

macro_rules! body {
    (one_thread $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            bed::run(KIND.lock, async |bed| on!(bed, $module::$body)).await;
        }
    };
    (threads $module:ident::$body:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $body() {
            bed::run(KIND.lock, async |bed| on!(bed, $module::$body)).await;
        }
    };
    // The body inspects the server.
    (one_server $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            bed::at_one(KIND.lock, async |bed| on!(bed, $module::$body)).await;
        }
    };
    (cluster_node $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            let server = bed::cluster_node().await;
            bed::run_on(server, KIND.lock, async |bed| on!(bed, $module::$body)).await;
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

    conformance!(reentrant: alone owned again renewed beside owned_beside again_beside queued crowded endless, REENTRANT);
    conformance!(fair: alone owned again renewed beside owned_beside again_beside queued crowded endless, FAIR);
    conformance!(write: alone owned again renewed beside owned_beside again_beside queued crowded endless, WRITE);
    // Readers, and a writer that waits for them. Without `queued` and `crowded`, because readers do not
    // exclude each other (`rwlock::upstream` has crowds of both halves). Without `endless`, because a reader without a
    // lease counts as dead (`rwlock::dead`).
    conformance!(read: alone owned again renewed beside owned_beside again_beside, READ.against(WRITE.lock));
    // A writer, and readers that wait for the writer. `write` has the tests of a writer alone.
    conformance!(reader_waits: beside owned_beside again_beside endless, WRITE.against(READ.lock));

    // Without `renewed`, because fenced locks use the reentrant lock's renewal. `tests/fenced` has crowds that check
    // tokens.
    conformance!(fenced: alone owned again beside owned_beside again_beside queued endless, Kind::mutex(|client, name| client.lock(Flavour::Fenced, name)));

    conformance!(spin: alone owned again renewed beside owned_beside again_beside queued crowded endless, Kind::mutex(|client, name| client.lock(Flavour::Spin, name)));

    const PLAIN: Kind = Kind::mutex(|client, name| client.lock(Flavour::Plain, name)).as_text();

    // Without `again`, because a plain lock is not reentrant.
    conformance!(plain: alone owned renewed beside owned_beside queued crowded endless, PLAIN);

    // Without `owned`, `owned_beside` and `again`, because permits have no owner, and their free count stays when nothing
    // is held.
    conformance!(permits: alone renewed beside queued crowded endless, Kind::one_permit());

    const BOTH: Kind = Kind::mutex(|client, name| {
        let lock = |name: &str| client.lock(Flavour::Reentrant, name);
        Arc::new(MultiLock::of(vec![lock(name), lock(&format!("{name}/2"))]))
    });

    // Without `queued` and `crowded`, because it is the members that exclude. `tests/multi` has crowds with
    // name lists in all orders.
    conformance!(multi: alone owned again renewed beside owned_beside again_beside endless, BOTH.of(|name| vec![name.to_owned(), format!("{name}/2")]));

    // A majority of one server, because a bed has one server. `tests/redlock` uses five. `multi` tests renewals of
    // several holds.
    const MAJORITY: Kind = Kind::mutex(|client, name| {
        // With the default node timeout, a busy server would count as unreachable.
        Arc::new(RedLock::new([client.clone()], name).node_timeout(bed::PATIENCE))
    });

    conformance!(redlock: alone owned again beside owned_beside again_beside endless, MAJORITY.of_several());

    // One segment, because different owners can hold different segments of a striped lock. The guard is the segment's
    // guard.
    conformance!(striped: beside owned_beside again_beside, Kind::mutex(|client, name| Arc::new(client.striped(name, 1))).one_segment());
}

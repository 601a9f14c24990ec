//! The conformance suite: what every flavour of lock must do, over the trait `DistLock`. One line per flavour.
//!
//! Test bodies are in `suite/`, in lists by what they require of a flavour. Each runs on a server of its own and ends with the
//! check that nothing is left. Comments cite the Redisson test that a body is modelled on. No body asserts time: clients never
//! look by themselves (`Bed::still_client`), so that a waiter can only be woken by what is tested; `tests/sim/timing` asserts how soon.

mod subject;
mod suite;

use std::sync::Arc;

use distlock::{Flavour, MultiLock, RedLock};

use subject::{Kind, Subject};

/// The tests of one flavour: its name, the lists of bodies that apply to it, and what differs.
macro_rules! conformance {
    ($flavour:ident: $($list:ident)+, $kind:expr) => {
        mod $flavour {
            use super::*;

            const KIND: Kind = $kind;

            $(suite::$list!(body);)+
        }
    };
}

/// One test: the runtime it runs on, and its body.
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
    // Its body looks at the server.
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

// By this name `./x test` tells them from other tests.
mod conformance {
    use super::*;

    const REENTRANT: Kind = Kind::mutex(|client, name| client.lock(Flavour::Reentrant, name));
    const FAIR: Kind = Kind::mutex(|client, name| client.lock(Flavour::Fair, name))
        .queued_in(|name| format!("redisson_lock_queue:{{{name}}}"));
    const WRITE: Kind = Kind::mutex(|client, name| client.lock(Flavour::Write, name)).held_by_a_writer();
    const READ: Kind = Kind::mutex(|client, name| client.lock(Flavour::Read, name));

    conformance!(reentrant: alone again renewed again_renewed beside again_beside queued crowded swarming endless, REENTRANT);
    conformance!(fair: alone again renewed again_renewed beside again_beside queued crowded swarming endless, FAIR);
    conformance!(write: alone again renewed again_renewed beside again_beside queued crowded swarming endless, WRITE);
    // Readers, for whom a writer waits. Not `queued`, `crowded` or `swarming`: readers do not exclude each other
    // (`rwlock::upstream` has crowds of both halves). Not `endless`: a reader without a lease is dead (`rwlock::dead`).
    conformance!(read: alone again renewed again_renewed beside again_beside, READ.against(WRITE.lock));
    // A writer, for whom readers wait. `write` has what concerns the writer alone.
    conformance!(reader_waits: beside again_beside endless, WRITE.against(READ.lock));

    // Not `renewed`: renewals are the reentrant lock's, by the same code. `tests/fenced` has crowds, with their tokens.
    conformance!(fenced: alone again beside again_beside queued endless, Kind::mutex(|client, name| client.lock(Flavour::Fenced, name)));

    conformance!(spin: alone again renewed again_renewed beside again_beside queued crowded swarming endless, Kind::mutex(|client, name| client.lock(Flavour::Spin, name)));

    const PLAIN: Kind = Kind::mutex(|client, name| client.lock(Flavour::Plain, name)).as_text();

    // Not `again`: a plain lock is not reentrant.
    conformance!(plain: alone renewed beside queued crowded swarming endless, PLAIN);

    const BOTH: Kind = Kind::mutex(|client, name| {
        let lock = |name: &str| client.lock(Flavour::Reentrant, name);
        Arc::new(MultiLock::of(vec![lock(name), lock(&format!("{name}/2"))]))
    });

    // Not `queued` or crowds: their members exclude; `tests/multi` has crowds with lists in all orders.
    conformance!(multi: alone again renewed again_renewed beside again_beside endless, BOTH.of(|name| vec![name.to_owned(), format!("{name}/2")]));

    // Over one server, 1 of 1: a bed knows one server. `tests/redlock` has five. Renewals of several holds are tested by `multi`.
    const MAJORITY: Kind = Kind::mutex(|client, name| {
        // As patient with its server as the other locks: a busy machine is not a server that is away.
        Arc::new(RedLock::new([client.clone()], name).node_timeout(bed::PATIENCE))
    });

    conformance!(redlock: alone again beside again_beside endless, MAJORITY.of_several());

    // One segment: with more it would be no mutex. Its guards are the segment's.
    conformance!(striped: beside again_beside, Kind::mutex(|client, name| Arc::new(client.striped(name, 1))).one_segment());
}

//! The conformance suite: what every flavour of lock must do, over the one trait. A line a flavour.
//!
//! Bodies are in `suite/`, in lists by what they ask of a flavour; each gets a server of its own and ends with the check
//! that nothing is left. Rows of Redisson's own tests are cited by their names.

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

    conformance!(reentrant: alone again patient again_patient beside again_beside told dying queued crowded swarming endless, REENTRANT);
    conformance!(fair: alone again patient again_patient beside again_beside told dying queued crowded swarming endless, FAIR);
    conformance!(write: alone again patient again_patient beside again_beside told dying queued crowded swarming endless, WRITE);
    // A reader, whom a writer waits for. Not `queued` to `swarming`, whose holders must all keep each other out
    // (`rwlock::upstream` has crowds of both halves); not `endless`, since a reader without a lease of its own is dead, and keeps
    // nobody out (`rwlock::dead`).
    conformance!(read: alone again patient again_patient beside again_beside told dying, READ.against(WRITE.lock));
    // A writer, whom readers wait for. What is `alone` is `write`'s; a crowd of readers comes in all at once.
    conformance!(reader_waits: beside again_beside told dying endless, WRITE.against(READ.lock));

    // Not `patient` or `dying`: leases and renewals are the reentrant lock's, by the same code. Crowds of many clients are in
    // `tests/fenced`, with what their numbers must be.
    conformance!(fenced: alone again beside again_beside told queued endless, Kind::mutex(|client, name| client.lock(Flavour::Fenced, name)));

    // The holder is the reentrant lock's, script for script. Nobody is `told`: `tests/spin` looks that nobody listens.
    conformance!(spin: beside again_beside queued crowded endless, Kind::mutex(|client, name| client.lock(Flavour::Spin, name)).untold());

    const PLAIN: Kind = Kind::mutex(|client, name| client.lock(Flavour::Plain, name)).as_text();

    // Not what comes in again.
    conformance!(plain: alone patient beside told dying queued crowded swarming endless, PLAIN);

    const BOTH: Kind = Kind::mutex(|client, name| {
        let lock = |name: &str| client.lock(Flavour::Reentrant, name);
        Arc::new(MultiLock::of(vec![lock(name), lock(&format!("{name}/2"))]))
    });

    // Not `queued` or crowds: what keeps them apart are the members; `tests/multi` has them with lists in all orders.
    conformance!(multi: alone again patient again_patient beside again_beside told dying endless, BOTH.of(|name| vec![name.to_owned(), format!("{name}/2")]));

    // Over one server, 1 of 1: what a bed knows about is one server, its keys and its clients. `tests/redlock` has five. A guard
    // of several holds, for longer than leases last, is `multi`'s.
    const MAJORITY: Kind = Kind::mutex(|client, name| {
        // As patient with its server as other locks are: a busy machine is no server that is away.
        Arc::new(RedLock::new([client.clone()], name).node_timeout(bed::secs(3)))
    });

    conformance!(redlock: alone again beside again_beside told endless, MAJORITY.of_several());

    // One segment, for more of them are no mutex. Its guards are those of the segment.
    conformance!(striped: beside again_beside told, Kind::mutex(|client, name| Arc::new(client.striped(name, 1))).one_segment());
}

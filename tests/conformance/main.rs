//! The conformance suite: what every flavour of lock must do, over the one trait. A line a flavour.
//!
//! Bodies are in `suite/`, in lists by what they ask of a flavour; each gets a server of its own and ends with the check
//! that nothing is left. Rows of Redisson's own tests are cited by their names (`reference/lessons.md` §1.1).

#[path = "../bed/mod.rs"]
mod bed;
mod subject;
mod suite;

use distlock::Flavour;

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
    (cluster_node $module:ident::$body:ident) => {
        #[tokio::test]
        async fn $body() {
            let server = suite::$module::cluster_node().await;
            bed::run_on(server, KIND.lock, async |bed| suite::$module::$body(&Subject::new(bed, KIND)).await).await;
        }
    };
}

conformance!(reentrant: alone beside crowded endless, Kind::mutex(|client, name| client.lock(Flavour::Reentrant, name)));
conformance!(fair: alone beside crowded endless, Kind::mutex(|client, name| client.lock(Flavour::Fair, name)));

const WRITE: Kind = Kind::mutex(|client, name| client.lock(Flavour::Write, name)).held_by_a_writer();
const READ: Kind = Kind::mutex(|client, name| client.lock(Flavour::Read, name));

conformance!(write: alone beside crowded endless, WRITE);
// A reader, whom a writer waits for. Not `crowded`, whose holders must all keep each other out (`rwlock::upstream` has
// crowds of both halves); not `endless`, since a reader without a lease of its own is dead, and keeps nobody out
// (`rwlock::dead`).
conformance!(read: alone beside, READ.against(WRITE.lock));
// A writer, whom readers wait for. What is `alone` is `write`'s; a crowd of readers comes in all at once.
conformance!(reader_waits: beside endless, WRITE.against(READ.lock));

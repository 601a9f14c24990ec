//! The plain lock with the libraries of other languages on the same keys: `redsync` (Go), `redlock` (Node), `redis-py`
//! (Python), `rslock` (Rust). Each runs in its own process (`interop/`).
//!
//! If a language is missing, its tests are skipped with a note on standard error. With `CI` in the environment, nothing
//! is skipped.

/// Makes a test of each function for each library.
macro_rules! libraries {
    ([$($module:ident: $library:ident),*], $tests:tt) => {
        $(libraries!(@one $module $library $tests);)*
    };
    (@one $module:ident $library:ident [$($test:ident)*]) => {
        mod $module {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(Library::$library).await;
            })*
        }
    };
}

mod one_server;
mod quorum;

use std::sync::Arc;
use std::time::Duration;

use bed::Bed;
use distlock::Flavour;
use distlock_support::peer::{self, Library, Peer};

const AT_ONCE: Duration = Duration::ZERO;
/// A lease that outlasts every test.
const LONG: Duration = Duration::from_secs(3600);

/// Returns false if the library's language is missing. Builds the library's agent, so that tests do not wait for the
/// build.
async fn is_ready(library: Library) -> bool {
    if !library.is_here() {
        return false;
    }
    let built = tokio::task::spawn_blocking(move || peer::build(library)).await;
    assert!(!built.expect("it is built").is_empty());
    true
}

/// Runs a body with a plain lock and a peer on the same server. Skipped if the peer's language is missing.
async fn beside(library: Library, body: impl AsyncFn(&Bed, &Arc<Peer>)) {
    if !is_ready(library).await {
        return;
    }
    bed::run(
        |client, name| client.lock(Flavour::Plain, name),
        async |bed| {
            let peer = Arc::new(Peer::start(library, &[bed.server.url()]).await);
            body(bed, &peer).await;
            Arc::into_inner(peer).expect("nobody else has it").end().await;
        },
    )
    .await;
}

//! Tests of the engine over a tiny fake server with paused time: what the real scripts answer is the business of the
//! simulator and of the tests against real servers; here it is what the engine makes of each answer, and of none.

mod acquire;
mod book;
mod coalesce;
mod fake;
mod registry;
mod release;
mod renewal;
mod stress;

use std::sync::Arc;
use std::time::Duration;

use crate::Options;
use crate::client::Client;
use crate::engine::transport::Transport;

use fake::Fake;

/// A client over a fake server. `change` may set options.
fn client(change: impl FnOnce(&mut Options)) -> (Client, Arc<Fake>) {
    let fake = Fake::new();
    let mut options = Options { preflight: false, coalesce: false, ..Options::default() };
    change(&mut options);
    let node: Arc<dyn Transport> = Arc::new(Arc::clone(&fake));
    (Client::over(options, node).unwrap(), fake)
}

/// Lets everything that is ready run, and everything that takes no longer than a few replies.
async fn settle() {
    tokio::time::sleep(ms(20)).await;
}

/// Shuts down, and asserts that nothing is left, here or on the server.
async fn done(client: Client, fake: &Fake) {
    client.shutdown(Duration::from_secs(60)).await.unwrap();
    settle().await;
    let stats = client.stats();
    assert_eq!((stats.holds, stats.waiting, stats.under_way), (0, 0, 0), "{stats:?}");
    assert_eq!(fake.held(), Vec::<String>::new());
    drop(client);
    settle().await;
    // The test's own reference.
    assert_eq!(fake.tasks(), 0, "tasks left");
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

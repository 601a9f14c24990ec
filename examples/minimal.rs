//! The first lock: `cargo run --example minimal`. Starts a Redis of its own unless `REDIS_URL` names one.

mod private_server;

use std::time::Duration;

use distlock::{Client, Released};

#[tokio::main]
async fn main() -> distlock::Result<()> {
    let server = private_server::start_unless_given();

    let client = Client::connect(&server.url).await?;
    let lock = client.reentrant(&format!("{}orders:42", server.prefix));

    // Waits for as long as somebody else holds it. Fails when the server is away for longer than its retries last (20 to 28 s).
    // While the guard lives, the lock is renewed in the background.
    let guard = lock.lock().await?;
    println!("held by {:?} for another {:?}", guard.owner(), guard.remaining());

    // Somebody else would not get it now.
    assert!(lock.try_lock().await?.is_none());
    assert!(lock.lock_for(Duration::from_millis(50)).await?.is_none());

    // Dropping the guard releases too, in the background; this waits for the answer.
    assert_eq!(guard.unlock().await?, Released::Free);
    println!("released");

    client.shutdown(Duration::from_secs(5)).await
}

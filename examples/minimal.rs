//! The first lock: `cargo run --example minimal`. `REDIS_URL` names the server; without it `redis://127.0.0.1:6379`.

use std::time::Duration;

use distlock::{Client, Released};

#[tokio::main]
async fn main() -> distlock::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());

    let client = Client::connect(&url).await?;
    // With the process id, so that no other program holds the lock.
    let lock = client.reentrant(&format!("distlock-example:{}:orders:42", std::process::id()));

    // Waits while another holder has the lock. Fails if the server is away for longer than the retries last (20 to 28
    // s). While the guard lives, the lock is renewed in the background.
    let guard = lock.lock().await?;
    println!("held by {:?} for another {:?}", guard.owner(), guard.remaining());

    // No other acquire succeeds now.
    assert!(lock.try_lock().await?.is_none());
    assert!(lock.lock_for(Duration::from_millis(50)).await?.is_none());

    // Dropping the guard would release the lock in the background. `unlock` waits for the reply.
    assert_eq!(guard.unlock().await?, Released::Free);
    println!("released");

    client.shutdown(Duration::from_secs(5)).await
}

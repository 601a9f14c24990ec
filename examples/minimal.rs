//! The first lock: `REDIS_URL=redis://127.0.0.1:6379 cargo run --example minimal`.

use distlock::Client;

#[tokio::main]
async fn main() -> distlock::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let client = Client::connect(&url).await?;
    let lock = client.reentrant("orders:42");

    let guard = lock.lock().await?;
    println!("held by {} for another {:?}", guard.owner(), guard.remaining());
    println!("released: {:?}", guard.unlock().await?);

    client.shutdown(std::time::Duration::from_secs(1)).await
}

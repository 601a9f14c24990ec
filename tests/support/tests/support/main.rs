//! The fixtures themselves.

mod admin;
mod agent;
mod child;
mod cluster;
mod proxy;
mod replicas;
mod sentinels;
mod server;

/// Waits for an event.
pub async fn until(what: &str, check: impl AsyncFn() -> bool) {
    let happens = async {
        while !check().await {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(90), happens)
        .await
        .unwrap_or_else(|_| panic!("waited for {what}"));
}

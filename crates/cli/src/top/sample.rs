//! Asks the servers: a slow scan of all keys, and quick looks at the locks on the screen.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::connect::Servers;
use crate::exit::Failure;
use crate::keys::{Found, look};

/// Pause between two pages of the scan. A page takes the server about a millisecond, so the scan uses less than a tenth
/// of its time: about 30 000 keys a second.
const BETWEEN_PAGES: Duration = Duration::from_millis(12);
/// Pause after each pass of the scan, also after a failed one.
const BETWEEN_PASSES: Duration = Duration::from_secs(1);

/// An answer of the servers.
#[derive(Debug)]
pub enum Sample {
    /// A page of the scan: its locks, and its number of keys.
    Page(Vec<Found>, u64),
    /// The scan has seen all keys once, and begins again.
    PassEnded,
    /// A look at these keys, and the locks among them that are held.
    Looked(Vec<Bytes>, Vec<Found>),
    Failed(String),
}

/// Scans all primaries, again and again. Ends when the receiver is dropped.
pub async fn scan(servers: &Servers, pattern: &str, out: mpsc::Sender<Sample>) {
    loop {
        let ended = match pass(servers, pattern, &out).await {
            Ok(()) => Sample::PassEnded,
            Err(failure) => Sample::Failed(failure.to_string()),
        };
        if out.send(ended).await.is_err() {
            return;
        }
        sleep(BETWEEN_PASSES).await;
    }
}

async fn pass(servers: &Servers, pattern: &str, out: &mpsc::Sender<Sample>) -> Result<(), Failure> {
    for raw in servers.primaries() {
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let page = look::page(servers, raw, &cursor, pattern).await?;
            if out.send(Sample::Page(page.locks, page.looked)).await.is_err() {
                return Ok(());
            }
            cursor = page.cursor;
            if &cursor[..] == b"0" {
                break;
            }
            sleep(BETWEEN_PAGES).await;
        }
    }
    Ok(())
}

/// Looks at the watched keys once each interval. Ends when the receiver is dropped.
pub async fn look(
    servers: &Servers,
    interval: Duration,
    watched: watch::Receiver<Vec<Bytes>>,
    out: mpsc::Sender<Sample>,
) {
    loop {
        sleep(interval).await;
        let keys = watched.borrow().clone();
        if keys.is_empty() {
            continue;
        }
        let sample = match look_at(servers, &keys).await {
            Ok(found) => Sample::Looked(keys, found),
            Err(failure) => Sample::Failed(failure.to_string()),
        };
        if out.send(sample).await.is_err() {
            return;
        }
    }
}

/// One command for each primary that has some of these keys.
async fn look_at(servers: &Servers, keys: &[Bytes]) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for (raw, keys) in servers.grouped(keys.iter().cloned(), |key| &key[..])? {
        found.extend(look::keys(servers, raw, &keys).await?);
    }
    Ok(found)
}

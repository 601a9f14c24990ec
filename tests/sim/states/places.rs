//! Fair locks: places in several queues at once.

use super::Sight;
use crate::prelude::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Remaining time of the only place in this queue, in ms.
async fn lasts(client: &Client, name: &str) -> u128 {
    let queue = client.fair(name).queue().await.unwrap();
    assert_eq!(queue.waiters.len(), 1, "{name}: {queue:?}");
    queue.waiters[0].remaining.unwrap().as_millis()
}

/// One command refreshes all places of a client, and a broken queue does not stop the others.
#[test]
fn refresh_keeps_queue_entries_beside_broken_queue() {
    virtually(async || {
        let sight = Sight::new().await;
        let other = Sight::party(&sight.server, Prefer::Readers);
        let mut held = Vec::new();
        for name in NAMES {
            held.push(other.client.fair(name).lock_leased(ms(120_000)).await.unwrap());
        }
        let waits = NAMES.map(|name| {
            let lock = sight.us.client.fair(name);
            tokio::spawn(async move { lock.lock().await.map(drop) })
        });
        sleep(ms(20_000)).await;
        for name in NAMES {
            assert!(lasts(&other.client, name).await > 2500, "{name}");
        }
        does(&sight.server, "del redisson_lock_queue:{b}");
        does(&sight.server, "set redisson_lock_queue:{b} x");
        sleep(ms(20_000)).await;
        for name in ["a", "c"] {
            assert!(lasts(&other.client, name).await > 2500, "{name}, beside one that is broken");
        }
        does(&sight.server, "del redisson_lock_queue:{b}");
        for guard in held {
            guard.unlock().await.unwrap();
        }
        for (wait, name) in waits.into_iter().zip(NAMES) {
            let outcome = wait.await.unwrap();
            let is_told = matches!(&outcome, Err(Error::WrongType { name, .. }) if &**name == "b");
            // Only the waiter of the broken queue gets an error.
            assert!(if name == "b" { is_told } else { outcome.is_ok() }, "{name}: {outcome:?}");
        }
    });
}

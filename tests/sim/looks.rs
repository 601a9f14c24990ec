//! What a waiter finds out by looking, where no message says so.

use distlock::Flavour;
use distlock_sim::{LinkOptions, SimServer};
use tokio::time::{sleep, timeout};

use crate::rig::{Party, lock, ms, settled, virtually};

/// The message that it is free, or theirs, comes while the channel is only just being listened to: nobody hears it.
#[test]
fn a_lock_that_becomes_free_before_the_subscription_stands_is_had_at_once() {
    for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced] {
        virtually(move || async move {
            let server = SimServer::new(1);
            let party = |latency| {
                let way = LinkOptions { latency_min: ms(latency), latency_max: ms(latency), ..LinkOptions::default() };
                Party::new(&server, way, |options| options.coalesce = false)
            };
            let (near, far) = (party(1), party(20));
            let of_writer = if flavour == Flavour::Read { Flavour::Write } else { flavour };
            let held = lock(&near.client, of_writer, "x").lock().await.unwrap();
            // So that the server knows the scripts, and this client the server's clock.
            lock(&far.client, flavour, "y").lock().await.unwrap().unlock().await.unwrap();
            let before = far.link.sent();
            let waits = lock(&far.client, flavour, "x");
            let waits = tokio::spawn(async move { waits.lock().await.unwrap() });
            while far.link.sent() < before + 2 {
                sleep(ms(1)).await;
            }
            assert!(server.channels().is_empty(), "{flavour}");
            held.unlock().await.unwrap();
            assert!(server.channels().is_empty(), "{flavour}");
            let guard = timeout(ms(100), waits).await.expect("no second look behind the subscription").unwrap();
            guard.unlock().await.unwrap();
            settled(&server, &[&near, &far], ms(20_000)).await.unwrap();
        });
    }
}

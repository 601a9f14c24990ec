//! A flood of messages. Any client of Redis may publish on a lock's channel.

use crate::prelude::*;

/// A waiter attempts after each message of a short burst, later after at most one message every 10 ms. So a busy
/// channel does not flood the server.
#[test]
fn waiter_does_not_query_server_for_every_message() {
    const MESSAGES: u64 = 4000;
    each([Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write], async move |flavour| {
        let server = SimServer::new(1);
        let [holds, waits] = [(); 2].map(|()| Party::new(&server, LinkOptions::instant(), |_| {}));
        let other = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        let guard = rig::lock(&holds.client, other, "l").lock().await.unwrap();
        let lock = rig::lock(&waits.client, flavour, "l");
        let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
        sleep(ms(500)).await;
        let before = server.scripts_run();
        for _ in 0..MESSAGES {
            for channel in waits.link.subscriptions() {
                server.publish(&channel, b"0");
            }
            sleep(ms(1)).await;
        }
        let asked = server.scripts_run() - before;
        // The count includes a few renewals and refreshes of queue entries.
        assert!((50..64 + MESSAGES / 10 + 60).contains(&asked), "asked {asked} times");
        drop(guard);
        waiter.await.unwrap().unwrap();
        settled(&server, &[&holds, &waits], ms(20_000)).await.unwrap();
    });
}

//! A flood of messages, from whoever may publish.

use crate::prelude::*;

/// A burst of looks at once, then one every 10 ms: the server of a lock that many talk about is not asked for each word.
#[test]
fn who_waits_does_not_ask_for_every_message() {
    const MESSAGES: u64 = 4000;
    each([Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write], async move |flavour| {
        let server = SimServer::new(1);
        let [holds, waits] = [(); 2].map(|()| Party::new(&server, LinkOptions::instant(), |_| {}));
        // A reader waits for a writer.
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
        // Renewals and places kept are few.
        assert!((50..64 + MESSAGES / 10 + 60).contains(&asked), "asked {asked} times");
        drop(guard);
        waiter.await.unwrap().unwrap();
        settled(&server, &[&holds, &waits], ms(20_000)).await.unwrap();
    });
}

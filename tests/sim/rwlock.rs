//! Rules of read-write locks, in orders of events that random runs seldom produce.

use crate::prelude::*;
use tokio::sync::watch;

const NAME: &str = "l";

fn party(server: &SimServer, set: impl FnOnce(&mut Options)) -> Party {
    Party::new(server, LinkOptions { ordered: true, ..LinkOptions::default() }, |options| {
        options.watchdog = ms(600);
        options.command_timeout = ms(200);
        options.subscribe_timeout = ms(200);
        set(options);
    })
}

/// M2: a hold is renewed while another hold's release is in flight. The release removes the cover that was renewed. The
/// renewed hold stays held.
#[test]
fn partial_release_keeps_lease_of_renewal_in_flight() {
    virtually(async || {
        let server = SimServer::new(1);
        let us = party(&server, |_| {});
        let (lock, owner) = (us.client.rw(NAME).read(), us.client.owner());
        let (short, kept) = (enter(&lock, &owner, 60).await, take(&lock, &owner).await);
        // The first cover expires before its renewal. Then the second cover is the last one, which a release removes.
        sleep(ms(150)).await;
        assert!(!short.is_held() && kept.is_held());
        let (_, released) = tokio::join!(us.client.renew_now(), short.unlock());
        assert!(released.is_err());
        assert_eq!(count(&server, Flavour::Read, NAME, &text(&owner)), 1);
        let has = lasts(&server, Flavour::Read, NAME, &text(&owner)) + 1;
        assert!(kept.remaining() <= ms(has as u64), "M2: counts on {:?}, the server has {has} ms", kept.remaining());
    });
}

/// A mark is the entry of a waiting writer.
#[test]
fn short_writer_mark_does_not_shorten_mark_of_other_writer() {
    virtually(async || {
        let server = SimServer::new(1);
        let [long, short, other] = [4000, 50, 4000].map(|cap| {
            party(&server, |options| {
                options.prefer = Prefer::Writers;
                options.poll_cap = ms(cap);
                options.max_reader_delay = ms(2000);
            })
        });
        let reader = other.client.rw(NAME).read().lock().await.unwrap();
        let patient = writer(&long.client, NAME, ms(3000));
        sleep(ms(20)).await;
        // This waiter is never polled again, so its mark of 100 ms expires.
        let _gone = writer(&short.client, NAME, ms(3000));
        sleep(ms(20)).await;
        short.link.partition(true);
        sleep(ms(300)).await;
        assert!(!patient.is_finished());
        let late = other.client.rw(NAME).read().try_lock().await.unwrap();
        let marks = server.command(&[b"zcard", b"{l}:rwlock_waiting"]);
        assert!(late.is_none(), "a writer waits, and a reader came in before it; marks: {marks:?}");
        assert_ne!(marks, SimReply::Int(0));
        drop(reader);
        assert!(patient.await.unwrap());
    });
}

/// Each reader is held back for `max_reader_delay`, whenever other readers of its process began to wait.
#[test]
fn each_reader_is_held_back_for_hold_back_time() {
    virtually(async || {
        const HOLD_BACK: u64 = 300;
        let server = SimServer::new(1);
        let [us, reads, writes] = [(); 3].map(|()| {
            party(&server, |options| {
                options.prefer = Prefer::Writers;
                options.max_reader_delay = ms(HOLD_BACK);
            })
        });
        let reader = reads.client.rw(NAME).read().lock().await.unwrap();
        let writer = waiter(lock(&writes.client, Flavour::Write, NAME).into());
        sleep(ms(20)).await;
        // The last reader starts when the first one acquires, while the readers between them still retry.
        let (first, _) = watch::channel(false);
        let late = [Some(0), Some(100), Some(250), None].map(|after| {
            let (lock, first) = (us.client.rw(NAME).read(), first.clone());
            tokio::spawn(async move {
                match after {
                    Some(after) => sleep(ms(after)).await,
                    None => drop(first.subscribe().wait_for(|is_in| *is_in).await.unwrap()),
                }
                let began = Instant::now();
                let guard = lock.lock().await.unwrap();
                first.send_replace(true);
                let waited = began.elapsed();
                sleep(ms(2000)).await;
                drop(guard);
                waited
            })
        });
        for (n, late) in late.into_iter().enumerate() {
            let waited = late.await.unwrap();
            assert!((ms(HOLD_BACK)..ms(HOLD_BACK + 50)).contains(&waited), "reader {n} was held back for {waited:?}");
        }
        assert!(!writer.is_finished());
        drop(reader);
        writer.await.unwrap();
    });
}

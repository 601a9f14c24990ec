//! Places and their deadlines: kept while their clients live, restored when lost, and never moved too far.

use super::{
    BOUND, DEADLINES, Held, PLACE, QUEUE, SECOND, deadlines, held, party, plant, queue, waiter, waiter_as, waiters,
};
use crate::prelude::*;

/// Redisson #3004: its queue drops a waiter that waits longer than the queue's limit. Our queue keeps the waiter, even
/// under an owner of Java.
#[test]
fn waiter_keeps_its_queue_entry_however_long_it_waits() {
    virtually(async || {
        let Held { server, holder, guard, others: [one, two] } = held().await;
        let java: Owner = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa:7".parse().unwrap();
        let mut line = Vec::new();
        for n in 0..6 {
            let owner = (n == 5).then(|| java.clone());
            line.push(waiter_as(&server, if n % 2 == 0 { &one } else { &two }, owner).await);
        }
        let places = queue(&server);
        assert_eq!(places[5], java.to_string());
        for _ in 0..600 {
            sleep(ms(100)).await;
            assert_eq!(queue(&server), places);
            let left = deadlines(&server);
            assert!(left.len() == 6 && left.values().all(|left| *left > 0.0 && *left <= PLACE), "{left:?}");
        }
        guard.unlock().await.unwrap();
        assert!(all(line).await.is_sorted(), "out of order");
        settled(&server, &[&holder, &one, &two], 30 * SECOND).await.unwrap();
    });
}

/// Redisson's `…TimeoutDrift` tests (#1104, #2099): failed waits, acquires and dead waiters move no deadline.
#[test]
fn queue_deadline_is_never_beyond_one_entry_lifetime() {
    virtually(async || {
        let Held { server, holder: _holder, guard, others: [going, alive] } = held().await;
        let watched = server.clone();
        let watcher = tokio::spawn(async move {
            loop {
                let left = deadlines(&watched);
                assert!(left.values().all(|left| *left <= PLACE), "{left:?}");
                sleep(ms(10)).await;
            }
        });
        waiters(&server, &going, 1).await;
        let workers = (0..3).map(async |_| {
            for _ in 0..15 {
                assert!(alive.client.fair("a").lock_for(ms(150)).await.unwrap().is_none());
            }
        });
        futures::future::join_all(workers).await;
        sleep(ms(20)).await;
        assert_eq!(queue(&server).len(), 1, "a waiter that gave up has left its place");
        going.link.partition(true);
        for _ in 0..3 {
            waiters(&server, &alive, 3).await;
        }
        guard.unlock().await.unwrap();
        sleep(30 * SECOND).await;
        assert!(queue(&server).is_empty());
        assert!(!watcher.is_finished(), "a deadline was moved");
        watcher.abort();
    });
}

/// Redisson's `…TimeoutDrift_Descrete` tests: a Java waiter's deadline is the deadline of the waiter ahead plus its own
/// wait.
#[test]
fn deadlines_of_java_waiters_keep_their_distance() {
    const WAIT: f64 = 60_000.0;
    const GRACE: f64 = 500.0;
    virtually(async || {
        let Held { server, holder: _holder, guard, others: [client] } = held().await;
        // Four waiters: ours, Java's, ours, Java's. Java's waiters are appended as by Redisson's script.
        let last = || queue(&server).pop().unwrap();
        let java = |n| plant(&server, n, deadlines(&server)[&last()] + WAIT);
        let first = waiter(&server, &client).await;
        let (ours, one) = (last(), java(1));
        let third = waiter(&server, &client).await;
        let two = java(2);
        let check = async |what: &str, expected: &[(&String, f64)]| {
            for _ in 0..500 {
                sleep(ms(10)).await;
                let left = deadlines(&server);
                for (owner, places) in expected {
                    // Our deadlines are 2.75 to 5.5 s ahead. Java's deadlines are relative to ours.
                    let (at, least) = (left[*owner] - places * WAIT, PLACE - 2_750.0);
                    assert!((least..=PLACE).contains(&at), "{what}: {owner} in {left:?}");
                }
            }
        };
        check("all stand", &[(&ours, 0.0), (&one, 1.0), (&two, 2.0)]).await;
        // Now Java's second waiter directly follows Java's first.
        third.abort();
        check("one gave up", &[(&ours, 0.0), (&one, 1.0), (&two, 2.0)]).await;
        assert_eq!(queue(&server).len(), 3);
        // When the first waiter acquires, Java's deadlines become earlier by its wait. Its release notifies Java's
        // first waiter, which must acquire within the grace time.
        let before = deadlines(&server);
        guard.unlock().await.unwrap();
        first.await.unwrap();
        let after = deadlines(&server);
        assert!((GRACE - 50.0..=GRACE).contains(&after[&one]), "{after:?}");
        let nearer = before[&two] - after[&two];
        assert!((PLACE..PLACE + 50.0).contains(&nearer), "{nearer} ms nearer: {before:?}, {after:?}");
    });
}

#[test]
fn abandoned_java_waiters_are_removed_after_their_deadlines() {
    virtually(async || {
        let server = SimServer::new(1);
        let ours = party(&server, |_| {});
        let began = Instant::now();
        for n in 1..=3 {
            plant(&server, n, f64::from(n) * 400.0);
        }
        assert!(ours.client.fair("a").try_lock().await.unwrap().is_none(), "others are ahead");
        let took = waiter(&server, &ours).await.await.unwrap() - began;
        // The client polls once a second.
        assert!(took >= ms(1_200) && took <= ms(2_300), "{took:?}");
        // Without a waiting client, the next acquire notices.
        plant(&server, 1, -1.0);
        ours.client.fair("a").try_lock().await.unwrap().expect("nobody is ahead").unlock().await.unwrap();
        settled(&server, &[&ours], 30 * SECOND).await.unwrap();
    });
}

/// The queue or the deadlines are lost, or entries without a waiter are added. All waiters get a place again, and
/// acquire.
#[test]
fn waiters_requeue_after_queue_is_lost_or_corrupted() {
    const STRAY: &str = "0a1b2c3d-0000-8000-9000-00000000000d:1";
    let [queue_lost, deadlines_lost] = [format!("del {QUEUE}"), format!("del {DEADLINES}")];
    let spoilt = vec![format!("lpush {QUEUE} {STRAY}"), format!("zadd {DEADLINES} 9e15 {STRAY}1")];
    let harms = [vec![queue_lost.clone()], vec![deadlines_lost.clone()], vec![queue_lost, deadlines_lost], spoilt];
    each(pairs(harms, [0, 3_000].map(ms)), async |(harm, pause)| {
        let Held { server, holder, guard, others: [one, two] } = held().await;
        let mut line = waiters(&server, &one, 4).await;
        line.extend(waiters(&server, &two, 4).await);
        for command in &harm {
            does(&server, command);
        }
        sleep(pause).await;
        if !pause.is_zero() {
            let (mut there, scored) = (queue(&server), deadlines(&server));
            there.retain(|owner| owner != STRAY && scored.contains_key(owner));
            assert_eq!(there.len(), 8, "{there:?}, {scored:?}");
        }
        let released = Instant::now();
        guard.unlock().await.unwrap();
        for had in all(line).await {
            let took = had - released;
            assert!(took <= BOUND + SECOND, "served after {took:?}");
        }
        settled(&server, &[&holder, &one, &two], 60 * SECOND).await.unwrap();
    });
}

/// Redisson removes dead waiters of ours from the queue, but does not know their registrations.
#[test]
fn leftover_registration_does_not_hide_java_waiter() {
    virtually(async || {
        let Held { server, holder: _holder, guard, others: [client] } = held().await;
        let line = waiters(&server, &client, 3).await;
        does(&server, "hset redisson_lock_waiters:{a}:a 0a1b2c3d-0000-8000-9000-00000000000d:1 nonce");
        let java = plant(&server, 1, 5_000.0);
        sleep(30 * SECOND).await;
        assert!(deadlines(&server).contains_key(&java), "it was not moved along");
        assert_eq!(does(&server, "hlen redisson_lock_waiters:{a}:a"), SimReply::Int(3), "the registration is left");
        does(&server, &format!("lrem {QUEUE} 0 {java}"));
        does(&server, &format!("zrem {DEADLINES} {java}"));
        guard.unlock().await.unwrap();
        all(line).await;
    });
}

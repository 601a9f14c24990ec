//! Beside those who use other libraries: they tell nobody, and hear nothing.

use std::time::Instant;

use bed::{Bed, QUICK, eventually, median, ms, secs};
use distlock::{Backoff, Client, DistLock, Error, Lost, NotHeld, Released};
use tokio::task::JoinSet;

use crate::rig::{Stranger, plain, sent, value, warm};

fn stranger<'a>(bed: &'a Bed, value: &'a str) -> Stranger<'a> {
    Stranger { admin: &bed.admin, value }
}

/// What libraries write: hex, base64, a uuid, bytes that are no text.
const VALUES: [&str; 6] = [
    "a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5",
    "PpQbmd7PO+5LjbGwDPnMPA==",
    "7be4a1a69a6b4a4c8b9f1c1f6f8f6f8f",
    "ADDED:2024-05-01T00:00:00.000Z@host",
    "x",
    "",
];

#[tokio::test]
async fn each_keeps_the_other_out_and_neither_gives_back_the_others() {
    plain(async |bed| {
        let client = bed.client().await;
        let lock = client.plain("job");
        for theirs in VALUES {
            let other = stranger(bed, theirs);
            let guard = lock.lock().await.unwrap();
            assert!(!other.takes("job", secs(5)).await && !other.extends("job", secs(60)).await);
            assert!(!other.releases("job").await && guard.is_held());
            let owner = guard.owner().clone();
            guard.unlock().await.unwrap();
            assert!(other.takes("job", secs(20)).await, "{theirs:?}");
            assert!(lock.try_lock().await.unwrap().is_none());
            assert!(lock.lock_for(ms(30)).await.unwrap().is_none());
            let refused = lock.release(&owner).await;
            assert!(
                matches!(&refused, Err(Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }) if owner == theirs),
                "{refused:?}"
            );
            let state = lock.state().await.unwrap();
            assert_eq!(state.holders, [(theirs.to_owned(), 1)]);
            assert!(state.remaining.unwrap() > secs(18));
            assert!(other.extends("job", secs(40)).await && other.releases("job").await, "{theirs:?}");
            assert!(!lock.is_locked().await.unwrap());
        }
        // Bytes that are no text are somebody all the same.
        let () = bed.admin.cmd_bytes(&[&b"SET"[..], b"job", b"\xff\x00\xfe"]).await;
        assert!(lock.lock_for(ms(30)).await.unwrap().is_none());
        assert_eq!(lock.state().await.unwrap().holders.len(), 1);
        assert!(lock.force_unlock().await.unwrap());
    })
    .await;
}

/// Waits for the lock behind somebody; when it was had.
async fn wait_behind(client: &Client, lock: distlock::PlainLock) -> tokio::task::JoinHandle<Instant> {
    let waiter = tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        let now = Instant::now();
        guard.unlock().await.unwrap();
        now
    });
    eventually("it waits", async || client.stats().waiting == 1).await;
    waiter
}

/// A stranger's release is found within a pause of 100 ms, the end of its lease at once.
#[tokio::test]
async fn a_strangers_release_is_found_by_looking_and_its_lease_by_its_end() {
    plain(async |bed| {
        let client = bed.client().await;
        let other = stranger(bed, VALUES[0]);
        let (mut times, mut late) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            assert!(other.takes("job", secs(60)).await);
            let waiter = wait_behind(&client, client.plain("job")).await;
            // So long that the pauses are the longest.
            tokio::time::sleep(ms(400)).await;
            let start = Instant::now();
            assert!(other.releases("job").await);
            times.push(waiter.await.unwrap().saturating_duration_since(start));
        }
        for _ in 0..8 {
            let start = Instant::now();
            assert!(other.takes("job", ms(400)).await);
            // However long the pauses are.
            let patient = client.plain("job").poll(Backoff::constant(secs(60)).unwrap());
            let waited = wait_behind(&client, patient).await.await.unwrap() - start;
            late.push(waited.checked_sub(ms(398)).expect("not before its end"));
        }
        println!("in after a release: {times:?}, after a lease: {late:?}");
        let worst = times.iter().chain(&late).max().copied().unwrap();
        assert!(median(times) < ms(200) && median(late) < ms(100) && worst < secs(1), "{worst:?}");
    })
    .await;
}

/// The pauses are the lock's, from 5 ms to 100 ms unless it says otherwise.
#[tokio::test]
async fn those_who_wait_look_as_they_were_told() {
    plain(async |bed| {
        let client = warm(bed).await;
        assert!(stranger(bed, "x").takes("job", secs(60)).await);
        let lock = || client.plain("job");
        for (lock, fewest, most) in [
            // 5, 10, 20, 40, 80, 100, ..
            (lock(), 6, 26),
            (lock().poll(Backoff::constant(ms(50)).unwrap()), 10, 44),
            (lock().poll(Backoff::constant(secs(10)).unwrap()), 1, 3),
        ] {
            sent(bed).await;
            assert!(lock.lock_for(secs(1)).await.unwrap().is_none());
            let (looks, _) = sent(bed).await;
            println!("{lock:?}: {looks} looks");
            assert!((fewest..=most).contains(&looks), "{looks} looks in a second: {lock:?}");
        }
        assert!(stranger(bed, "x").releases("job").await);
    })
    .await;
}

/// It changes hands between ours and theirs: behind ours a waiter is told, behind theirs it looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_and_ours_take_turns_and_one_has_it_at_a_time() {
    plain(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let counter = std::sync::Arc::new(bed::Counter::default());
        let mut tasks = JoinSet::new();
        for n in 0..4 {
            let (lock, counter) = (clients[n % 2].plain("job"), std::sync::Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..25 {
                    let guard = lock.lock().await.unwrap();
                    counter.bump(ms(1)).await;
                    guard.unlock().await.unwrap();
                    tokio::time::sleep(ms(4)).await;
                }
            });
        }
        for n in 0..3 {
            let url = bed.server.url();
            let counter = std::sync::Arc::clone(&counter);
            tasks.spawn(async move {
                let (admin, value) = (distlock_support::Admin::from_url(&url).await, format!("stranger {n}"));
                let other = Stranger { admin: &admin, value: &value };
                for _ in 0..25 {
                    while !other.takes("job", secs(30)).await {
                        tokio::time::sleep(ms(2)).await;
                    }
                    counter.bump(ms(1)).await;
                    assert!(other.releases("job").await);
                    tokio::time::sleep(ms(4)).await;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(counter.get(), 7 * 25);
    })
    .await;
}

/// Ours is kept by its watchdog past a lease, and lost when somebody deletes it without comparing.
#[tokio::test]
async fn a_hold_of_ours_is_renewed_and_its_loss_is_told() {
    plain(async |bed| {
        let client = bed.quick().await;
        let lock = client.plain("job");
        let other = stranger(bed, VALUES[1]);
        let guard = lock.lock().await.unwrap();
        let until = Instant::now() + QUICK + QUICK / 2;
        while Instant::now() < until {
            assert!(!other.takes("job", secs(5)).await);
            tokio::time::sleep(ms(20)).await;
        }
        assert!(guard.is_held());
        let mut guard = guard;
        for taken in [false, true] {
            let () = bed.admin.cmd(&["DEL", "job"]).await;
            if taken {
                assert!(other.takes("job", secs(60)).await);
            }
            // By the next renewal.
            let lost = tokio::time::timeout(QUICK, guard.lost()).await.expect("it is told");
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
            bed::idle(&client).await;
            // What is somebody else's by now is left to them.
            assert_eq!(value(bed, "job").await.as_deref(), taken.then_some(VALUES[1]));
            assert!(!taken || other.releases("job").await);
            guard = lock.lock().await.unwrap();
        }
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

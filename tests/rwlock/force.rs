//! Freeing by force: `testForceUnlock`, `testMultiRead`. Of the mode that is asked for, and of no other.

use distlock::{DistLock as _, Error, Lost};

use crate::rig::{Scene, covers, keys_gone, lease, near, sweep_covers, waits, writes};
use bed::{enter, eventually, ms, passer, rw, secs, text, waiter};

#[tokio::test]
async fn only_the_right_mode_is_freed() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, there, me) = (client.rw("a"), other.rw("a"), client.owner());
        let mut scene = Scene::new(bed, "a").await;
        assert!(!lock.read().force_unlock().await.unwrap() && !lock.write().force_unlock().await.unwrap());
        assert_eq!(scene.told().await, (0, 0));

        // Two readers, one of them twice.
        let readers = [enter(&lock.read(), &me).await, enter(&lock.read(), &me).await];
        let third = lease(&there.read(), &other.owner(), secs(20)).await;
        for half in [lock.write(), there.write()] {
            assert!(!half.force_unlock().await.unwrap());
        }
        assert_eq!(bed.admin.hgetall("a").await.len(), 3);
        assert!(third.is_held() && readers.iter().all(|guard| guard.is_held()));
        assert_eq!(scene.told().await, (0, 0));
        assert!(lock.read().force_unlock().await.unwrap());
        assert_eq!(scene.told().await, (1, 0));
        assert!(!bed.admin.exists("a").await);
        // Guards of the client that did it know at once; the others when they look.
        for guard in readers {
            assert!(!guard.is_held());
            let lost = guard.unlock().await;
            assert!(matches!(lost, Err(Error::Lost { why: Lost::Gone, .. })), "{lost:?}");
        }
        assert!(third.is_held());
        assert_eq!(other.renew_now().await.lost, 1);
        assert!(!third.is_held());
        drop(third);
        assert!(!lock.read().force_unlock().await.unwrap());
        // As Redisson does, covers are left to run out; a writer is not kept out by them, nor is a reader brought back.
        lock.write().try_lock().await.unwrap().expect("free").unlock().await.unwrap();
        assert!(!there.read().is_locked().await.unwrap());
        sweep_covers(bed, 3).await;

        // A writer that reads as well.
        let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
        for half in [lock.read(), there.read()] {
            assert!(!half.force_unlock().await.unwrap());
        }
        scene.is("held", "write", &[(writes(&me), 1), (text(&me), 1)], 30_000).await;
        assert!(writing.is_held() && reading.is_held());
        let told = scene.told().await;
        assert!(there.write().force_unlock().await.unwrap());
        assert_eq!(scene.told().await, (told.0, told.1 + 1));
        assert!(!bed.admin.exists("a").await, "with the reads of the writer");
        assert_eq!(client.renew_now().await.lost, 2);
        assert!(!writing.is_held() && !reading.is_held());
        assert!(writing.unlock().await.is_err() && reading.unlock().await.is_err());
        sweep_covers(bed, 1).await;

        // After a downgrade it is the other mode.
        let reading = enter(&lock.write(), &me).await.downgrade().await.unwrap();
        assert!(!lock.write().force_unlock().await.unwrap() && reading.is_held());
        assert!(lock.read().force_unlock().await.unwrap() && !reading.is_held());
        drop(reading);
        sweep_covers(bed, 1).await;
    })
    .await;
}

/// Covers that were left behind must not be taken for those of the same owner's next hold.
#[tokio::test]
async fn covers_left_behind_are_nobodys() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a").read(), client.owner());
        let before = [lease(&lock, &me, secs(20)).await, lease(&lock, &me, secs(20)).await];
        assert!(other.rw("a").read().force_unlock().await.unwrap());
        let lost = before.map(|guard| guard.unlock());
        for lost in futures::future::join_all(lost).await {
            assert!(matches!(lost, Err(Error::Lost { .. } | Error::NotHeld { .. })), "{lost:?}");
        }
        assert!(covers(bed, "a", &me).await.iter().all(|left| near(*left, 20_000)));
        // One hold, for a much shorter time.
        let guard = lease(&lock, &me, ms(300)).await;
        assert_eq!(bed.admin.hgetall("a").await[&text(&me)], "1");
        let first = covers(bed, "a", &me).await[0];
        assert!(first <= 300, "{first}");
        let (writing, _) = waiter(other.rw("a").write()).await.unwrap();
        writing.unlock().await.unwrap();
        drop(guard);
        eventually("one cover at the most", async || bed.admin.keys().await.len() <= 1).await;
        let left = bed.admin.keys().await.len();
        sweep_covers(bed, left).await;
        keys_gone(bed).await;
    })
    .await;
}

/// Whoever waits is woken: one writer of every client by a read half's end, all readers by a write half's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_woken() {
    rw(async |bed| {
        let (client, other, third) = (bed.client().await, bed.client().await, bed.client().await);
        let forced = |guard: distlock::Guard| async move { assert!(guard.unlock().await.is_err()) };
        let reading = client.rw("a").read().lock().await.unwrap();
        let writers = [passer(other.rw("a").write()), passer(client.rw("a").write())];
        waits(bed, &other, "a", 1).await;
        waits(bed, &client, "a", 1).await;
        assert!(third.rw("a").read().force_unlock().await.unwrap());
        for writer in writers {
            writer.await.unwrap();
        }
        forced(reading).await;
        sweep_covers(bed, 1).await;

        let writing = client.rw("a").write().lock().await.unwrap();
        let readers: Vec<_> = (0..6).map(|n| waiter([&other, &client][n % 2].rw("a").read())).collect();
        waits(bed, &other, "a", 3).await;
        waits(bed, &client, "a", 3).await;
        assert!(third.rw("a").write().force_unlock().await.unwrap());
        // All together: none has gone yet.
        let inside = futures::future::join_all(readers).await;
        for reader in inside {
            reader.unwrap().0.unlock().await.unwrap();
        }
        forced(writing).await;
    })
    .await;
}

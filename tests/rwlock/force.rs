//! A force frees one half and not the other: `testForceUnlock`, `testMultiRead`. `tests/sim/states/readers.rs` tests
//! messages and state, and `together.rs` tests the woken waiters.

use distlock::{Error, Flavour, Lost};

use crate::rig::{HOUR, Scene, covers, granted, lease, near, passes, served, sweep_covers, waiter, waits, writes};
use bed::{becomes, enter, ms, rw, text};

#[tokio::test]
async fn force_unlock_frees_own_half_and_reads_of_writer() {
    rw(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (lock, there, me) = (client.rw("a"), other.rw("a"), client.owner());
        let scene = Scene::new(bed, "a").await;

        // Readers of two clients, one with two holds.
        let readers = [enter(&lock.read(), &me).await, enter(&lock.read(), &me).await];
        let third = there.read().lock().await.unwrap();
        for half in [lock.write(), there.write()] {
            assert!(!half.force_unlock().await.unwrap());
        }
        assert!(third.is_held() && readers.iter().all(|guard| guard.is_held()));
        assert!(lock.read().force_unlock().await.unwrap());
        // Guards of the forcing client report the loss at once, and other guards at their next renewal.
        for guard in readers {
            assert!(!guard.is_held());
            let lost = guard.unlock().await;
            assert!(matches!(lost, Err(Error::Lost { why: Lost::Gone, .. })), "{lost:?}");
        }
        assert!(third.is_held());
        assert_eq!(other.renew_now().await.lost, 1);
        assert!(!third.is_held());
        drop(third);
        // As in Redisson, covers stay until they expire. They neither exclude a writer nor revive a reader.
        passes("free", &lock.write()).await;
        assert!(!there.read().is_locked().await.unwrap());
        sweep_covers(bed, 3).await;

        let (writing, reading) = (enter(&lock.write(), &me).await, enter(&lock.read(), &me).await);
        for half in [lock.read(), there.read()] {
            assert!(!half.force_unlock().await.unwrap());
        }
        scene.is("held", "write", &[(writes(&me), 1), (text(&me), 1)]).await;
        assert!(there.write().force_unlock().await.unwrap());
        assert!(!bed.admin.exists("a").await, "with the reads of the writer");
        assert_eq!(client.renew_now().await.lost, 2);
        assert!(!writing.is_held() && !reading.is_held());
        for lost in [writing.unlock().await, reading.unlock().await] {
            assert!(matches!(lost, Err(Error::Lost { why: Lost::Gone, .. })), "{lost:?}");
        }
        sweep_covers(bed, 1).await;

        // After a downgrade, the owner has the other half.
        let reading = enter(&lock.write(), &me).await.downgrade().await.unwrap();
        assert!(!lock.write().force_unlock().await.unwrap() && reading.is_held());
        assert!(lock.read().force_unlock().await.unwrap() && !reading.is_held());
        drop(reading);
        sweep_covers(bed, 1).await;
    })
    .await;
}

/// Covers (keys that live as long as one read hold) that a force leaves do not count for the owner's next hold, and
/// exclude no writer. A hold that a force ended cannot be extended, although its cover exists.
#[tokio::test]
async fn leftover_covers_count_for_no_hold() {
    rw(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (lock, me) = (client.rw("a").read(), client.owner());
        let before = [lease(&lock, &me, 10 * HOUR).await, lease(&lock, &me, 10 * HOUR).await];
        let writer = waiter(&other, Flavour::Write, "a");
        waits(bed, &other, "a", 1).await;
        assert!(other.rw("a").read().force_unlock().await.unwrap());
        let writing = granted("the writer", writer).await;
        let refused = before[0].extend(HOUR).await;
        assert!(matches!(refused, Err(Error::Lost { why: Lost::Gone, .. })), "{refused:?}");
        assert!(writing.is_held());
        writing.unlock().await.unwrap();
        for guard in before {
            let lost = guard.unlock().await;
            assert!(matches!(lost, Err(Error::Lost { .. } | Error::NotHeld { .. })), "{lost:?}");
        }
        let left = covers(bed, "a", &me).await;
        assert!(left.len() == 2 && left.iter().all(|left| near(*left, 10 * HOUR)), "{left:?}");
        // The owner has one hold, with a much shorter lease. The second of the two covers is a leftover.
        let guard = lease(&lock, &me, HOUR).await;
        Scene::new(bed, "a").await.is("one hold", "read", &[(text(&me), 1)]).await;
        let left = covers(bed, "a", &me).await;
        assert!(left.len() == 2 && near(left[0], HOUR) && near(left[1], 10 * HOUR), "{left:?}");
        // The lease may end before or after the reply.
        let extended = guard.extend(ms(300)).await;
        assert!(matches!(extended, Ok(()) | Err(Error::Lost { .. })), "{extended:?}");
        served("a writer, when the lease is over", waiter(&other, Flavour::Write, "a")).await;
        drop(guard);
        becomes("keys", 1, async || bed.admin.keys().await.len()).await;
        sweep_covers(bed, 1).await;
    })
    .await;
}

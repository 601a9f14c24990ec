//! Downgrade from writing to reading. `tests/rw_model` compares the state with a model. `together.rs` tests which waiters
//! a downgrade admits, and `tests/sim/trial.rs` checks that it admits no writer.

use distlock::{Error, Lost};

use crate::rig::{HOUR, Scene, keys_gone, lease, passes};
use bed::{ends, enter, ms, rw, secs, text};

#[tokio::test]
async fn downgraded_guard_holds_only_the_read_half() {
    rw(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let scene = Scene::new(bed, "a").await;
        let reading = enter(&lock.write(), &me).await.downgrade().await.unwrap();
        assert_eq!((reading.owner(), reading.name()), (&me, "a"));
        scene.is("downgraded", "read", &[(text(&me), 1)]).await;
        scene.covered("downgraded", &me, 1).await;
        assert!(reading.is_held() && reading.remaining() > HOUR / 2, "{reading:?}");
        assert_eq!(client.renew_now().await.renewed, 1, "the watchdog keeps it");
        passes("beside a reader", &other.rw("a").read()).await;
        assert!(other.rw("a").write().try_lock().await.unwrap().is_none());
        // A read guard cannot be downgraded. The refused guard is released, as any dropped guard.
        let refused = reading.downgrade().await;
        let Err(Error::Unsupported { what }) = &refused else { panic!("{refused:?}") };
        assert!(what.contains("read") && what.contains("write"), "{what}");
        keys_gone(bed).await;
        // An explicit lease continues unchanged.
        let writing = lease(&lock.write(), &me, 10 * HOUR).await;
        let before = writing.remaining();
        let reading = writing.downgrade().await.unwrap();
        assert!(reading.remaining() <= before + ms(2) && reading.remaining() > 5 * HOUR, "{before:?}, {reading:?}");
        assert_eq!(client.renew_now().await.renewed, 0, "an explicit lease is not renewed");
        reading.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn ended_write_hold_is_not_downgraded_and_leaves_no_keys() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let over = lease(&lock.write(), &me, secs(1)).await;
        ends("the lease", over.lost()).await;
        let lost = over.downgrade().await;
        assert!(matches!(lost, Err(Error::Lost { why: Lost::Expired, .. })), "{lost:?}");

        // The lock was forced open, and this client does not know it. Now the lock is free, or another owner reads or
        // writes.
        for beside in ["nobody", "a reader", "a writer"] {
            let writing = enter(&lock.write(), &me).await;
            assert!(other.rw("a").write().force_unlock().await.unwrap());
            let guard = match beside {
                "a reader" => Some(other.rw("a").read().lock().await.unwrap()),
                "a writer" => Some(other.rw("a").write().lock().await.unwrap()),
                _ => None,
            };
            let lost = writing.downgrade().await;
            assert!(matches!(lost, Err(Error::Lost { .. } | Error::NotHeld { .. })), "{beside}: {lost:?}");
            if let Some(guard) = guard {
                assert!(guard.is_held());
                guard.unlock().await.unwrap();
            }
            keys_gone(bed).await;
        }
    })
    .await;
}

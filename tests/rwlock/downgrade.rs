//! Downgrade: from writing to reading without a moment in which another writer could come in. RW4: who waits for reading
//! is in at once.

use distlock::{DistLock as _, Error, Lost, Released};

use crate::rig::{Scene, covers, lease, near, waits, writes};
use bed::{ends, enter, eventually, ms, passer, rw, secs, text, waiter};

/// By `downgrade()`, from the watchdog's care and from an explicit lease.
#[tokio::test]
async fn a_write_hold_becomes_a_read_hold_with_its_lease() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let mut scene = Scene::new(bed, "a").await;

        let reading = enter(&lock.write(), &me).await.downgrade().await.unwrap();
        assert_eq!((reading.owner(), reading.name()), (&me, "a"));
        scene.is("watched", "read", &[(text(&me), 1)], 30_000).await;
        scene.covered("watched", &me, &[30_000]).await;
        assert!(reading.is_held() && reading.remaining() > secs(25));
        assert_eq!(client.renew_now().await.renewed, 1, "the watchdog keeps it");
        other.rw("a").read().try_lock().await.unwrap().expect("shared").unlock().await.unwrap();
        assert!(other.rw("a").write().try_lock().await.unwrap().is_none());
        let refused = reading.downgrade().await;
        let Err(Error::Unsupported { what }) = &refused else { panic!("{refused:?}") };
        assert!(what.contains("read") && what.contains("write"), "{what}");
        // What could not be downgraded is given back, as any guard that is dropped.
        eventually("gone", async || bed.admin.keys().await.is_empty()).await;

        let writing = lease(&lock.write(), &me, secs(10)).await;
        tokio::time::sleep(ms(300)).await;
        let before = writing.remaining();
        let reading = writing.downgrade().await.unwrap();
        let after = reading.remaining();
        assert!(after <= before + ms(2) && after + secs(2) > before, "{before:?}, then {after:?}");
        scene.is("leased", "read", &[(text(&me), 1)], 10_000).await;
        let cover = covers(bed, "a", &me).await;
        assert!(cover.len() == 1 && near(cover[0], 9_800), "what was left of it: {cover:?}");
        assert_eq!(client.renew_now().await.renewed, 0, "an explicit lease is not renewed");
        assert_eq!(reading.unlock().await.unwrap(), Released::Free);
        scene.gone("the end").await;
        // For each: a writer left, the last reader left.
        assert_eq!(scene.told().await, (2, 2));
    })
    .await;
}

/// Of two write holds one is changed: the other stays, and so do the readers outside.
#[tokio::test]
async fn other_write_holds_stay() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let scene = Scene::new(bed, "a").await;
        let outer = enter(&lock.write(), &me).await;
        let reading = enter(&lock.write(), &me).await.downgrade().await.unwrap();
        scene.is("one changed", "write", &[(writes(&me), 1), (text(&me), 1)], 30_000).await;
        assert!(other.rw("a").read().try_lock().await.unwrap().is_none());
        let both = outer.downgrade().await.unwrap();
        scene.is("both changed", "read", &[(text(&me), 2)], 30_000).await;
        other.rw("a").read().try_lock().await.unwrap().expect("shared").unlock().await.unwrap();
        both.unlock().await.unwrap();
        reading.unlock().await.unwrap();
        scene.gone("the end").await;
    })
    .await;
}

/// By both ways, readers that wait in other clients and in this one are in at once; on their own they would look after 5 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_wait_are_in_at_once() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        for round in 0..20 {
            let writing = enter(&lock.write(), &me).await;
            let mut waiting: Vec<_> = (0..3).map(|_| waiter(other.rw("a").read())).collect();
            waiting.push(waiter(lock.read()));
            waits(bed, &other, "a", 3).await;
            waits(bed, &client, "a", 1).await;
            let reading = if round % 2 == 0 {
                writing.downgrade().await.unwrap()
            } else {
                let reading = enter(&lock.read(), &me).await;
                assert_eq!(writing.unlock().await.unwrap(), Released::Free);
                reading
            };
            let mut inside = Vec::new();
            for reader in waiting {
                let (guard, _) = ends("a reader", reader).await.unwrap();
                inside.push(guard);
            }
            assert!(reading.is_held());
            reading.unlock().await.unwrap();
            for guard in inside {
                guard.unlock().await.unwrap();
            }
        }
    })
    .await;
}

/// No writer comes in between, however many try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_writer_comes_in_between() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        for _ in 0..30 {
            let writing = enter(&lock.write(), &me).await;
            let waiting = [passer(other.rw("a").write()), passer(client.rw("a").write())];
            let reading = writing.downgrade().await.unwrap();
            // Long enough for whoever was let in.
            tokio::time::sleep(ms(5)).await;
            assert!(waiting.iter().all(|writer| !writer.is_finished()) && reading.is_held());
            reading.unlock().await.unwrap();
            for writer in waiting {
                writer.await.unwrap();
            }
        }
    })
    .await;
}

/// `testReadWriteTTL`: after the downgrade the watchdog renews what remains, and nothing else.
#[tokio::test]
async fn what_remains_is_renewed() {
    rw(async |bed| {
        let client = bed.client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        let held = async |what: &str, reads: bool, writes: bool| {
            for _ in 0..2 {
                let round = client.renew_now().await;
                assert_eq!((round.failed, round.lost), (0, 0), "{what}");
                let reading = lock.read().remaining_ttl().await.unwrap();
                let writing = lock.write().remaining_ttl().await.unwrap();
                assert_eq!((reading.is_some(), writing.is_some()), (reads, writes), "{what}");
            }
        };
        let writing = enter(&lock.write(), &me).await;
        let reading = enter(&lock.read(), &me).await;
        held("both", true, true).await;
        // Redisson's read unlock ends the renewal of the write hold.
        reading.unlock().await.unwrap();
        held("writing", false, true).await;
        let reading = writing.downgrade().await.unwrap();
        held("reading", true, false).await;
        assert!(reading.is_held());
        reading.unlock().await.unwrap();
        held("nothing", false, false).await;
    })
    .await;
}

/// A write hold that has ended is not downgraded, whoever ended it, and nothing stays behind.
#[tokio::test]
async fn what_has_ended_is_not_downgraded() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let over = lease(&lock.write(), &me, ms(100)).await;
        tokio::time::sleep(ms(120)).await;
        let lost = over.downgrade().await;
        assert!(matches!(lost, Err(Error::Lost { why: Lost::Expired, .. })), "{lost:?}");

        // Gone, and this client has not heard of it: free now, read by another, written by another.
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
            eventually("nothing is left", async || bed.admin.keys().await.is_empty()).await;
        }
    })
    .await;
}

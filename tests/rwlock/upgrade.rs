//! RW2, #4796: who reads and wants to write would wait for itself. It is told at once, and nothing changes.

use distlock::{Acquire, DistLock, Error, Guard, Owner, Prefer, Result};

use crate::rig::{Scene, lease, marks, waits, writes};
use bed::{Bed, ends, enter, eventually, ms, rw, secs, text, waiter};

/// Every way to ask for the lock as this owner.
async fn every_way(lock: &dyn DistLock, me: &Owner) -> Vec<(&'static str, Result<Option<Guard>>)> {
    vec![
        ("try_lock", me.scope(lock.try_lock()).await),
        ("lock", me.scope(lock.lock()).await.map(Some)),
        ("lock_for", me.scope(lock.lock_for(secs(3600))).await),
        ("lock_leased", me.scope(lock.lock_leased(secs(5))).await.map(Some)),
        ("leased, by name", lock.acquire(Acquire::new().owner(me).lease(secs(5)).wait(secs(3600))).await),
        ("leased, once", lock.acquire(Acquire::new().owner(me).lease(secs(5)).wait(ms(0))).await),
    ]
}

/// All are refused at once, and the lock stays as it is.
async fn refused(bed: &Bed, lock: &dyn DistLock, me: &Owner) {
    let look = async || (bed.admin.keys().await, bed.admin.hgetall("a").await);
    let before = look().await;
    for (way, outcome) in ends("every way to ask", every_way(lock, me)).await {
        let error = outcome.expect_err(way);
        let Error::WouldDeadlock { name, .. } = &error else { panic!("{way}: {error:?}") };
        assert_eq!(&**name, "a");
        assert!(
            !error.is_retryable() && !error.outcome_unknown() && error.to_string().contains("downgrade"),
            "{error}"
        );
    }
    assert_eq!(look().await, before);
    assert!(!bed.admin.exists(&marks("a")).await);
}

#[tokio::test]
async fn a_reader_that_wants_to_write_is_told_at_once() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for prefer in [Prefer::Readers, Prefer::Writers] {
            for known in [false, true] {
                let (lock, me) = (client.rw("a").prefer(prefer), client.owner());
                if known {
                    drop(me.to_string());
                }
                let mut scene = Scene::new(bed, "a").await;
                let first = lease(&lock.read(), &me, secs(20)).await;
                refused(bed, &lock.write(), &me).await;
                let ttl = bed.admin.pttl("a").await;
                assert!(ttl > 15_000 && ttl <= 20_000, "{ttl}");
                // Twice in, and beside another reader.
                let second = enter(&lock.read(), &me).await;
                refused(bed, &lock.write(), &me).await;
                let beside = other.rw("a").read().lock().await.unwrap();
                refused(bed, &lock.write(), &me).await;
                let stats = client.stats();
                assert_eq!((stats.waiting, stats.holds), (0, 1), "{stats:?}");
                assert!([&first, &second, &beside].iter().all(|guard| guard.is_held()));
                first.unlock().await.unwrap();
                second.unlock().await.unwrap();
                // Now it is a writer like any other.
                assert!(me.scope(lock.write().try_lock()).await.unwrap().is_none());
                assert_eq!(scene.told().await, (0, 0));
                beside.unlock().await.unwrap();
                me.scope(lock.write().try_lock()).await.unwrap().expect("free").unlock().await.unwrap();
                assert_eq!(scene.told().await, (1, 1));
                scene.gone("the end").await;
            }
        }
    })
    .await;
}

/// Who came in for reading under its own write hold may write again while that stands, and not afterwards.
#[tokio::test]
async fn after_a_downgrade_there_is_no_way_back() {
    rw(async |bed| {
        let client = bed.client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        let writing = enter(&lock.write(), &me).await;
        let reading = enter(&lock.read(), &me).await;
        enter(&lock.write(), &me).await.unlock().await.unwrap();
        writing.unlock().await.unwrap();
        refused(bed, &lock.write(), &me).await;
        reading.unlock().await.unwrap();
        enter(&lock.write(), &me).await.unlock().await.unwrap();

        let reading = enter(&lock.write(), &me).await.downgrade().await.unwrap();
        refused(bed, &lock.write(), &me).await;
        reading.unlock().await.unwrap();
    })
    .await;
}

/// A hold whose lease is over is none: it deadlocks nobody.
#[tokio::test]
async fn who_read_until_its_lease_ended_may_write() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for beside in [false, true] {
            let (lock, me) = (client.rw("a"), client.owner());
            let other = if beside { Some(other.rw("a").read().lock().await.unwrap()) } else { None };
            let over = lease(&lock.read(), &me, ms(800)).await;
            refused(bed, &lock.write(), &me).await;
            tokio::time::sleep(ms(820)).await;
            let tried = me.scope(lock.write().try_lock()).await.unwrap();
            assert_eq!(tried.is_none(), beside, "the other reads on");
            if let Some(other) = other {
                other.unlock().await.unwrap();
            }
            let writing = match tried {
                Some(guard) => guard,
                None => enter(&lock.write(), &me).await,
            };
            assert_eq!(bed.admin.hgetall("a").await.keys().collect::<Vec<_>>(), [&writes(&me), "mode"]);
            assert!(over.unlock().await.is_err());
            assert!(writing.is_held());
            writing.unlock().await.unwrap();
            assert_eq!(bed.admin.keys().await, [""; 0]);
        }
    })
    .await;
}

/// A task waits to write behind another reader; its owner comes in for reading elsewhere: from then on it would wait for
/// itself, and is told when it looks the next time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_whose_owner_reads_is_told() {
    rw(async |bed| {
        for prefer in [Prefer::Readers, Prefer::Writers] {
            let client = bed.connect(bed.builder().poll_cap(ms(300)).prefer(prefer).hold_back(ms(200))).await;
            let other = bed.client().await;
            let (lock, me) = (client.rw("a"), client.owner());
            let beside = other.rw("a").read().lock().await.unwrap();
            let (writing, owner) = (lock.write(), me.clone());
            let waiting =
                tokio::spawn(async move { writing.acquire(Acquire::new().owner(&owner).wait(secs(3600))).await });
            waits(bed, &client, "a", 1).await;
            let reading = enter(&lock.read(), &me).await;
            let told = ends("the waiter is told", waiting).await.unwrap();
            assert!(matches!(told, Err(Error::WouldDeadlock { .. })), "{told:?}");
            let no_mark = async || !bed.admin.exists(&marks("a")).await;
            eventually("its mark is gone", no_mark).await;
            let fields = bed.admin.hgetall("a").await;
            assert!(fields.contains_key(&text(&me)) && fields["mode"] == "read", "{fields:?}");
            // Another writer is not in its way, nor is it in another's.
            let next = waiter(other.rw("a").write());
            reading.unlock().await.unwrap();
            beside.unlock().await.unwrap();
            next.await.unwrap().0.unlock().await.unwrap();
        }
    })
    .await;
}

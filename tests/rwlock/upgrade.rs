//! RW2, #4796: an owner that reads and wants to write would wait for itself. The acquire returns an error at once, and
//! nothing changes. In `tests/rw_model`, owners whose read holds are dead get no such error.

use distlock::{Acquire, Deadlock, DistLock, Error, Flavour, Guard, Owner, Prefer, Result};

use crate::rig::{HOUR, Scene, lease, marks, near, passes, served, unlock_all, waiter, waits};
use bed::{Bed, ends, enter, eventually, ms, rw, secs, text};

async fn every_way(lock: &dyn DistLock, me: &Owner) -> Vec<(&'static str, Result<Option<Guard>>)> {
    vec![
        ("try_lock", me.scope(lock.try_lock()).await),
        ("lock", me.scope(lock.lock()).await.map(Some)),
        ("lock_for", me.scope(lock.lock_for(secs(3600))).await),
        ("lock_leased", me.scope(lock.lock_leased(secs(5))).await.map(Some)),
        ("leased, by name", lock.acquire(Acquire::new().owner(me).lease(secs(5)).wait(HOUR)).await),
        ("leased, once", lock.acquire(Acquire::new().owner(me).lease(secs(5)).wait(ms(0))).await),
    ]
}

/// Asserts that all ways to acquire are refused at once, and that the lock stays unchanged.
async fn refused(bed: &Bed, lock: &dyn DistLock, me: &Owner) {
    let look = async || (bed.admin.keys().await, bed.admin.hgetall("a").await);
    let before = look().await;
    for (way, outcome) in ends("every way to ask", every_way(lock, me)).await {
        let error = outcome.expect_err(way);
        let Error::WouldDeadlock { name, why: Deadlock::Upgrade } = &error else { panic!("{way}: {error:?}") };
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
async fn upgrade_by_reader_is_refused_at_once() {
    rw(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for prefer in [Prefer::Readers, Prefer::Writers] {
            for known in [false, true] {
                let (lock, me) = (client.rw("a").prefer(prefer), client.owner());
                if known {
                    drop(me.to_string());
                }
                let mut scene = Scene::new(bed, "a").await;
                let first = lease(&lock.read(), &me, HOUR / 4).await;
                refused(bed, &lock.write(), &me).await;
                let left = bed.admin.pttl("a").await;
                assert!(near(left, HOUR / 4), "a refused upgrade leaves a lease of {left} ms");
                // The owner has two read holds, and another reader exists.
                let second = enter(&lock.read(), &me).await;
                refused(bed, &lock.write(), &me).await;
                let beside = other.rw("a").read().lock().await.unwrap();
                refused(bed, &lock.write(), &me).await;
                let stats = client.stats();
                assert_eq!((stats.waiting, stats.holds), (0, 1), "{stats:?}");
                assert!([&first, &second, &beside].iter().all(|guard| guard.is_held()));
                unlock_all([first, second]).await;
                // After its read holds have ended, the owner is a normal writer.
                assert!(me.scope(lock.write().try_lock()).await.unwrap().is_none());
                assert_eq!(scene.told().await, (0, 0));
                beside.unlock().await.unwrap();
                me.scope(passes("nobody reads any more", &lock.write())).await;
                assert_eq!(scene.told().await, (1, 1));
                scene.gone("the end").await;
            }
        }
    })
    .await;
}

/// A task waits for the write half behind another reader, and then its owner acquires the read half elsewhere. Now the
/// task would wait for its own owner, so its next attempt returns an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_writer_is_refused_when_its_owner_reads() {
    rw(async |bed| {
        for prefer in [Prefer::Readers, Prefer::Writers] {
            let client = bed
                .connect(bed.builder().configure(|options| {
                    options.poll_cap = ms(300);
                    options.prefer = prefer;
                    options.max_reader_delay = ms(200);
                }))
                .await;
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
            eventually("its mark is gone", async || !bed.admin.exists(&marks("a")).await).await;
            let fields = bed.admin.hgetall("a").await;
            assert!(fields.contains_key(&text(&me)) && fields["mode"] == "read", "{fields:?}");
            // The refused writer has left nothing that excludes another writer.
            let next = waiter(&other, Flavour::Write, "a");
            unlock_all([reading, beside]).await;
            served("the next writer", next).await;
        }
    })
    .await;
}

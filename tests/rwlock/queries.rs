//! What both halves tell of themselves, at every step (#4400: `testReadLockIsLocked`).

use std::time::Duration;

use distlock::{Client, DistLock, Error, NotHeld, Owner, RwLock};

use crate::rig::{lease, writes};
use bed::{enter, ms, rw, secs, text};

/// One half as one owner sees it.
async fn seen(half: &dyn DistLock, owner: &Owner) -> (bool, u64, bool, bool) {
    let state = half.state().await.unwrap();
    let (locked, held) = (half.is_locked().await.unwrap(), half.is_held_by(owner).await.unwrap());
    let count = half.hold_count(owner).await.unwrap();
    assert_eq!((state.is_locked(), state.hold_count(owner)), (locked, count));
    let lasts = half.remaining_ttl().await.unwrap();
    assert_eq!(state.remaining.is_some(), lasts.is_some());
    (locked, count, held, lasts.is_some())
}

/// Both halves must have so many holds of these owners, whichever client asks.
async fn both(step: &str, locks: &[RwLock], owners: &[&Owner], reads: &[u64], written: &[u64]) {
    for lock in locks {
        let halves: [(&dyn DistLock, &[u64]); 2] = [(&lock.read(), reads), (&lock.write(), written)];
        for (half, counts) in halves {
            let locked = counts.iter().any(|count| *count > 0);
            for (owner, count) in owners.iter().zip(counts) {
                assert_eq!(seen(half, owner).await, (locked, *count, *count > 0, locked), "{step}: {half:?}");
            }
            let state = half.state().await.unwrap();
            assert_eq!(state.holders.len(), counts.iter().filter(|count| **count > 0).count(), "{step}: {state:?}");
        }
    }
}

#[tokio::test]
async fn both_halves_tell_what_is_held() {
    rw(async |bed| {
        let (client, other): (Client, Client) = (bed.client().await, bed.client().await);
        let locks = [client.rw("a"), other.rw("a")];
        let lock = &locks[0];
        let (me, you) = (client.owner(), other.owner());
        let check = async |step: &str, reads: [u64; 2], written: [u64; 2]| {
            both(step, &locks, &[&me, &you], &reads, &written).await;
        };
        check("free", [0, 0], [0, 0]).await;
        let outer = enter(&lock.write(), &me).await;
        check("written", [0, 0], [1, 0]).await;
        let reading = enter(&lock.read(), &me).await;
        check("and read", [1, 0], [1, 0]).await;
        let inner = enter(&lock.write(), &me).await;
        check("twice", [1, 0], [2, 0]).await;
        inner.unlock().await.unwrap();
        outer.unlock().await.unwrap();
        check("downgraded", [1, 0], [0, 0]).await;
        let theirs = [enter(&locks[1].read(), &you).await, enter(&locks[1].read(), &you).await];
        check("two readers", [1, 2], [0, 0]).await;
        reading.unlock().await.unwrap();
        check("one reader", [0, 2], [0, 0]).await;
        for guard in theirs {
            guard.unlock().await.unwrap();
        }
        check("free again", [0, 0], [0, 0]).await;
        // Of an owner whose lease is over nothing is told, though its field is there.
        let (over, staying) = (lease(&lock.read(), &me, ms(100)).await, enter(&locks[1].read(), &you).await);
        tokio::time::sleep(ms(120)).await;
        assert!(bed.admin.hgetall("a").await.contains_key(&text(&me)));
        check("one is dead", [0, 1], [0, 0]).await;
        drop(over);
        staying.unlock().await.unwrap();
    })
    .await;
}

/// The readers' half lasts as long as the longest cover, whatever the hash's own lease is; the writer's as long as that.
#[tokio::test]
async fn the_time_left_is_that_of_the_holders() {
    rw(async |bed| {
        let client = bed.client().await;
        let (lock, me) = (client.rw("a"), client.owner());
        let near =
            |left: Option<Duration>, lease: Duration| left.is_some_and(|left| left <= lease && left + secs(2) > lease);
        let short = lease(&lock.read(), &me, secs(10)).await;
        assert!(near(lock.read().remaining_ttl().await.unwrap(), secs(10)));
        let long = lease(&lock.read(), &client.owner(), secs(40)).await;
        assert!(near(lock.read().remaining_ttl().await.unwrap(), secs(40)));
        long.unlock().await.unwrap();
        let _: u64 = bed.admin.cmd(&["PEXPIRE", "a", "30000"]).await;
        assert!(near(lock.read().remaining_ttl().await.unwrap(), secs(10)), "its cover counts");
        let _: u64 = bed.admin.cmd(&["PEXPIRE", "a", "5000"]).await;
        assert!(near(lock.read().remaining_ttl().await.unwrap(), secs(5)), "without the hash nothing is held");
        short.unlock().await.unwrap();
        let writing = lease(&lock.write(), &me, secs(20)).await;
        let reading = lease(&lock.read(), &me, secs(5)).await;
        assert!(near(lock.read().remaining_ttl().await.unwrap(), secs(5)));
        assert!(near(lock.write().remaining_ttl().await.unwrap(), secs(20)));
        reading.unlock().await.unwrap();
        writing.unlock().await.unwrap();
    })
    .await;
}

/// `testUnlockFail`: a release by somebody else, of either half, changes nothing and says who holds it.
#[tokio::test]
async fn a_release_of_what_is_not_held_changes_nothing() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me, you) = (client.rw("a"), client.owner(), other.owner());
        let refused = async |half: &dyn DistLock, owner: &Owner, holder: Option<&Owner>| {
            let before = bed.admin.hgetall("a").await;
            let error = half.release(owner).await.unwrap_err();
            match (&error, holder) {
                (Error::NotHeld { why: NotHeld::Never, .. }, None) => {}
                (Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }, Some(holder)) => {
                    assert_eq!(*owner, text(holder))
                }
                _ => panic!("{error:?}, held by {holder:?}"),
            }
            assert_eq!(bed.admin.hgetall("a").await, before);
        };
        for half in [&lock.read() as &dyn DistLock, &lock.write()] {
            refused(half, &me, None).await;
        }
        let reading = enter(&lock.read(), &me).await;
        for half in [&other.rw("a").read() as &dyn DistLock, &other.rw("a").write()] {
            refused(half, &you, Some(&me)).await;
        }
        // Its own hold, but the other half.
        refused(&lock.write(), &me, Some(&me)).await;
        assert!(reading.is_held());
        reading.unlock().await.unwrap();
        let writing = enter(&lock.write(), &me).await;
        for half in [&other.rw("a").read() as &dyn DistLock, &other.rw("a").write()] {
            refused(half, &you, Some(&me)).await;
        }
        refused(&lock.read(), &me, Some(&me)).await;
        assert!(writing.is_held() && bed.admin.hgetall("a").await.contains_key(&writes(&me)));
        writing.unlock().await.unwrap();
    })
    .await;
}

/// #5188: a lock of another kind under the same name. Redisson's scripts write into it; ours refuse, and leave it alone.
#[tokio::test]
async fn a_lock_of_another_kind_is_refused() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.rw("a"), client.owner());
        let plain = other.reentrant("a").lock().await.unwrap();
        let fields = bed.admin.hgetall("a").await;
        for half in [&lock.read() as &dyn DistLock, &lock.write()] {
            let refused = [
                half.try_lock().await.map(drop),
                half.lock_for(secs(5)).await.map(drop),
                half.lock_leased(secs(5)).await.map(drop),
                me.scope(half.lock()).await.map(drop),
                half.state().await.map(drop),
                half.force_unlock().await.map(drop),
            ];
            for refused in refused {
                assert!(matches!(refused, Err(Error::WrongType { .. })), "{half:?}: {refused:?}");
            }
            let refused = half.release(&me).await;
            assert!(matches!(refused, Err(Error::WrongType { .. } | Error::NotHeld { .. })), "{refused:?}");
        }
        assert_eq!((bed.admin.hgetall("a").await, bed.admin.keys().await.len()), (fields, 1));
        assert!(plain.is_held() && bed.admin.pttl("a").await > 25_000);
        plain.unlock().await.unwrap();
        lock.write().try_lock().await.unwrap().expect("free").unlock().await.unwrap();
    })
    .await;
}

/// Redis gives the fields of a large hash in any order: none is overlooked, and no list of holds is taken for an owner.
#[tokio::test]
async fn fields_may_come_in_any_order() {
    rw(async |bed| {
        // The older of its two names: 6.2 knows no other.
        let () = bed.admin.cmd(&["CONFIG", "SET", "hash-max-ziplist-entries", "0"]).await;
        let (client, other) = (bed.client().await, bed.client().await);
        for n in 0..16 {
            let (name, me) = (format!("a{n}"), client.owner());
            let reading = enter(&client.rw(&name).read(), &me).await;
            let lock = other.rw(&name);
            assert!(lock.write().try_lock().await.unwrap().is_none(), "{name}: beside a reader");
            for half in [&lock.read() as &dyn DistLock, &lock.write()] {
                match half.release(&other.owner()).await {
                    Err(Error::NotHeld { why: NotHeld::HeldBy { owner }, .. }) => {
                        assert_eq!(owner, text(&me), "{name}")
                    }
                    odd => panic!("{name}: {odd:?}"),
                }
            }
            reading.unlock().await.unwrap();
        }
    })
    .await;
}

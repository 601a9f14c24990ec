//! Holding: re-entry, hold counts, state, unlocks by non-holders, leases.

use std::time::Duration;

use distlock::{Acquire, Error, NotHeld, Released};

use crate::subject::{Subject, passer, waiting};
use bed::{Bed, becomes, ends, enter, ms, secs};

// testLockUnlock, and testLockFailoverInCluster without a failing node
pub async fn repeated_acquires_on_one_handle_leave_the_lock_free(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let lock = bed.mutex(&client, "job");
    for _ in 0..10 {
        let guard = lock.lock().await.unwrap();
        assert!(guard.is_held() && lock.is_locked().await.unwrap());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(!lock.is_locked().await.unwrap());
        let guard = lock.try_lock().await.unwrap().expect("nobody else wants it");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    }
}

// testReentrancy
pub async fn each_re_entry_needs_its_own_unlock(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.rival(&theirs, "job"));
    let me = ours.owner();
    let outer = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
    let inner = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
    assert_eq!(outer.owner(), inner.owner());
    // An acquire without this owner is refused, even at the same client.
    assert!(bed.rival(&ours, "job").try_lock().await.unwrap().is_none());
    assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
    assert!(outer.is_held());
    assert!(other.try_lock().await.unwrap().is_none());
    assert_eq!(outer.unlock().await.unwrap(), Released::Free);
    other.try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
}

// testGetHoldCount, and ReadLockEntryTest: no renewal is left
pub async fn hold_count_follows_every_acquire_and_release(bed: &Bed) {
    let client = bed.still_client().await;
    let lock = bed.lock(&client, "job");
    let me = client.owner();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 0);
    let mut guards = Vec::new();
    for count in 1..=5 {
        guards.push(enter(&*lock, &me).await);
        assert_eq!(lock.hold_count(&me).await.unwrap(), count);
    }
    // Guards can be released in any order. Each guard is one hold.
    guards.swap(0, 3);
    for left in (0..5).rev() {
        let released = guards.pop().unwrap().unlock().await.unwrap();
        assert_eq!(released, if left == 0 { Released::Free } else { Released::StillHeld(left) });
        assert_eq!(lock.hold_count(&me).await.unwrap(), u64::from(left));
    }
    becomes("holds that would be renewed", 0, async || client.stats().holds).await;
}

// testIsHeldByCurrentThread, testIsHeldByCurrentThreadOtherThread, testIsLocked, testIsLockedOtherThread
pub async fn holder_is_visible_to_every_client(bed: &Bed) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let lock = bed.lock(&ours, "job");
    let (me, you) = (ours.owner(), ours.owner());
    let seen = async |is_locked: bool| {
        for client in [&ours, &theirs] {
            let (lock, me, you) = (bed.lock(client, "job"), me.clone(), you.clone());
            let looks = tokio::spawn(async move {
                let held = (lock.is_held_by(&me).await.unwrap(), lock.is_held_by(&you).await.unwrap());
                (lock.is_locked().await.unwrap(), held)
            });
            assert_eq!(looks.await.unwrap(), (is_locked, (is_locked, false)), "locked, held by its owner, by another");
        }
    };
    seen(false).await;
    let guard = enter(&*lock, &me).await;
    seen(true).await;
    assert_eq!(lock.state().await.unwrap().holders, [(me.to_string(), 1)]);
    assert!(me.to_string().starts_with(ours.id()));
    guard.unlock().await.unwrap();
    seen(false).await;
}

// testUnlockFail
pub async fn release_by_non_holder_is_refused_and_keeps_the_hold(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    let guard = lock.lock().await.unwrap();
    for (handle, stranger) in [(&lock, ours.owner()), (&other, theirs.owner())] {
        let refused = handle.release(&stranger).await.unwrap_err();
        let Error::NotHeld { name, why } = &refused else { panic!("{refused:?}") };
        // The error has the name of the whole lock, not of a member.
        assert!(**name == *handle.name() && !refused.is_retryable(), "{refused:?}");
        if bed.kind().tells_holder {
            assert_eq!(*why, NotHeld::HeldBy { owner: guard.owner().to_string() });
            assert!(refused.to_string().contains(guard.owner().as_str()));
        }
    }
    assert!(guard.is_held());
    assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1);
    let owner = guard.owner().clone();
    guard.unlock().await.unwrap();
    // The same for a free lock.
    let refused = lock.release(&owner).await.unwrap_err();
    let Error::NotHeld { name, why: NotHeld::Never } = &refused else { panic!("{refused:?}") };
    assert_eq!(**name, *lock.name());
}

// testForceUnlock
pub async fn force_unlock_frees_the_lock_and_wakes_waiters(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    assert!(!lock.force_unlock().await.unwrap());

    // The holder's own client forces the lock. The guard reports the loss at once.
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert!(!guard.is_held());
    let told = guard.name().to_owned();
    let lost = ends("lost() after a forced release", guard.lost()).await;
    assert!(matches!(&lost, Error::Lost { name, .. } if **name == *told), "{lost:?}");
    assert!(!lock.is_locked().await.unwrap() && !bed.lock(&ours, "job").is_locked().await.unwrap());
    let lost = guard.unlock().await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { name, .. } if **name == *told), "{lost:?}");

    // Another client forces the lock. There are three holds, and one waiter at each client. Both waiters are woken.
    let me = ours.owner();
    let mut guards = Vec::new();
    for _ in 0..bed.kind().most_holds(3) {
        guards.push(enter(&*lock, &me).await);
    }
    let waiters = [&ours, &theirs].map(|client| passer(bed.rival(client, "job")));
    waiting(&ours, 1).await;
    waiting(&theirs, 1).await;
    assert!(other.force_unlock().await.unwrap());
    for waiter in waiters {
        ends("a waiter, which is woken by the forced release alone", waiter).await.unwrap();
    }
    for guard in guards {
        // The client may or may not have learned of the loss yet.
        let lost = guard.unlock().await.unwrap_err();
        let (Error::NotHeld { name, .. } | Error::Lost { name, .. }) = &lost else { panic!("{lost:?}") };
        assert_eq!(**name, *told);
    }
    assert!(!other.force_unlock().await.unwrap());
    bed.sweep_covers().await;
}

// testRemainTimeToLive
pub async fn lease_applies_to_its_own_acquire_only(bed: &Subject<'_>) {
    let client = bed.client().await;
    let lock = bed.mutex(&client, "job");
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);

    let guard = lock.lock_leased(secs(3600)).await.unwrap();
    let ttl = lock.remaining_ttl().await.unwrap().unwrap();
    assert!(ttl > secs(1800) && ttl <= secs(3600), "{ttl:?}");
    // The local deadline is 1 % before the server's.
    assert!(guard.remaining() <= secs(3564) && guard.remaining() > secs(1800), "{:?}", guard.remaining());
    guard.unlock().await.unwrap();
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);

    // After an expired lease, the next holder has its own lease. A grant to the head of a queue begins with a short
    // lease, so this may take a moment.
    let lapsed = lock.lock_leased(ms(100)).await.unwrap();
    let guard = ends("an acquire behind a lease", lock.lock()).await.unwrap();
    let watchdog = client.options().watchdog;
    becomes("the lease is the watchdog's", true, async || {
        let ttl = lock.remaining_ttl().await.unwrap().unwrap_or_default();
        ttl > watchdog / 3 && ttl <= watchdog
    })
    .await;
    drop(lapsed);
    becomes("commands and clean-ups in flight", 0, async || client.stats().under_way).await;
    assert!(guard.is_held() && lock.is_locked().await.unwrap(), "by the release of a guard whose lease was over");
    guard.unlock().await.unwrap();
    assert_eq!(lock.remaining_ttl().await.unwrap(), None::<Duration>);
}

// testRemainTimeToLive2
pub async fn release_of_one_of_several_holds_keeps_the_lease(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let me = client.owner();
    let leased = || lock.acquire(Acquire::new().owner(&me).lease(secs(3600)));
    let guards = [leased().await, leased().await, leased().await].map(|guard| guard.unwrap().unwrap());
    for (guard, left) in guards.into_iter().zip([2, 1, 0]) {
        let released = guard.unlock().await.unwrap();
        if left == 0 {
            assert_eq!(released, Released::Free);
        } else {
            assert_eq!(released, Released::StillHeld(left));
            let ttl = lock.remaining_ttl().await.unwrap().unwrap();
            assert!(ttl > secs(1800) && ttl <= secs(3600), "{ttl:?}");
        }
    }
}

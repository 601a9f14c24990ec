//! Holding: re-entry, counts, who sees what, unlocks by the wrong one, leases.

use std::time::Instant;

use distlock::{Acquire, Error, NotHeld, Released};

use crate::subject::Subject;
use bed::{Bed, enter, eventually, ms, secs};

// testLockUnlock
pub async fn lock_and_unlock_twice_on_one_handle(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    for _ in 0..2 {
        let guard = lock.lock().await.unwrap();
        assert!(guard.is_held() && lock.is_locked().await.unwrap());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        assert!(!lock.is_locked().await.unwrap());
    }
}

// testReentrancy
pub async fn each_re_entry_needs_its_own_unlock(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.rival(&theirs, "job"));
    let me = ours.owner();
    let outer = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
    let inner = lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.unwrap().unwrap();
    assert_eq!(outer.owner(), inner.owner());
    // Without the owner it is another holder, also in this client.
    assert!(bed.rival(&ours, "job").try_lock().await.unwrap().is_none());
    assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
    assert!(outer.is_held());
    assert!(other.try_lock().await.unwrap().is_none());
    assert_eq!(outer.unlock().await.unwrap(), Released::Free);
    other.try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
}

// testGetHoldCount
pub async fn the_hold_count_follows_every_step(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let me = client.owner();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 0);
    let guard = enter(&*lock, &me).await;
    assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
    guard.unlock().await.unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 0);

    let mut guards = Vec::new();
    for count in 1..=5 {
        guards.push(enter(&*lock, &me).await);
        assert_eq!(lock.hold_count(&me).await.unwrap(), count);
    }
    // In any order: a guard is one hold, not a certain one.
    guards.swap(0, 3);
    for left in (0..5).rev() {
        let released = guards.pop().unwrap().unlock().await.unwrap();
        assert_eq!(released, if left == 0 { Released::Free } else { Released::StillHeld(left) });
        assert_eq!(lock.hold_count(&me).await.unwrap(), u64::from(left));
    }
}

// testIsHeldByCurrentThread, testIsHeldByCurrentThreadOtherThread
pub async fn only_its_owner_holds_it(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let (me, you) = (client.owner(), client.owner());
    assert!(!lock.is_held_by(&me).await.unwrap());
    let guard = enter(&*lock, &me).await;
    assert!(lock.is_held_by(&me).await.unwrap());
    assert!(!lock.is_held_by(&you).await.unwrap());
    let state = lock.state().await.unwrap();
    assert_eq!(state.holders, [(me.to_string(), 1)]);
    assert!(me.to_string().starts_with(client.id()));
    guard.unlock().await.unwrap();
    assert!(!lock.is_held_by(&me).await.unwrap());
    assert!(!lock.is_held_by(&you).await.unwrap());
}

// testIsLocked, testIsLockedOtherThread
pub async fn everybody_sees_it_locked_and_free(bed: &Bed) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let seen_by = |client: &distlock::Client| {
        let lock = bed.lock(client, "job");
        async move { tokio::spawn(async move { lock.is_locked().await.unwrap() }).await.unwrap() }
    };
    assert!(!seen_by(&ours).await && !seen_by(&theirs).await);
    let guard = bed.lock(&ours, "job").lock().await.unwrap();
    assert!(seen_by(&ours).await && seen_by(&theirs).await);
    guard.unlock().await.unwrap();
    assert!(!seen_by(&ours).await && !seen_by(&theirs).await);
}

// testUnlockFail
pub async fn an_unlock_by_a_non_holder_changes_nothing(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    let guard = lock.lock().await.unwrap();
    for stranger in [ours.owner(), theirs.owner()] {
        let handle = if stranger.to_string().starts_with(ours.id()) { &lock } else { &other };
        let refused = handle.release(&stranger).await.unwrap_err();
        let Error::NotHeld { name, why } = &refused else { panic!("{refused:?}") };
        // Not after one of those that it is made of.
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
    // And of a free lock.
    let refused = lock.release(&owner).await.unwrap_err();
    let Error::NotHeld { name, why: NotHeld::Never } = &refused else { panic!("{refused:?}") };
    assert_eq!(**name, *lock.name());
}

// testForceUnlock
pub async fn force_unlock_frees_it_for_everyone(bed: &Subject<'_>) {
    // What a reader leaves beside the key ends with its lease.
    let (ours, theirs) = (bed.quick().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    assert!(!lock.force_unlock().await.unwrap());

    // By the holder's client: its guard knows at once.
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert!(!guard.is_held());
    let told = guard.name().to_owned();
    let lost = guard.lost().await;
    assert!(matches!(&lost, Error::Lost { name, .. } if **name == *told), "{lost:?}");
    assert!(!lock.is_locked().await.unwrap() && !bed.lock(&ours, "job").is_locked().await.unwrap());
    let lost = guard.unlock().await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { name, .. } if **name == *told), "{lost:?}");

    // By another one, through three holds, with a waiter at each client: they are woken.
    let me = ours.owner();
    let mut guards = Vec::new();
    for _ in 0..bed.kind().most_holds(3) {
        guards.push(enter(&*lock, &me).await);
    }
    let waiters = [&ours, &theirs].map(|client| {
        let lock = bed.rival(client, "job");
        tokio::spawn(async move { lock.lock_for(secs(20)).await.unwrap().unwrap().unlock().await.unwrap() })
    });
    eventually("both wait", async || [&ours, &theirs].iter().all(|client| client.stats().waiting == 1)).await;
    let start = Instant::now();
    assert!(other.force_unlock().await.unwrap());
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), Released::Free);
    }
    // By a message: on its own a waiter looks every 5 s.
    assert!(start.elapsed() < secs(2), "{:?}", start.elapsed());
    for guard in guards {
        // The client has not heard of the loss yet, or it has.
        let lost = guard.unlock().await.unwrap_err();
        let (Error::NotHeld { name, .. } | Error::Lost { name, .. }) = &lost else { panic!("{lost:?}") };
        assert_eq!(**name, *told);
    }
    assert!(!other.force_unlock().await.unwrap());
}

// testRemainTimeToLive
pub async fn the_lease_belongs_to_the_call(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);
    let near = |ttl: std::time::Duration, full| ttl <= full && ttl >= full - ms(250);

    let start = Instant::now();
    let guard = lock.lock_leased(secs(3600)).await.unwrap();
    let ttl = lock.remaining_ttl().await.unwrap().unwrap();
    // 10 ms where the machine gives us the time.
    assert!(ttl <= secs(3600) && ttl + start.elapsed() + ms(10) >= secs(3600), "{ttl:?}");
    // Here it ends before it ends there: a hundredth and 2 ms.
    assert!(guard.remaining() <= secs(3564) && guard.remaining() > secs(3560), "{:?}", guard.remaining());
    guard.unlock().await.unwrap();
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);

    let guard = lock.lock().await.unwrap();
    let ttl = lock.remaining_ttl().await.unwrap().unwrap();
    assert!(near(ttl, client.options().watchdog), "{ttl:?}");
    guard.unlock().await.unwrap();
}

// testRemainTimeToLive2
pub async fn a_partial_unlock_arms_the_lease_of_the_lock_call(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let me = client.owner();
    let leased = || lock.acquire(Acquire::new().owner(&me).lease(secs(10)));
    let guards = [leased().await, leased().await, leased().await].map(|guard| guard.unwrap().unwrap());
    for (guard, left) in guards.into_iter().zip([2, 1, 0]) {
        let released = guard.unlock().await.unwrap();
        if left == 0 {
            assert_eq!(released, Released::Free);
        } else {
            assert_eq!(released, Released::StillHeld(left));
            let ttl = lock.remaining_ttl().await.unwrap().unwrap();
            assert!(ttl > secs(9) && ttl <= secs(10), "{ttl:?}");
        }
    }
}

// testInCluster, as far as one node goes
pub async fn three_rounds_on_a_cluster_node(bed: &Subject<'_>) {
    let client = bed.quick().await;
    for round in 0..3 {
        let lock = bed.lock(&client, &format!("job {round}"));
        let guard = lock.lock().await.unwrap();
        assert!(lock.is_locked().await.unwrap());
        guard.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap());
    }
    // Names of many slots are renewed all the same.
    let mut guards = Vec::new();
    for n in 0..20 {
        guards.push(bed.lock(&client, &format!("many {n}")).lock().await.unwrap());
    }
    let renewed = client.renew_now().await;
    assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (20 * bed.keys_of("many").len(), 0, 0));
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

// testLockFailoverInCluster, in which no node fails either
pub async fn thirty_rounds_of_try_lock(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    for _ in 0..30 {
        lock.try_lock().await.unwrap().expect("nobody else wants it").unlock().await.unwrap();
    }
}

pub async fn a_handle_names_its_lock_and_can_be_shared(bed: &Subject<'_>) {
    let (lock_name, guard_name) = (bed.kind().called)("orders:42");
    let client = bed.client().await;
    let lock = bed.lock(&client, "orders:42");
    assert_eq!(lock.name(), lock_name);
    // It outlives the client it was made by, and works from any task and thread.
    let handle = lock.clone();
    let guard = tokio::spawn(async move { handle.lock().await.unwrap() }).await.unwrap();
    assert_eq!(guard.name(), guard_name);
    assert!(guard.deadline() > Instant::now());
    let released = tokio::spawn(guard.unlock()).await.unwrap();
    assert_eq!(released.unwrap(), Released::Free);
}

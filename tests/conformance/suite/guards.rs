//! Guards: where they may be dropped, and holds that go on without them.

use std::time::{Duration, Instant};

use distlock::{Acquire, Error, Guard, NotHeld, Owner, Released};
use futures::poll;

use crate::subject::Subject;
use bed::{Bed, QUICK, freed, ms, secs};

/// Longer than any release in the background takes, and far shorter than any lease.
const AT_ONCE: Duration = Duration::from_secs(2);

pub async fn a_dropped_guard_frees_the_lock(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let start = Instant::now();
    drop(lock.lock().await.unwrap());
    // Dropping does not wait for the server.
    assert!(start.elapsed() < AT_ONCE);
    let took = freed(&lock, AT_ONCE).await;
    println!("free {took:?} after the drop");
}

pub async fn a_dropped_guard_gives_back_one_of_two_holds(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    let me = client.owner();
    let outer = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    drop(lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap());
    bed::eventually("one hold is left", async || lock.hold_count(&me).await.unwrap() == 1).await;
    assert!(outer.is_held());
    // What is dropped first is released first: the next one of this owner finds it gone.
    drop(outer);
    let again = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
    assert_eq!(again.unlock().await.unwrap(), Released::Free);
}

pub async fn a_guard_may_be_dropped_anywhere(bed: &Bed) {
    fn is_free_to_roam<T: Send + Sync + 'static>(_: &T) {}
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");

    // On a thread that knows no runtime.
    let guard = lock.lock().await.unwrap();
    is_free_to_roam(&guard);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    freed(&lock, AT_ONCE).await;

    // In a task that panics.
    let guard = lock.lock().await.unwrap();
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicked.await.unwrap_err().is_panic());
    freed(&lock, AT_ONCE).await;

    // On a thread that panics.
    let guard = lock.lock().await.unwrap();
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicked.join().is_err());
    freed(&lock, AT_ONCE).await;

    // In a task that is aborted, and on another runtime, which ends at once.
    let guard = lock.lock().await.unwrap();
    let task = tokio::spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    task.abort();
    freed(&lock, AT_ONCE).await;
    let guard = lock.lock().await.unwrap();
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move { drop(guard) });
    });
    elsewhere.join().unwrap();
    freed(&lock, AT_ONCE).await;

    // It may be unlocked from there as well.
    let guard = lock.lock().await.unwrap();
    let released = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(guard.unlock())
    });
    assert_eq!(released.join().unwrap().unwrap(), Released::Free);
}

pub async fn an_unlock_dropped_half_way_still_frees(bed: &Bed) {
    let client = bed.client().await;
    let lock = bed.lock(&client, "job");
    for polls in 0..4 {
        let guard = lock.lock().await.unwrap();
        {
            let mut unlock = std::pin::pin!(guard.unlock());
            for _ in 0..polls {
                if poll!(&mut unlock).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        freed(&lock, AT_ONCE).await;
    }
}

pub async fn an_owner_is_released_by_another_client(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    let me = ours.owner();
    let holds = bed.kind().most_holds(2);
    let mut owner = String::new();
    let mut guards = Vec::new();
    for _ in 0..holds {
        guards.push(lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap());
    }
    for guard in guards {
        // As text, to wherever it is needed.
        owner = guard.into_owner().to_string();
        assert_eq!(owner, me.to_string());
    }
    bed::idle(&ours).await;
    let owner: Owner = owner.parse().unwrap();
    assert!(other.is_held_by(&owner).await.unwrap());
    assert!(bed.rival(&ours, "job").try_lock().await.unwrap().is_none());
    for left in (1..holds).rev() {
        assert_eq!(other.release(&owner).await.unwrap(), Released::StillHeld(left));
    }
    assert_eq!(other.release(&owner).await.unwrap(), Released::Free);
    let refused = other.release(&owner).await.unwrap_err();
    let Error::NotHeld { name, why: NotHeld::Never } = &refused else { panic!("{refused:?}") };
    assert_eq!(**name, *other.name());
    // With a waiter: it is woken.
    let guard = lock.lock().await.unwrap();
    let owner = guard.into_owner();
    let waiter = tokio::spawn({
        let lock = bed.rival(&ours, "job");
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    bed::eventually("it waits", async || ours.stats().waiting == 1).await;
    let start = Instant::now();
    assert_eq!(other.release(&owner).await.unwrap(), Released::Free);
    waiter.await.unwrap();
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
}

pub async fn an_owner_without_guard_is_not_renewed(bed: &Bed) {
    let client = bed.quick().await;
    let lock = bed.lock(&client, "job");
    let owner = lock.lock().await.unwrap().into_owner();
    assert!(lock.is_held_by(&owner).await.unwrap());
    let took = freed(&lock, QUICK + ms(500)).await;
    assert!(took > QUICK / 2, "{took:?}");
}

pub async fn an_owner_without_guard_is_renewed_for_its_other_guard(bed: &Bed) {
    let client = bed.quick().await;
    let lock = bed.lock(&client, "job");
    let owner = client.owner();
    let kept = lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
    let given = lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap().into_owner();
    tokio::time::sleep(QUICK + QUICK / 3).await;
    assert!(kept.is_held());
    assert_eq!(lock.hold_count(&given).await.unwrap(), 2);
    assert_eq!(lock.release(&given).await.unwrap(), Released::StillHeld(1));
    assert_eq!(kept.unlock().await.unwrap(), Released::Free);
}

pub async fn an_owner_moves_to_another_client_and_back(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.client().await, bed.client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    let owner = lock.lock().await.unwrap().into_owner();
    // The other process comes in as the same owner, gives the first hold back, and goes on with its own.
    let there: Guard = other.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
    assert_eq!(other.hold_count(&owner).await.unwrap(), 2);
    assert_eq!(other.release(&owner).await.unwrap(), Released::StillHeld(1));
    assert!(there.is_held());
    assert!(bed.rival(&ours, "job").try_lock().await.unwrap().is_none());
    let back = lock.acquire(Acquire::new().owner(&owner).wait(ms(0))).await.unwrap().expect("the same owner");
    assert_eq!(there.unlock().await.unwrap(), Released::StillHeld(1));
    assert_eq!(back.unlock().await.unwrap(), Released::Free);
}

pub async fn a_scope_is_one_owner(bed: &Subject<'_>) {
    let client = bed.client().await;
    let (lock, rival) = (bed.lock(&client, "job"), bed.rival(&client, "job"));
    let (me, you) = (client.owner(), client.owner());
    me.scope(async {
        let outer = lock.lock().await.unwrap();
        let inner = lock.try_lock().await.unwrap().expect("the same owner");
        assert_eq!((outer.owner(), inner.owner()), (&me, &me));
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2);
        // An owner that is named goes before, a scope inside as well, and a task of its own is outside.
        assert!(rival.acquire(Acquire::new().owner(&you).wait(ms(0))).await.unwrap().is_none());
        assert!(you.scope(rival.try_lock()).await.unwrap().is_none());
        let apart = rival.clone();
        assert!(tokio::spawn(async move { apart.try_lock().await.unwrap().is_none() }).await.unwrap());
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
    })
    .await;
    let guard = lock.try_lock().await.unwrap().unwrap();
    assert_ne!(guard.owner(), &me);
    guard.unlock().await.unwrap();
    // Tasks that act as one owner at the same time: all are in, and all have to go.
    let mut guards = Vec::new();
    let entering = (0..20).map(|_| lock.acquire(Acquire::new().owner(&me)));
    for guard in futures::future::join_all(entering).await {
        guards.push(guard.unwrap().unwrap());
    }
    assert_eq!(lock.hold_count(&me).await.unwrap(), 20);
    let released = futures::future::join_all(guards.into_iter().map(Guard::unlock)).await;
    assert_eq!(released.iter().filter(|released| matches!(released, Ok(Released::Free))).count(), 1);
    assert!(!lock.is_locked().await.unwrap());
}

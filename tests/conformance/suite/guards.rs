//! Guards: where they may be dropped, and holds that outlive them.

use distlock::{Acquire, Client, Error, Guard, NotHeld, Owner, Released};

use crate::mutex::Held;
use crate::subject::{Subject, freed, passer, waiting};
use bed::{becomes, ends, enter, ms, secs};

pub async fn guard_dropped_anywhere_releases_the_lock(bed: &Subject<'_>) {
    fn is_free_to_roam<T: Send + Sync + 'static>(_: &T) {}
    let client = bed.still_client().await;
    let lock = bed.mutex(&client, "job");
    type Way = (&'static str, fn(Held));
    let ways: [Way; 5] = [
        ("here", drop),
        ("on a thread without a runtime", |guard| std::thread::spawn(move || drop(guard)).join().unwrap()),
        ("on a thread that panics", |guard| {
            let panicked = std::thread::spawn(move || {
                let _guard = guard;
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            assert!(panicked.join().is_err());
        }),
        ("in a task that is aborted", |guard| {
            let task = tokio::spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            task.abort();
        }),
        ("on another runtime, which ends", |guard| {
            let elsewhere = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async move { drop(guard) });
            });
            elsewhere.join().unwrap();
        }),
    ];
    for (place, drops) in ways {
        let guard = lock.lock().await.unwrap();
        is_free_to_roam(&guard);
        drops(guard);
        becomes(&format!("locked after a guard was dropped {place}"), false, async || lock.is_locked().await.unwrap())
            .await;
    }

    let guard = lock.lock().await.unwrap();
    let panicked = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicked.await.unwrap_err().is_panic());
    freed(&lock).await;

    // A guard may also be unlocked from another runtime.
    let guard = lock.lock().await.unwrap();
    let released = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(guard.unlock())
    });
    assert_eq!(released.join().unwrap().unwrap(), Released::Free);
}

pub async fn hold_of_owner_is_released_by_another_client(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (bed.lock(&ours, "job"), bed.lock(&theirs, "job"));
    let me = ours.owner();
    let holds = bed.kind().most_holds(2);
    let mut guards = Vec::new();
    for _ in 0..holds {
        guards.push(enter(&*lock, &me).await);
    }
    for guard in guards {
        assert_eq!(guard.into_owner().to_string(), me.to_string());
    }
    bed::idle(&ours).await;
    // The owner is sent to the other process as text.
    let owner: Owner = me.to_string().parse().unwrap();
    assert!(other.is_held_by(&owner).await.unwrap());
    assert!(bed.rival(&ours, "job").try_lock().await.unwrap().is_none());
    for left in (1..holds).rev() {
        assert_eq!(other.release(&owner).await.unwrap(), Released::StillHeld(left));
    }
    assert_eq!(other.release(&owner).await.unwrap(), Released::Free);
    let refused = other.release(&owner).await.unwrap_err();
    let Error::NotHeld { name, why: NotHeld::Never } = &refused else { panic!("{refused:?}") };
    assert_eq!(**name, *other.name());
    let owner = lock.lock().await.unwrap().into_owner();
    let waiter = passer(bed.rival(&ours, "job"));
    waiting(&ours, 1).await;
    assert_eq!(other.release(&owner).await.unwrap(), Released::Free);
    ends("the waiter, which is woken by the release alone", waiter).await.unwrap();
}

pub async fn only_guards_without_explicit_lease_are_renewed(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let (mutex, keys) = (bed.mutex(&client, "job"), bed.keys_of("job").len());
    let guard = mutex.lock().await.unwrap();
    assert_eq!(client.renew_now().await.renewed, keys);
    guard.extend(secs(60)).await.unwrap();
    assert_eq!(client.renew_now().await.renewed, 0, "with an explicit lease");
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    if !bed.kind().is_permit {
        owner_without_a_guard_is_not_renewed(bed, &client, keys).await;
    }
}

async fn owner_without_a_guard_is_not_renewed(bed: &Subject<'_>, client: &Client, keys: usize) {
    let lock = bed.lock(client, "job");
    let guard = lock.lock().await.unwrap();
    assert_eq!(client.renew_now().await.renewed, keys);
    let owner = guard.into_owner();
    assert_eq!(client.renew_now().await.renewed, 0, "without a guard");
    assert_eq!(lock.release(&owner).await.unwrap(), Released::Free);

    if bed.kind().comes_in_again {
        let owner = client.owner();
        let kept = enter(&*lock, &owner).await;
        let given = enter(&*lock, &owner).await.into_owner();
        assert_eq!(client.renew_now().await.renewed, keys, "with the owner's other guard");
        assert!(kept.is_held());
        assert_eq!(lock.hold_count(&given).await.unwrap(), 2);
        assert_eq!(lock.release(&given).await.unwrap(), Released::StillHeld(1));
        assert_eq!(kept.unlock().await.unwrap(), Released::Free);
    }
}

pub async fn scope_acquires_as_one_owner(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let (lock, rival) = (bed.lock(&client, "job"), bed.rival(&client, "job"));
    let (me, you) = (client.owner(), client.owner());
    me.scope(async {
        let outer = lock.lock().await.unwrap();
        let inner = lock.try_lock().await.unwrap().expect("the same owner");
        assert_eq!((outer.owner(), inner.owner()), (&me, &me));
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2);
        // An explicit owner or an inner scope takes precedence. A spawned task is outside the scope.
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
    // Concurrent tasks of one owner all acquire, and each must release its own hold.
    let guards = futures::future::join_all((0..20).map(|_| enter(&*lock, &me))).await;
    assert_eq!(lock.hold_count(&me).await.unwrap(), 20);
    let released = futures::future::join_all(guards.into_iter().map(Guard::unlock)).await;
    assert_eq!(released.iter().filter(|released| matches!(released, Ok(Released::Free))).count(), 1);
    assert!(!lock.is_locked().await.unwrap());
}

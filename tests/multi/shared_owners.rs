//! One owner uses multi locks of several clients, and single locks. Each hold is counted separately.

use std::sync::Arc;

use distlock::{Acquire, DistLock, Error, Flavour, Lost, MultiLock, Owner, RedLock, Released};

use bed::wire::{Wire, arrives};
use bed::{becomes, ends, enter, reentrant, secs};

/// One owner holds a single lock, and a multi lock that contains it. After the single hold is released, `other` is
/// excluded as before.
async fn beside(single: &dyn DistLock, many: &dyn DistLock, me: &Owner, other: &dyn DistLock) {
    let one = enter(single, me).await;
    let all = enter(many, me).await;
    one.unlock().await.unwrap();
    assert!(all.is_held());
    assert!(other.try_lock().await.unwrap().is_none(), "{} is free while {all:?} says held", other.name());
    all.unlock().await.unwrap();
}

/// The members belong to several clients. One client created the owner.
#[tokio::test]
async fn member_and_single_lock_of_one_owner_are_two_holds() {
    reentrant(async |bed| {
        let (first, second, other) = (bed.client().await, bed.client().await, bed.client().await);
        for flavour in [Flavour::Reentrant, Flavour::Write, Flavour::Fair] {
            let many = MultiLock::of(vec![first.lock(flavour, "x"), second.lock(flavour, "y")]);
            let me = first.owner();
            beside(&*second.lock(flavour, "x"), &many, &me, &*other.lock(flavour, "x")).await;
            beside(&*first.lock(flavour, "y"), &many, &me, &*other.lock(flavour, "y")).await;
        }
    })
    .await;
}

#[tokio::test]
async fn two_clients_hold_a_multi_lock_as_one_owner() {
    reentrant(async |bed| {
        let (first, second, other) = (bed.client().await, bed.client().await, bed.client().await);
        let names = ["x", "y"];
        let me = first.owner();
        let they = second.multi(names);
        let (one, two) = (enter(&first.multi(names), &me).await, enter(&they, &me).await);
        one.unlock().await.unwrap();
        assert!(two.is_held());
        assert!(other.reentrant("x").try_lock().await.unwrap().is_none(), "a third client holds x");
        assert_eq!(two.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// The copy arrives after an extend, and after another client has re-entered.
#[tokio::test]
async fn late_copy_of_acquire_changes_no_lease_or_count() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.multi(["x", "y"]);
        // This hold teaches the server the script.
        lock.lock().await.unwrap().unlock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        let guard = lock.acquire(Acquire::new().lease(secs(90))).await.unwrap().unwrap();
        let copy = wire.last(bed).await;
        guard.extend(secs(600)).await.unwrap();
        arrives(bed, &copy).await;
        for name in ["x", "y"] {
            let left = bed.admin.pttl(name).await;
            assert!(left > 300_000, "{name}: cut to {left} ms");
        }
        let they: Owner = guard.owner().to_string().parse().unwrap();
        let inner = enter(&other.multi(["x", "y"]), &they).await;
        arrives(bed, &copy).await;
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(client.reentrant("x").hold_count(&they).await.unwrap(), 1);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// One member is gone. The guard is notified, but is not dropped. `release.rs` tests this for plain members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_multi_lock_with_redlock_releases_other_members() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let red: Arc<dyn DistLock> = Arc::new(RedLock::new([client.clone()], "r"));
        let lock = MultiLock::of(vec![red, Arc::new(client.reentrant("a")), Arc::new(client.fair("c"))]);
        for gone in ["c", "r"] {
            let guard = lock.lock().await.unwrap();
            let lost = tokio::spawn(guard.lost());
            let () = bed.admin.cmd(&["DEL", gone]).await;
            client.renew_now().await;
            let lost = ends("the loss is signalled", lost).await.unwrap();
            assert!(matches!(&lost, Error::Lost { name, why: Lost::Gone } if **name == *lock.name()), "{lost:?}");
            becomes("keys that are left", Vec::<String>::new(), async || bed.admin.keys().await).await;
            let told = guard.unlock().await.unwrap_err();
            assert!(matches!(told, Error::Lost { why: Lost::Gone, .. }), "{told:?}");
        }
    })
    .await;
}

//! A release grants the lock to the head of the queue with a short lease, and the head confirms. Tests of late copies
//! of confirmations, and of the reuse of waiters' owners.

use distlock::{Acquire, Client, FairLock, Guard, Owner, Released};

use bed::wire::{Wire, arrives};
use bed::{Bed, ends, enter, eventually, fair, ms, secs, text};

use crate::rig::{holders, listens, queue, queued, waiter};

/// Two clients whose places (queue entries) last longer than a suspend of the machine. A first lease is as long as a
/// place. Confirmations of these tests set longer leases.
async fn clients(bed: &Bed) -> (Client, Client) {
    let client = async || bed.connect(bed.builder().configure(|options| options.fair_wait = secs(60))).await;
    (client().await, client().await)
}

/// `mine` waits while `theirs` holds the lock, and is granted the lock by the release of `theirs`.
async fn passed_on(bed: &Bed, theirs: &FairLock, mine: &FairLock, how: Acquire) -> Guard {
    let held = theirs.lock().await.unwrap();
    let (guard, ()) = tokio::join!(ends("the waiter", mine.acquire(how)), async {
        queued(bed, "x", 1).await;
        listens(bed, "x", &queue(bed, "x").await[0]).await;
        held.unlock().await.unwrap();
    });
    guard.unwrap().unwrap()
}

/// Returns the holder from the lock's state. `Guard::owner` would keep the owner from being reused.
async fn holder(lock: &FairLock) -> String {
    lock.state().await.unwrap().holders[0].0.clone()
}

/// Returns the last call that contains both words.
async fn last_with(bed: &Bed, wire: &Wire, lease: &str, owner: &str) -> Option<Vec<String>> {
    let calls = wire.calls(bed).await;
    calls.into_iter().rev().find(|call| [lease, owner].iter().all(|word| call.iter().any(|it| it == word)))
}

/// The lease of the grant was short, and was extended after the confirmation.
async fn a_copy_of_a_confirmation_cuts_no_later_lease(given: bool) {
    fair(async |bed| {
        let (client, other) = clients(bed).await;
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let how = Acquire::new().lease(ms(61_800));
        let how = if given { how.owner(&client.owner()) } else { how };
        let wire = Wire::tap(&bed.server).await;
        let guard = passed_on(bed, &theirs, &lock, how).await;
        let me = holder(&theirs).await;
        let copy = last_with(bed, &wire, "61800", &me).await.expect("a confirmation");
        guard.extend(secs(600)).await.unwrap();
        arrives(bed, &copy).await;
        let left = bed.admin.pttl("x").await;
        assert!(guard.is_held() && left > 300_000, "given {given}: cut to {left} ms");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

bed::cases!(a_copy_of_a_confirmation_cuts_no_later_lease:
    alone = false,
    as_given = true,
);

/// The copy arrives when another waiter holds the lock under the same owner, with a longer lease.
#[tokio::test]
async fn late_copy_of_confirmation_does_not_cut_lease_of_later_waiter() {
    fair(async |bed| {
        let (client, other) = clients(bed).await;
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let wire = Wire::tap(&bed.server).await;
        let mut before: Option<(String, Vec<String>)> = None;
        let mut again = 0;
        // A waiter that was granted the lock before its subscription was confirmed does not reuse its owner, so the
        // test may need several tries.
        for _ in 0..50 {
            if again == 2 {
                break;
            }
            let lease = if before.is_none() { ms(62_200) } else { secs(600) };
            let mine = passed_on(bed, &theirs, &lock, Acquire::new().lease(lease)).await;
            let holder = holder(&theirs).await;
            match &before {
                Some((owner, copy)) if *owner == holder => {
                    again += 1;
                    arrives(bed, copy).await;
                    let left = bed.admin.pttl("x").await;
                    assert!(left > 300_000, "cut to {left} ms");
                }
                Some(_) => before = None,
                None => before = last_with(bed, &wire, "62200", &holder).await.map(|copy| (holder, copy)),
            }
            mine.unlock().await.unwrap();
        }
        assert_eq!(again, 2, "no owner was used again");
    })
    .await;
}

/// Another client read the owner from Redis, and holds the lock as this owner.
#[tokio::test]
async fn owner_that_holds_the_lock_is_not_reused() {
    fair(async |bed| {
        let (client, other) = clients(bed).await;
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let first = passed_on(bed, &theirs, &lock, Acquire::new()).await;
        let they: Owner = holder(&theirs).await.parse().unwrap();
        first.unlock().await.unwrap();
        let held = enter(&theirs, &they).await;
        let next = waiter(&client, "x");
        let has_place = async || next.is_finished() || !queue(bed, "x").await.is_empty();
        eventually("the client's next waiter has a place", has_place).await;
        assert!(!next.is_finished(), "two holders: the owner that holds the lock was used again");
        assert_ne!(queue(bed, "x").await, [text(&they)], "the place is the holder's");
        assert_eq!(holders(bed, "x").await, [(text(&they), "1".to_owned())].into());
        assert_eq!(held.unlock().await.unwrap(), Released::Free);
        let guard = ends("the next waiter", next).await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

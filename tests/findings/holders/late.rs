//! Copies of commands that arrive when nobody waits for them any more.

use distlock::{Acquire, Client, DistLock, Flavour, Guard, Owner, Released};
use distlock_support::{Action, Matcher, Proxy};

use super::{REENTRANT, each, holder, passed_on};
use bed::wire::{Wire, arrives};
use bed::{Bed, enter, idle, ms, reentrant, secs};

/// Finding 3: a release arrives once more after its owner has the lock again.
#[tokio::test]
async fn f3_a_late_copy_of_a_release_frees_no_later_hold() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.lock(flavour, "x");
        let wire = Wire::tap(&bed.server).await;
        let me = client.owner();
        // Until the server knows the scripts.
        enter(&*lock, &me).await.unlock().await.unwrap();
        assert_eq!(enter(&*lock, &me).await.unlock().await.unwrap(), Released::Free);
        let copy = wire.last(bed).await;
        let held = enter(&*lock, &me).await;
        arrives(bed, &copy).await;
        assert!(held.is_held());
        // Beside a reader others may read.
        let theirs = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        assert!(other.lock(theirs, "x").try_lock().await.unwrap().is_none(), "{flavour}: two holders");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        held.unlock().await.unwrap();
    })
    .await;
}

/// Finding 3: one of two holds is given back, and its release arrives once more: after another one came in.
#[tokio::test]
async fn f3_a_late_copy_of_a_partial_release_takes_no_other_hold() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let wire = Wire::tap(&bed.server).await;
        let me = client.owner();
        let outer = enter(&*lock, &me).await;
        enter(&*lock, &me).await.unlock().await.unwrap();
        let inner = enter(&*lock, &me).await;
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        let copy = wire.last(bed).await;
        let again = enter(&*lock, &me).await;
        arrives(bed, &copy).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2, "{flavour}");
        outer.unlock().await.unwrap();
        arrives(bed, &copy).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        assert!(again.is_held());
        assert_eq!(again.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// The first hold of an owner that nobody knew then, given back after somebody came in by its guard's owner.
#[tokio::test]
async fn f3_a_late_copy_of_the_first_holds_release() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        let first = lock.lock().await.unwrap();
        let me = first.owner().clone();
        let second = enter(&*lock, &me).await;
        assert_eq!(first.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        let copy = wire.last(bed).await;
        arrives(bed, &copy).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        assert_eq!(second.unlock().await.unwrap(), Released::Free, "{flavour}");
        let third = enter(&*lock, &me).await;
        arrives(bed, &copy).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        assert_eq!(third.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// Finding 3: `extend(1 s)` brought no answer, `extend(60 s)` did, and then the first one arrives.
#[tokio::test]
async fn f3_a_late_copy_of_an_extend_cuts_no_later_lease() {
    for flavour in REENTRANT {
        for given in [false, true] {
            reentrant(async |bed| {
                let proxy = Proxy::start(bed.server.addr());
                let client = bed.connect(Client::builder(&proxy.url()).command_timeout(ms(600))).await;
                let lock = client.lock(flavour, "x");
                let mut how = Acquire::new().lease(secs(20));
                if given {
                    how = how.owner(&client.owner());
                }
                let guard = lock.acquire(how).await.unwrap().unwrap();
                // So that the server knows the script.
                guard.extend(secs(30)).await.unwrap();
                let wire = Wire::tap(&bed.server).await;
                let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
                guard.extend(secs(5)).await.unwrap_err();
                lost.fired().await;
                let copy = wire.last(bed).await;
                guard.extend(secs(60)).await.unwrap();
                arrives(bed, &copy).await;
                let left = ms(bed.admin.pttl("x").await.try_into().unwrap());
                assert!(guard.is_held());
                assert!(
                    guard.remaining() <= left,
                    "{flavour}, given {given}: {:?}, and the server {left:?}",
                    guard.remaining()
                );
                assert!(left > secs(50), "{flavour}, given {given}: {left:?}");
                guard.unlock().await.unwrap();
                client.shutdown(secs(5)).await.unwrap();
            })
            .await;
        }
    }
}

/// An `extend` that was answered arrives once more, at once: the lease that came after it stays.
#[tokio::test]
async fn f3_a_copy_of_an_answered_extend_cuts_no_later_lease() {
    for flavour in REENTRANT {
        for given in [false, true] {
            reentrant(async |bed| {
                let client = bed.client().await;
                let lock = client.lock(flavour, "x");
                let mut how = Acquire::new().lease(secs(20));
                if given {
                    how = how.owner(&client.owner());
                }
                let guard = lock.acquire(how).await.unwrap().unwrap();
                guard.extend(secs(15)).await.unwrap();
                let wire = Wire::tap(&bed.server).await;
                guard.extend(secs(5)).await.unwrap();
                let copy = wire.last(bed).await;
                for longer in [secs(60), secs(50)] {
                    // The second of these makes it shorter too.
                    guard.extend(longer).await.unwrap();
                    arrives(bed, &copy).await;
                    let left = ms(bed.admin.pttl("x").await.try_into().unwrap());
                    let says = guard.remaining();
                    assert!(left > secs(40) && says <= left, "{flavour}, given {given}: {says:?} of {left:?}");
                }
                guard.extend(secs(10)).await.unwrap();
                assert!(
                    bed.admin.pttl("x").await <= 10_000,
                    "{flavour}, given {given}: an extend that is no copy counts"
                );
                assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}, given {given}");
            })
            .await;
        }
    }
}

/// An `extend` met a hold that another client had as this owner, and cut nothing. It arrives once more when that is gone: found
/// by a cold reading.
#[tokio::test]
async fn f3_a_copy_of_an_extend_that_cut_nothing_cuts_nothing_later() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let they: Owner = me.as_str().parse().unwrap();
        let guard = lock.acquire(Acquire::new().owner(&me).lease(secs(20))).await.unwrap().unwrap();
        let beside = enter(&*other.lock(flavour, "x"), &they).await;
        guard.extend(secs(15)).await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        guard.extend(secs(5)).await.unwrap();
        let copy = wire.last(bed).await;
        guard.extend(secs(60)).await.unwrap();
        assert_eq!(beside.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        arrives(bed, &copy).await;
        let left = ms(bed.admin.pttl("x").await.try_into().unwrap());
        assert!(guard.remaining() <= left, "{flavour}: {:?} of {left:?}", guard.remaining());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// An owner has the lock a second time, now that the server knows the script and the client its clock; and that acquire.
async fn second(bed: &Bed, client: &Client, lock: &dyn DistLock) -> (Owner, Guard, Vec<String>) {
    let me = client.owner();
    enter(lock, &me).await.unlock().await.unwrap();
    let wire = Wire::tap(&bed.server).await;
    let guard = enter(lock, &me).await;
    (me, guard, wire.last(bed).await)
}

/// An acquire arrives once more after its hold was given up for its owner: it is counted already. Found by a cold reading.
#[tokio::test]
async fn f3_a_copy_of_an_acquire_finds_a_hold_that_was_given_up() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let (me, guard, copy) = second(bed, &client, &*lock).await;
        let handed = guard.into_owner();
        idle(&client).await;
        arrives(bed, &copy).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}: counted twice");
        assert_eq!(lock.release(&handed).await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// A fair lock's waiters use an owner again: what was sent for the one before, and was answered, arrives once more. Found by
/// a cold reading.
#[tokio::test]
async fn f3_a_late_copy_finds_no_later_waiter_of_an_owner_that_is_used_again() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let wire = Wire::tap(&bed.server).await;
        let mut before: Option<(String, Vec<Vec<String>>)> = None;
        let mut again = 0;
        // One that was granted the lock before it heard that it listens is not used again.
        for _ in 0..50 {
            if again == 2 {
                break;
            }
            let mine = passed_on(bed, &theirs, &lock, Acquire::new()).await;
            let holder = holder(&theirs).await;
            if let Some((owner, copies)) = &before
                && *owner == holder
            {
                again += 1;
                for copy in copies {
                    arrives(bed, copy).await;
                }
                assert_eq!(theirs.state().await.unwrap().holders, [(holder.clone(), 1)]);
            }
            let from = wire.calls(bed).await.len();
            mine.unlock().await.unwrap();
            let sent = wire.calls(bed).await.split_off(from);
            before = Some((holder.clone(), sent.into_iter().filter(|call| call.contains(&holder)).collect()));
        }
        assert_eq!(again, 2, "no owner was used again");
    })
    .await;
}

/// `release(&owner)` was answered, and arrives once more, at once: it takes no other hold.
#[tokio::test]
async fn f3_a_copy_of_a_release_by_owner_takes_no_other_hold() {
    for flavour in REENTRANT {
        for first in [false, true] {
            reentrant(async |bed| {
                let (client, other) = (bed.client().await, bed.client().await);
                let lock = client.lock(flavour, "x");
                let given_up = if first { lock.lock().await.unwrap() } else { enter(&*lock, &client.owner()).await };
                let me = given_up.into_owner();
                idle(&client).await;
                let they: Owner = me.as_str().parse().unwrap();
                let theirs = other.lock(flavour, "x");
                let held = enter(&*theirs, &they).await;
                let wire = Wire::tap(&bed.server).await;
                assert_eq!(theirs.release(&they).await.unwrap(), Released::StillHeld(1), "{flavour}");
                for copy in wire.calls(bed).await {
                    arrives(bed, &copy).await;
                }
                assert_eq!(theirs.hold_count(&they).await.unwrap(), 1, "{flavour}, first {first}");
                assert_eq!(other.renew_now().await.lost, 0, "{flavour}, first {first}");
                assert_eq!(held.unlock().await.unwrap(), Released::Free, "{flavour}, first {first}");
            })
            .await;
        }
    }
}

/// An acquire that was undone arrives once more, after its last moment: it has no effect.
#[tokio::test]
async fn f3_a_late_copy_of_an_acquire_is_refused() {
    each(async |bed, flavour| {
        let client = bed.connect(bed.builder().command_timeout(ms(300))).await;
        let lock = client.lock(flavour, "x");
        let (_, guard, copy) = second(bed, &client, &*lock).await;
        guard.unlock().await.unwrap();
        tokio::time::sleep(ms(350)).await;
        arrives(bed, &copy).await;
        assert!(!lock.is_locked().await.unwrap(), "{flavour}: counted twice");
        idle(&client).await;
    })
    .await;
}

/// A lock forced open by a command that went unanswered is not forced open again a minute later.
#[tokio::test]
async fn f3_a_late_copy_of_a_force_is_refused() {
    each(async |bed, flavour| {
        let client = bed.connect(bed.builder().command_timeout(ms(300))).await;
        let lock = client.lock(flavour, "x");
        assert!(!lock.force_unlock().await.unwrap());
        let held = lock.lock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        assert!(lock.force_unlock().await.unwrap());
        let copy = wire.last(bed).await;
        drop(held);
        let held = lock.lock().await.unwrap();
        tokio::time::sleep(ms(350)).await;
        arrives(bed, &copy).await;
        assert_eq!(lock.hold_count(held.owner()).await.unwrap(), 1, "{flavour}: forced open again");
        held.unlock().await.unwrap();
        // What covered the reader that was forced out runs out by itself.
        for cover in bed.admin.keys().await.iter().filter(|key| key.contains("rwlock_timeout")) {
            bed.admin.cmd::<()>(&["DEL", cover]).await;
        }
    })
    .await;
}

/// A multi lock is taken by one command, extended, and entered by another client: the command arrives once more. Found by an
/// adversary.
#[tokio::test]
async fn a_copy_of_a_multi_locks_acquire_changes_nothing() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.multi(["x", "y"]);
        // So that the server knows the script.
        lock.lock().await.unwrap().unlock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        let guard = lock.acquire(Acquire::new().lease(secs(9))).await.unwrap().unwrap();
        let copy = wire.last(bed).await;
        guard.extend(secs(60)).await.unwrap();
        arrives(bed, &copy).await;
        for name in ["x", "y"] {
            assert!(bed.admin.pttl(name).await > 50_000, "{name}: {} ms", bed.admin.pttl(name).await);
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

//! Late copies of commands that arrive when their call has ended. Random sequences rarely produce these cases.

use crate::pair::Pair;
use crate::prelude::*;

/// An `extend` to a shorter lease has no effect while another client has a hold under the same owner. The other hold is
/// released, and a copy of the extend arrives before its last moment. The copy must not shorten the lease.
#[test]
fn late_copy_of_extend_does_not_shorten_lease() {
    each(REENTRANT, async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { ours, mine, other, me, .. } = &pair;
        let they: Owner = me.to_string().parse().unwrap();
        let guard = enter(&**mine, me, 20_000).await;
        let beside = take(&**other, &they).await;
        // The call teaches the client the server's clock.
        guard.extend(ms(15_000)).await.unwrap();
        ours.link.plan_next(Mishap::LateCopy(ms(200)));
        guard.extend(ms(5_000)).await.unwrap();
        guard.extend(ms(60_000)).await.unwrap();
        assert_eq!(beside.unlock().await.unwrap(), Released::StillHeld(1));
        sleep(ms(250)).await;
        let (left, promised) = (pair.lasts(flavour, me), guard.remaining());
        assert!(promised.as_millis() <= left.unsigned_abs().into(), "{promised:?} of {left} ms");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    });
}

/// Passes a fair lock on to a waiter of our client. Returns its guard, and the owner's text on the server. The test
/// does not call `Guard::owner`, because then the client would not reuse the owner.
async fn passed_on(pair: &Pair) -> (Guard, String) {
    let Pair { server, mine, other, .. } = pair;
    let held = other.lock().await.unwrap();
    let (guard, ()) = tokio::join!(mine.lock(), async {
        while server.channels().is_empty() || !server.keys().iter().any(|key| key.starts_with(b"redisson_lock_queue")) {
            sleep(ms(1)).await;
        }
        sleep(ms(20)).await;
        held.unlock().await.unwrap();
    });
    (guard.unwrap(), other.state().await.unwrap().holders[0].0.clone())
}

/// A client reuses the owners of waiters of a fair lock. A late copy of an earlier waiter's release must not affect a
/// later waiter with the same owner.
#[test]
fn late_copy_of_release_does_not_end_hold_of_recycled_owner() {
    virtually(|| async {
        let pair = Pair::near(Flavour::Fair);
        let mut before = String::new();
        // If the grant arrives before the subscription is confirmed, the owner is not reused. So the test may need
        // several tries.
        for _ in 0..10 {
            let (guard, owner) = passed_on(&pair).await;
            if owner == before {
                sleep(ms(400)).await;
                assert!(guard.is_held());
                assert_eq!(count(&pair.server, Flavour::Fair, "x", &owner), 1);
                assert_eq!(guard.unlock().await.unwrap(), Released::Free);
                return;
            }
            before = owner;
            pair.ours.link.plan_next(Mishap::LateCopy(ms(300)));
            assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        }
        panic!("no owner was used again");
    });
}

/// A fair acquire was abandoned and undone. A copy arrives before its last moment and takes a place in the queue. The
/// client must remove the place as soon as no further copy can arrive, long before the place expires.
#[test]
fn late_copy_of_fair_acquire_leaves_no_queue_entry() {
    virtually(|| async {
        let Pair { ours, mine, other, me, .. } = Pair::near(Flavour::Fair);
        // The acquire teaches the client the server's clock.
        take(&*mine, &me).await.unlock().await.unwrap();
        let held = other.lock().await.unwrap();
        ours.link.plan_next(Mishap::LateOnly(ms(200)));
        let outcome = mine.acquire(Acquire::new().owner(&me).wait(ms(50))).await;
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
        let queue = ours.client.fair("x");
        sleep(ms(200)).await;
        assert_eq!(queue.queue_len().await.unwrap(), 1, "the copy came in");
        sleep(ms(600)).await;
        assert_eq!(queue.queue_len().await.unwrap(), 0);
        held.unlock().await.unwrap();
    });
}

/// A writer's acquire was in doubt and was undone, and its owner waits again. The undo and the second look must leave
/// the owner's mark (its entry among the waiting writers), because without the mark the owner is not notified.
#[test]
fn undo_of_write_acquire_keeps_mark_of_waiting_owner() {
    each(pairs([Flavour::Read, Flavour::Write], [false, true]), async |(held_by, another_waits)| {
        let pair = Pair::new(Flavour::Write, LinkOptions::instant(), |options| {
            options.command_timeout = ms(500);
            options.prefer = Prefer::Writers;
        });
        let Pair { server, ours, theirs, mine, me, .. } = &pair;
        let held = lock(&theirs.client, held_by, "x").lock_leased(ms(60_000)).await.unwrap();
        let wait = |party: &Party, owner: Owner| {
            let write = party.client.rw("x").write();
            tokio::spawn(async move {
                let _ = take(&write, &owner).await.unlock().await.unwrap();
            })
        };
        let other = another_waits.then(|| wait(theirs, theirs.client.owner()));
        sleep(ms(10)).await;
        ours.link.plan_next(Mishap::LoseReply);
        let outcome = mine.acquire(Acquire::new().owner(me).wait(ms(50))).await;
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
        let waits = wait(ours, me.clone());
        sleep(ms(10)).await;
        let key = server.keys().into_iter().find(|key| key.ends_with(b":rwlock_waiting")).expect("a mark");
        for n in 0..900 {
            sleep(ms(1)).await;
            let mark = server.command(&[b"zscore", &key, me.as_str().as_bytes()]);
            assert!(mark != SimReply::Nil, "no mark after {n} ms");
        }
        held.unlock().await.unwrap();
        all(other.into_iter().chain([waits])).await;
    });
}

//! Late replies and copies, guards lost by an extend in doubt, and when guards are notified.

use crate::pair::Pair;
use crate::prelude::*;

const SECOND: Duration = ms(1_000);

fn hasty(options: &mut Options) {
    (options.retry_attempts, options.retry_delay) = (1, (ms(10), ms(30)));
}

/// Commands take 2 ms.
fn pair(flavour: Flavour) -> Pair {
    Pair::new(flavour, way(ms(1)), hasty)
}

/// The grant arrives after its lease, so the hold is released. The next attempt acquires the lock, and a copy of the
/// release arrives.
#[test]
fn release_copy_of_late_grant_does_not_free_newer_hold() {
    each(pairs(REENTRANT, [false, true]), async |(flavour, given)| {
        let pair = pair(flavour);
        let Pair { ours, theirs, mine, me, .. } = &pair;
        // Then the server knows the scripts, and the client knows the server's clock.
        take(&**mine, me).await.unlock().await.unwrap();
        let next = ours.link.sent();
        ours.link.plan(next, Mishap::DelayBy(ms(1_500)));
        for later in [next + 1, next + 2] {
            ours.link.plan(later, Mishap::LateCopy(ms(500)));
        }
        let how = Acquire::new().lease(ms(1_200));
        let guard = mine.acquire(if given { how.owner(me) } else { how }).await.unwrap().unwrap();
        assert!(ours.link.sent() >= next + 3, "a grant, its release and another attempt");
        guard.extend(60 * SECOND).await.unwrap();
        sleep(SECOND).await;
        assert!(guard.is_held() && pair.count(flavour, guard.owner()) == 1, "freed by a copy");
        // The flavour that a held lock excludes.
        let rival = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        assert!(lock(&theirs.client, rival, "x").try_lock().await.unwrap().is_none(), "two holders");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        pair.ends().await;
    });
}

/// The server answers only after each lease has ended. The acquire ends with an error, even if other clients hold the
/// lock in between.
#[test]
fn acquire_with_only_late_grants_ends_in_error() {
    each(["reentrant", "fair", "multi", "RedLock"], async |kind| {
        let server = SimServer::new(1);
        let [ours, theirs] = [400, 1].map(|far| Party::new(&server, way(ms(far)), hasty));
        let of = |client: &Client| -> Arc<dyn DistLock> {
            match kind {
                "reentrant" => Arc::new(client.reentrant("x")),
                "fair" => Arc::new(client.fair("x")),
                "multi" => Arc::new(client.multi(["x", "y"])),
                _ => Arc::new(RedLock::new([client.clone()], "x").node_timeout(2 * SECOND)),
            }
        };
        let (lock, rival) = (of(&ours.client), of(&theirs.client));
        lock.lock().await.unwrap().unlock().await.unwrap();
        let mut turns = 0;
        let others = async {
            loop {
                let held = rival.lock().await.unwrap();
                turns += 1;
                sleep(ms(50)).await;
                // The guard may have lost the lock to a late grant.
                drop(held);
                sleep(ms(100)).await;
            }
        };
        let late = tokio::select! {
            late = timeout(60 * SECOND, lock.acquire(Acquire::new().lease(ms(200)))) => late.expect("it ends"),
            () = others => unreachable!("others go on for ever"),
        };
        let too_late = late.as_ref().is_err_and(|error| error.is_retryable() && !error.outcome_unknown());
        assert!(too_late && turns > 2, "{late:?} after {turns} turns of others");
        settled(&server, &[&ours, &theirs], 60 * SECOND).await.unwrap();
    });
}

/// The extend never reached the server, so the lease continues there. The guard is lost but still exists, and must not
/// be renewed.
#[test]
fn guard_lost_by_extend_in_doubt_is_not_renewed() {
    each(REENTRANT, async |flavour| {
        let pair = pair(flavour);
        let Pair { ours, mine, .. } = &pair;
        let guard = mine.lock().await.unwrap();
        ours.link.plan_next(Mishap::SwallowRequest);
        guard.extend(ms(500)).await.unwrap_err();
        let lost = timeout(10 * SECOND, guard.lost()).await.expect("the loss is signalled");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        ours.client.renew_now().await;
        sleep(SECOND).await;
        assert_eq!(pair.count(flavour, guard.owner()), 0, "not given back");
        drop(guard);
        pair.ends().await;
    });
}

#[test]
fn extend_to_shorter_lease_does_not_warn_early() {
    each([false, true], async |watched| {
        let Pair { mine, .. } = pair(Flavour::Reentrant);
        let how = if watched { Acquire::new() } else { Acquire::new().lease(60 * SECOND) };
        let guard = mine.acquire(how).await.unwrap().unwrap();
        let (expiring, lost) = (tokio::spawn(guard.expiring()), tokio::spawn(guard.lost()));
        tokio::task::yield_now().await;
        guard.extend(9 * SECOND).await.unwrap();
        sleep(ms(5_900)).await;
        assert!(!expiring.is_finished() && !lost.is_finished(), "told with more than a third left");
        sleep(ms(200)).await;
        assert!(expiring.is_finished() && !lost.is_finished(), "with less than a third left");
        lost.abort();
        guard.unlock().await.unwrap();
    });
}

/// Another client has released the hold. The repeated release must not set the lease of the owner's other hold.
#[test]
fn repeated_release_of_missing_hold_sets_no_lease() {
    each(REENTRANT, async |flavour| {
        let pair = pair(flavour);
        let Pair { ours, mine, other, me, .. } = &pair;
        let (stays, goes) = (enter(&**mine, me, 12_000).await, enter(&**mine, me, 12_000).await);
        let they: Owner = me.to_string().parse().unwrap();
        assert_eq!(other.release(&they).await.unwrap(), Released::StillHeld(1));
        sleep(SECOND).await;
        ours.link.plan_next(Mishap::LoseReply);
        let _ = goes.unlock().await;
        let (promised, left) = (stays.remaining(), pair.lasts(flavour, me));
        assert!(stays.is_held() && promised.as_millis() as i64 <= left, "{promised:?} of {left} ms");
        assert_eq!(stays.unlock().await.unwrap(), Released::Free);
    });
}

/// The guard's renewals fail, and its hold ends with the lease. The owner has another hold with a longer lease.
#[test]
fn expired_watched_guard_keeps_longer_lease_of_its_owner() {
    each(REENTRANT, async |flavour| {
        let pair = pair(flavour);
        let Pair { ours, mine, me, .. } = &pair;
        let (watched, leased) = (take(&**mine, me).await, enter(&**mine, me, 600_000).await);
        ours.link.partition(true);
        let lost = timeout(31 * SECOND, watched.lost()).await.expect("not renewed, and not told");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        ours.client.renew_now().await;
        assert!(leased.is_held());
        ours.link.partition(false);
        drop(watched);
        sleep(10 * SECOND).await;
        assert_eq!(pair.count(flavour, me), 1);
        assert!(leased.is_held() && pair.lasts(flavour, me) > 500_000);
        leased.unlock().await.unwrap();
    });
}

//! Faults that random sequences and code reviews found, one test each.

use crate::pair::Pair;
use crate::prelude::*;

fn pair(flavour: Flavour, ordered: bool) -> Pair {
    Pair::new(flavour, LinkOptions { ordered, ..way(ms(1)) }, |options| options.command_timeout = ms(500))
}

fn third(server: &SimServer, name: &str) -> Box<dyn DistLock> {
    let link = LinkOptions { ordered: true, ..way(ms(1)) };
    let party = Party::new(server, link, |options| options.command_timeout = ms(500));
    lock(&party.client, Flavour::Fair, name)
}

async fn quiet(client: &Client) {
    while client.stats().under_way > 0 {
        sleep(ms(1)).await;
    }
}

/// A renewal names the only hold of an owner. Before the renewal arrives, the hold is released, and the owner gets a
/// new hold. The new hold must not be reported lost.
#[test]
fn renewal_in_flight_does_not_end_newer_hold() {
    each(REENTRANT, async |flavour| {
        let Pair { ours, mine, .. } = pair(flavour, false);
        let first = mine.lock().await.unwrap();
        let me = first.owner().clone();
        ours.link.plan_next(Mishap::DelayBy(ms(100)));
        let (renewed, second) = tokio::join!(ours.client.renew_now(), async {
            sleep(ms(1)).await;
            let second = take(&*mine, &me).await;
            assert_eq!(first.unlock().await.unwrap(), Released::StillHeld(1));
            second
        });
        assert!(renewed.lost == 0 && second.is_held());
        assert_eq!(second.unlock().await.unwrap(), Released::Free);
    });
}

/// The reply to a first acquire arrives after its lease, so the owner asks again. The first hold has no id in the
/// owner's list, so the server cannot recognise it by an id.
#[test]
fn repeated_first_acquire_can_be_reentered() {
    each(REENTRANT, async |flavour| {
        let pair = pair(flavour, true);
        let Pair { server, ours, mine, .. } = &pair;
        server.freeze(true);
        let leased = Acquire::new().lease(ms(100)).wait(Duration::from_secs(5));
        let (first, ()) = tokio::join!(mine.acquire(leased), async {
            sleep(ms(150)).await;
            server.freeze(false);
        });
        let first = first.unwrap().unwrap();
        let me = first.owner().clone();
        let second = take(&**mine, &me).await;
        assert!(first.is_held());
        drop(first);
        quiet(&ours.client).await;
        assert_eq!(pair.count(flavour, &me), 1);
        assert_eq!(second.unlock().await.unwrap(), Released::Free);
    });
}

const QUEUE: &str = "redisson_lock_queue:{x}";

/// `{x}` and `x` share one queue. An owner waits there for `{x}`, and another client acquires `x` under the same owner.
/// The waiter must keep its place.
#[test]
fn queue_entry_survives_acquire_of_other_lock_with_same_queue() {
    virtually(|| async {
        let Pair { server, ours, other, me, .. } = pair(Flavour::Fair, true);
        let held = third(&server, "{x}").lock().await.unwrap();
        let (waiting, owner) = (ours.client.fair("{x}"), me.clone());
        let waits = tokio::spawn(async move { take(&waiting, &owner).await });
        sleep(ms(20)).await;
        let they: Owner = me.to_string().parse().unwrap();
        let beside = other.acquire(Acquire::new().owner(&they).wait(ms(0))).await.unwrap().expect("free");
        assert_eq!(words(&does(&server, &format!("lrange {QUEUE} 0 -1"))), [me.to_string()]);
        held.unlock().await.unwrap();
        assert_eq!(waits.await.unwrap().unlock().await.unwrap(), Released::Free);
        assert_eq!(beside.unlock().await.unwrap(), Released::Free);
    });
}

/// A waiter learns only at the end of its wait that its place is gone. A later wait of the same owner must get its own
/// grant: the registration of the first wait must not receive it.
#[test]
fn registration_of_displaced_waiter_is_not_granted() {
    virtually(|| async {
        let pair = pair(Flavour::Fair, true);
        let first = Party::new(&pair.server, way(ms(20)), |_| ());
        let me = first.client.owner();
        let held = third(&pair.server, "x").lock().await.unwrap();
        // The acquire teaches the client the server's clock.
        take(&first.client.fair("y"), &me).await.unlock().await.unwrap();
        let waiting = first.client.fair("x");
        let how = Acquire::new().owner(&me).wait(ms(115));
        let waits = tokio::spawn(async move { waiting.acquire(how).await });
        // The first waiter has queued and subscribed. Its second attempt is in flight when its place is deleted.
        while pair.server.channels().is_empty() {
            sleep(ms(1)).await;
        }
        does(&pair.server, &format!("del {QUEUE} redisson_lock_timeout:{{x}}"));
        assert!(waits.await.unwrap().unwrap().is_none());
        let they: Owner = me.to_string().parse().unwrap();
        let (granted, ()) = tokio::join!(take(&*pair.other, &they), async {
            sleep(ms(20)).await;
            held.unlock().await.unwrap();
        });
        assert_eq!(pair.count(Flavour::Fair, &me), 1);
        assert_eq!(granted.unlock().await.unwrap(), Released::Free);
    });
}

/// Two guards of an owner have expired, and the owner acquires again between their releases. Neither release may
/// decrement the new hold.
#[test]
fn release_of_expired_guard_does_not_end_newer_hold() {
    each(REENTRANT, async |flavour| {
        let Pair { ours, mine, me, .. } = pair(flavour, true);
        let [first, second] = [enter(&*mine, &me, 300).await, enter(&*mine, &me, 300).await];
        sleep(ms(400)).await;
        let again = mine.acquire(Acquire::new().owner(&me));
        let (released, held, ()) = tokio::join!(biased; first.unlock(), again, async { drop(second) });
        assert!(released.is_err(), "{released:?}");
        let held = held.unwrap().unwrap();
        quiet(&ours.client).await;
        assert!(held.is_held());
        assert_eq!(ours.client.renew_now().await.lost, 0);
        assert_eq!(held.unlock().await.unwrap(), Released::Free);
    });
}

/// Two tasks wait for a fair lock under one owner. The second task enters next to the first, but the reply to its
/// attempt arrives after the lease. The client releases this hold, and the task acquires another hold at once.
#[test]
fn acquire_after_late_grant_gets_hold_of_its_own() {
    virtually(|| async {
        let pair = pair(Flavour::Fair, true);
        let Pair { ours, mine, me, .. } = &pair;
        // The acquire teaches the client the server's clock.
        take(&**mine, me).await.unlock().await.unwrap();
        ours.link.plan_next(Mishap::DelayBy(ms(20)));
        let (first, second) = tokio::join!(take(&**mine, me), async {
            // The first task's command is in flight.
            sleep(ms(5)).await;
            ours.link.plan_next(Mishap::DelayBy(ms(200)));
            enter(&**mine, me, 150).await
        });
        quiet(&ours.client).await;
        assert!(first.is_held() && second.is_held());
        assert_eq!(pair.count(Flavour::Fair, me), 2);
        assert_eq!(second.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(first.unlock().await.unwrap(), Released::Free);
    });
}

/// Another client has read a fair waiter's owner in Redis, and holds the lock under that owner. The waiter must not
/// mistake that hold for a grant.
#[test]
fn waiter_does_not_take_hold_of_other_client_for_grant() {
    each([false, true], async |used_before| {
        let Pair { server, other: second, .. } = pair(Flavour::Fair, true);
        let first = Party::new(&server, way(ms(20)), |_| ());
        let waits = || {
            let lock = first.client.fair("x");
            tokio::spawn(async move { lock.lock().await.unwrap() })
        };
        if used_before {
            let held = second.lock().await.unwrap();
            let waits = waits();
            sleep(ms(1000)).await;
            held.unlock().await.unwrap();
            waits.await.unwrap().unlock().await.unwrap();
        }
        let _over = second.lock_leased(ms(2500)).await.unwrap();
        let waits = waits();
        sleep(ms(1000)).await;
        let queue = words(&does(&server, &format!("lrange {QUEUE} 0 -1")));
        let [owner] = queue.as_slice() else { panic!("{queue:?}") };
        let (they, theirs) = (owner.parse::<Owner>().unwrap(), third(&server, "x"));
        let held = loop {
            if let Some(held) = theirs.acquire(Acquire::new().owner(&they).wait(ms(0))).await.unwrap() {
                break held;
            }
            sleep(ms(1)).await;
        };
        let early = timeout(ms(4000), waits).await;
        assert!(held.is_held() && early.is_err(), "two holders: {early:?}");
    });
}

/// A reader's explicit lease is longer than the watchdog's, so rounds renew it too. These rounds must not count as
/// renewals of a watched hold that was acquired since.
#[test]
fn renewal_of_long_lease_does_not_renew_newer_watched_hold() {
    virtually(|| async {
        let Pair { server, ours, mine, me, .. } =
            Pair::new(Flavour::Read, way(ms(1000)), |options| options.batching = false);
        let _long = enter(&*mine, &me, 300_000).await;
        // The round teaches the server the script.
        ours.client.renew_now().await;
        let (watched, _) = tokio::join!(take(&*mine, &me), async {
            sleep(ms(1990)).await;
            ours.client.renew_now().await
        });
        let cover = server.pttl(format!("{{x}}:{me}:rwlock_timeout:2").as_bytes());
        let promised = i64::try_from(watched.remaining().as_millis()).unwrap();
        assert!(promised <= cover, "{promised} ms of {cover}");
    });
}

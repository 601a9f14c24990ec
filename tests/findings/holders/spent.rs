//! Attempts whose grant came too late to be of use, renewals that are overtaken, and copies of what was sent for an owner
//! before: found by an adversary.

use std::cell::Cell;
use std::sync::Arc;

use distlock::{Acquire, Client, DistLock, Flavour, Owner, RedLock, Released};
use distlock_support::{Action, Matcher, Mode, Proxy};

use super::{each, holder, passed_on};
use bed::wire::{Wire, arrives};
use bed::{idle, ms, reentrant, secs};

/// The first grant comes when its lease is over, and is given back; the next attempt gets the lock, and then the release of the
/// first arrives once more.
async fn the_release_of_a_grant_that_came_too_late_frees_no_later_hold((flavour, given): (Flavour, bool)) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let options = Client::builder(&proxy.url()).command_timeout(secs(5)).retry_delay((ms(10), ms(30)));
        let (client, other) = (bed.connect(options).await, bed.client().await);
        let lock = client.lock(flavour, "x");
        // So that the server knows the scripts.
        lock.lock().await.unwrap().unlock().await.unwrap();
        let me = client.owner();
        let wire = Wire::tap(&bed.server).await;
        let late = proxy.on_request(Matcher::command("EVALSHA"), Action::DelayReply(ms(1500)));
        let how = Acquire::new().lease(ms(1200));
        let how = if given { how.owner(&me) } else { how };
        let guard = lock.acquire(how).await.unwrap().unwrap();
        assert!(late.has_fired());
        guard.extend(secs(60)).await.unwrap();
        let calls = wire.calls(bed).await;
        let copies: Vec<_> = calls.iter().filter(|call| call[1] != calls[0][1]).collect();
        assert!(copies.len() >= 2, "a release and an extend: {calls:?}");
        for copy in copies {
            arrives(bed, copy).await;
        }
        let theirs = other.lock(flavour, "x").try_lock().await.unwrap();
        assert!(guard.is_held() && theirs.is_none(), "{flavour}, given {given}: two holders");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}, given {given}");
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

bed::cases!(the_release_of_a_grant_that_came_too_late_frees_no_later_hold:
    reentrant_alone = (Flavour::Reentrant, false),
    reentrant_as_given = (Flavour::Reentrant, true),
    fair_alone = (Flavour::Fair, false),
    fair_as_given = (Flavour::Fair, true),
    write_alone = (Flavour::Write, false),
    write_as_given = (Flavour::Write, true),
);

/// As above, where the attempt after it is told that its place is gone.
#[tokio::test]
async fn nor_where_a_waiter_loses_its_place_after_it() {
    bed::fair(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let options = Client::builder(&proxy.url()).command_timeout(secs(5)).retry_delay((ms(10), ms(30)));
        let (client, other) = (bed.connect(options).await, bed.client().await);
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let me = client.owner();
        bed::enter(&lock, &me).await.unlock().await.unwrap();
        let first = theirs.lock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        let how = Acquire::new().owner(&me).lease(ms(1208));
        let (mine, late) = tokio::join!(lock.acquire(how), async {
            super::waiter_listens(bed).await;
            let confirms = Matcher::command("EVALSHA").containing("$4\r\n1208\r\n");
            let late = proxy.on_request(confirms, Action::DelayReply(ms(1500)));
            first.unlock().await.unwrap();
            late
        });
        let mine = mine.unwrap().unwrap();
        assert!(late.has_fired());
        mine.extend(secs(60)).await.unwrap();
        for copy in wire.calls(bed).await.iter().filter(|call| !call.contains(&"1208".to_owned())) {
            arrives(bed, copy).await;
        }
        assert!(mine.is_held() && theirs.try_lock().await.unwrap().is_none(), "two holders");
        assert_eq!(mine.unlock().await.unwrap(), Released::Free);
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// Who is granted the lock too late again and again is told so in the end, also where others have it in between.
async fn grants_that_always_come_too_late_are_an_error_in_the_end(kind: &str) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let options = Client::builder(&proxy.url()).command_timeout(ms(900)).retry_delay((ms(10), ms(30)));
        let (client, other) = (bed.connect(options.retry_attempts(1)).await, bed.client().await);
        let of = |client: &Client| -> Arc<dyn DistLock> {
            match kind {
                "reentrant" => Arc::new(client.reentrant("x")),
                "fair" => Arc::new(client.fair("x")),
                "multi" => Arc::new(client.multi(["x", "y"])),
                _ => Arc::new(RedLock::new([client.clone()], "x").node_timeout(secs(2))),
            }
        };
        let (lock, theirs) = (of(&client), of(&other));
        lock.lock().await.unwrap().unlock().await.unwrap();
        proxy.set_upstream_mode(Mode::Delay(ms(400)));
        let turns = Cell::new(0);
        let others = async {
            loop {
                let held = theirs.lock().await.unwrap();
                turns.set(turns.get() + 1);
                tokio::time::sleep(ms(50)).await;
                // Lost, where the other one was granted it between.
                drop(held);
                tokio::time::sleep(ms(100)).await;
            }
        };
        let ends = tokio::time::timeout(secs(60), lock.acquire(Acquire::new().lease(ms(200))));
        let late = tokio::select! {
            late = ends => late.expect("ends"),
            () = others => unreachable!("goes on for ever"),
        };
        println!("{kind}: {late:?} after {} turns of others", turns.get());
        let too_late = late.as_ref().is_err_and(|error| error.is_retryable() && !error.outcome_unknown());
        assert!(too_late && turns.get() > 2, "{kind}: {late:?} after {} turns of others", turns.get());
        proxy.set_upstream_mode(Mode::Pass);
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

bed::cases!(grants_that_always_come_too_late_are_an_error_in_the_end:
    reentrant = "reentrant",
    fair = "fair",
    multi = "multi",
    redlock = "RedLock",
);

/// A waiter confirms what it was granted for a short lease; another waits as the same owner later, and the confirmation arrives
/// once more.
#[tokio::test]
async fn a_copy_of_a_confirmation_cuts_no_lease_of_an_owner_that_is_used_again() {
    bed::fair(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let wire = Wire::tap(&bed.server).await;
        let mut before: Option<(String, Vec<String>)> = None;
        let mut again = 0;
        // One that was granted the lock before it heard that it listens is not used again.
        for _ in 0..50 {
            if again == 2 {
                break;
            }
            let how = if before.is_none() { Acquire::new().lease(ms(2200)) } else { Acquire::new() };
            let mine = passed_on(bed, &theirs, &lock, how).await;
            let holder = holder(&theirs).await;
            match &before {
                Some((owner, copy)) if *owner == holder => {
                    again += 1;
                    arrives(bed, copy).await;
                    let left = ms(bed.admin.pttl("x").await.try_into().unwrap());
                    assert!(mine.remaining() <= left, "{:?} of {left:?}", mine.remaining());
                }
                // One that was not used again.
                Some(_) => before = None,
                None => {
                    let confirms = |call: &Vec<String>| call.contains(&"2200".to_owned()) && call.contains(&holder);
                    let copy = wire.calls(bed).await.into_iter().rev().find(confirms);
                    before = copy.map(|copy| (holder, copy));
                }
            }
            mine.unlock().await.unwrap();
        }
        assert_eq!(again, 2, "no owner was used again");
    })
    .await;
}

/// A renewal asks for the first hold of an owner; before it arrives, the owner comes in again, and the first guard goes.
#[tokio::test]
async fn a_renewal_of_a_first_hold_ends_no_later_one() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        // Some connections are slow.
        let client = bed.connect(Client::builder(&proxy.url()).pool_size(4)).await;
        let lock = client.lock(flavour, "x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        let probe = lock.lock().await.unwrap();
        assert_eq!(client.renew_now().await.renewed, 1);
        let renewal = wire.last(bed).await[1].clone();
        probe.unlock().await.unwrap();
        let first = lock.lock().await.unwrap();
        let late = proxy.on_request(Matcher::command("EVALSHA").containing(&renewal), Action::Delay(ms(600)));
        let (round, second) = tokio::join!(client.renew_now(), async {
            late.fired().await;
            let me = first.owner().clone();
            let second = bed::enter(&*lock, &me).await;
            assert_eq!(first.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
            second
        });
        assert!(second.is_held(), "{flavour}: {round:?}");
        assert_eq!(second.unlock().await.unwrap(), Released::Free, "{flavour}");
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// A waiter's confirmation comes in so late that it makes the rest of the first lease longer; it is extended, and the
/// confirmation arrives once more.
#[tokio::test]
async fn a_copy_of_a_confirmation_that_cut_nothing_cuts_nothing_later() {
    bed::fair(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let wire = Wire::tap(&bed.server).await;
        let guard = passed_on(bed, &theirs, &lock, Acquire::new().lease(ms(3900))).await;
        let me = holder(&theirs).await;
        let confirms = |call: &&Vec<String>| call.contains(&"3900".to_owned()) && call.contains(&me);
        let copy = wire.calls(bed).await.iter().rev().find(confirms).expect("confirmed").clone();
        // As if the first lease had been shorter still when it came in.
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        let _: i64 = bed.admin.cmd(&["HSET", "x", &me, "1"]).await;
        let _: i64 = bed.admin.cmd(&["PEXPIRE", "x", "2500"]).await;
        arrives(bed, &copy).await;
        let lengthened = bed.admin.pttl("x").await;
        assert!((2_500..=3_900).contains(&lengthened), "{lengthened} ms");
        let _: i64 = bed.admin.cmd(&["PEXPIRE", "x", "3990"]).await;
        arrives(bed, &copy).await;
        let left = bed.admin.pttl("x").await;
        assert!(left > 3_900, "cut to {left} ms");
        assert!(theirs.force_unlock().await.unwrap());
    })
    .await;
}

/// Somebody else gives back a guard's hold; its release is sent twice, and finds nothing to do: the lease of the other guards
/// has not begun anew.
#[tokio::test]
async fn a_repeated_release_that_finds_nothing_begins_no_lease() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let options = Client::builder(&proxy.url()).command_timeout(ms(300)).retry_delay((ms(10), ms(50)));
        let client = bed.connect(options).await;
        let other = bed.connect(bed.builder().watchdog(secs(2)).command_timeout(ms(500))).await;
        let (lock, me) = (client.lock(flavour, "x"), client.owner());
        let how = || Acquire::new().owner(&me).lease(secs(12));
        let stays = lock.acquire(how()).await.unwrap().unwrap();
        let goes = lock.acquire(how()).await.unwrap().unwrap();
        let they: Owner = me.to_string().parse().unwrap();
        // The newest.
        assert_eq!(other.lock(flavour, "x").release(&they).await.unwrap(), Released::StillHeld(1), "{flavour}");
        tokio::time::sleep(secs(1)).await;
        let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::DropRequest);
        let _ = goes.unlock().await;
        lost.fired().await;
        let left = ms(bed.admin.pttl("x").await.try_into().unwrap());
        assert!(stays.is_held() && stays.remaining() <= left, "{flavour}: {:?} of {left:?}", stays.remaining());
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// Somebody else gives back the newest of an owner's holds here, and the owner comes in again: the guard of the other hold has
/// lost nothing.
#[tokio::test]
async fn coming_in_beside_a_hold_that_is_gone_ends_no_other() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.lock(flavour, "x"), client.owner());
        let (stays, goes) = (bed::enter(&*lock, &me).await, bed::enter(&*lock, &me).await);
        let they: Owner = me.to_string().parse().unwrap();
        assert_eq!(other.lock(flavour, "x").release(&they).await.unwrap(), Released::StillHeld(1), "{flavour}");
        let comes = bed::enter(&*lock, &me).await;
        assert!(stays.is_held() && comes.is_held() && !goes.is_held(), "{flavour}: {stays:?} {goes:?} {comes:?}");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2, "{flavour}");
        assert_eq!(comes.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        drop(goes);
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
        idle(&client).await;
    })
    .await;
}

//! Extends in doubt, and copies of commands that make a lease shorter: found by an adversary.

use std::sync::Arc;

use distlock::{Acquire, Client, DistLock as _, Error, Guard, Owner, Released};
use distlock_support::{Action, Matcher, Proxy};

use super::{each, holder, passed_on};
use bed::wire::{Wire, arrives};
use bed::{Bed, enter, eventually, idle, ms, reentrant, secs};

/// The guard counts on no more than the server has, which is more than `least` seconds.
async fn lasts(bed: &Bed, guard: &Guard, least: u64, what: &str) {
    let left = ms(bed.admin.pttl("x").await.try_into().unwrap());
    assert!(guard.remaining() <= left && left > secs(least), "{what}: {:?} of {left:?}", guard.remaining());
}

/// A fresh owner's guard is extended and given back; its owner comes in again, and the extend arrives once more.
#[tokio::test]
async fn a_copy_of_a_first_holds_extend_cuts_no_later_hold() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let guard = lock.lock_leased(secs(60)).await.unwrap();
        guard.extend(secs(50)).await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        guard.extend(secs(5)).await.unwrap();
        let copy = wire.last(bed).await;
        let me = guard.owner().clone();
        guard.unlock().await.unwrap();
        let again = lock.acquire(Acquire::new().owner(&me).lease(secs(60))).await.unwrap().unwrap();
        arrives(bed, &copy).await;
        lasts(bed, &again, 50, &flavour.to_string()).await;
        assert_eq!(again.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// A fresh owner's extend is in doubt; another client comes in as that owner, the first guard goes, and the extend arrives for
/// the first time.
#[tokio::test]
async fn an_extend_of_a_hold_that_is_gone_cuts_nobody_elses() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.lock(flavour, "x");
        let guard = lock.lock_leased(secs(60)).await.unwrap();
        guard.extend(secs(50)).await.unwrap();
        let wire = Wire::tap(&bed.server).await;
        guard.extend(secs(40)).await.unwrap();
        let mut copy = wire.last(bed).await;
        let they: Owner = guard.owner().to_string().parse().unwrap();
        let theirs = other.lock(flavour, "x");
        let held = theirs.acquire(Acquire::new().owner(&they).lease(secs(60))).await.unwrap().unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        // The next one of that guard's, which never came in.
        for word in &mut copy {
            let next = word.strip_prefix('~').and_then(|n| n.parse::<u64>().ok()).map(|n| format!("~{}", n + 1));
            *word = next.unwrap_or_else(|| word.replace(",-~2", ",-~3").replace("-40000", "-1000"));
        }
        arrives(bed, &copy).await;
        lasts(bed, &held, 50, &flavour.to_string()).await;
        assert_eq!(held.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// An extend that makes the lease shorter brings no answer: whoever waits for the end is told at the shorter one.
async fn an_extend_in_doubt_ends_the_work_at_the_shorter_lease(several: bool) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).command_timeout(ms(600))).await;
        let how = Acquire::new().lease(secs(60));
        let guard = if several {
            client.multi(["x", "y"]).acquire(how).await.unwrap().unwrap()
        } else {
            client.reentrant("x").acquire(how).await.unwrap().unwrap()
        };
        guard.extend(secs(50)).await.unwrap();
        let guard = Arc::new(guard);
        let [lost, works] = [Arc::clone(&guard), Arc::clone(&guard)];
        let lost = tokio::spawn(async move { lost.lost().await });
        let works = tokio::spawn(async move { works.run(std::future::pending::<()>()).await });
        // Both wait for the longer lease by now.
        tokio::task::yield_now().await;
        let swallowed = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
        guard.extend(ms(1500)).await.unwrap_err();
        swallowed.fired().await;
        let ended = tokio::time::timeout(secs(20), async { (lost.await.unwrap(), works.await.unwrap()) });
        let (lost, works) = ended.await.expect("at the shorter lease");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        assert!(matches!(works, Err(Error::Lost { .. })), "{works:?}");
        drop(guard);
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

bed::cases!(an_extend_in_doubt_ends_the_work_at_the_shorter_lease:
    of_one = false,
    of_several = true,
);

/// The watchdog keeps no lock for a guard that was lost by an extend in doubt, although that guard is still there.
#[tokio::test]
async fn a_guard_lost_by_an_extend_in_doubt_is_not_renewed() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let options = Client::builder(&proxy.url()).watchdog(bed::QUICK).command_timeout(ms(300));
        let client = bed.connect(options.retry_delay((ms(10), ms(50)))).await;
        let lock = client.lock(flavour, "x");
        let guard = lock.lock().await.unwrap();
        // Where the server never heard of it, the lease goes on there.
        let swallowed = proxy.on_request(Matcher::command("EVALSHA"), Action::DropRequest);
        guard.extend(ms(500)).await.unwrap_err();
        swallowed.fired().await;
        let lost = tokio::time::timeout(secs(10), guard.lost()).await.expect("told");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        client.renew_now().await;
        // Its connection may be away for a moment.
        eventually("given back", async || matches!(lock.is_locked().await, Ok(false))).await;
        drop(guard);
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// A fair lock's waiter confirms what it was granted, for a short lease, and extends it; the confirmation arrives once more.
async fn a_copy_of_a_confirmation_cuts_no_later_lease(given: bool) {
    bed::fair(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let how = Acquire::new().lease(ms(1800));
        let how = if given { how.owner(&client.owner()) } else { how };
        let wire = Wire::tap(&bed.server).await;
        let guard = passed_on(bed, &theirs, &lock, how).await;
        let confirmed = |call: &&Vec<String>| call.contains(&"1800".to_owned());
        let copy = wire.calls(bed).await.iter().rev().find(confirmed).expect("confirmed").clone();
        guard.extend(ms(3800)).await.unwrap();
        arrives(bed, &copy).await;
        lasts(bed, &guard, 2, &format!("given {given}")).await;
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

bed::cases!(a_copy_of_a_confirmation_cuts_no_later_lease:
    alone = false,
    as_given = true,
);

/// A fair lock's waiters use an owner again that somebody else read in Redis and is in as: another one is taken.
#[tokio::test]
async fn an_owner_that_somebody_is_in_as_is_not_used_again() {
    bed::fair(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, theirs) = (client.fair("x"), other.fair("x"));
        let first = passed_on(bed, &theirs, &lock, Acquire::new()).await;
        let they: Owner = holder(&theirs).await.parse().unwrap();
        first.unlock().await.unwrap();
        let held = enter(&theirs, &they).await;
        assert!(lock.lock_for(ms(300)).await.unwrap().is_none(), "two holders");
        assert_eq!(held.unlock().await.unwrap(), Released::Free);
        let guard = lock.lock_for(secs(20)).await.unwrap().expect("free");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// An extend that makes the lease shorter, and is answered in time, is no sign of an end.
async fn an_extend_to_a_shorter_lease_warns_nobody(watched: bool) {
    reentrant(async |bed| {
        let client = bed.client().await;
        let how = if watched { Acquire::new() } else { Acquire::new().lease(secs(60)) };
        let guard = client.reentrant("x").acquire(how).await.unwrap().unwrap();
        let expiring = tokio::spawn(guard.expiring());
        let lost = tokio::spawn(guard.lost());
        tokio::task::yield_now().await;
        guard.extend(secs(9)).await.unwrap();
        // Both have looked at the new lease by then; the warning is due after six seconds of nine.
        tokio::time::sleep(ms(200)).await;
        assert!(!expiring.is_finished() && !lost.is_finished(), "watched {watched}");
        tokio::time::timeout(secs(20), expiring).await.expect("warned").unwrap();
        lost.abort();
        guard.unlock().await.unwrap();
    })
    .await;
}

bed::cases!(an_extend_to_a_shorter_lease_warns_nobody:
    leased = false,
    watched = true,
);

/// An extend is refused, but so late that the shorter lease would be over: whoever was told of the end was told the truth.
async fn what_is_told_while_an_extend_is_under_way_stays_true(watched: bool) {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).command_timeout(secs(5))).await;
        let how = if watched { Acquire::new() } else { Acquire::new().lease(secs(60)) };
        let guard = client.reentrant("x").acquire(how).await.unwrap().unwrap();
        // So that the server knows the script.
        client.renew_now().await;
        guard.extend(secs(50)).await.unwrap();
        let lost = tokio::spawn(guard.lost());
        let _: String = bed.admin.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let late = proxy.on_request(Matcher::command("EVALSHA"), Action::DelayReply(ms(1500)));
        let extended = guard.extend(ms(500)).await;
        assert!(extended.is_err() && late.has_fired(), "{extended:?}");
        let told = tokio::time::timeout(ms(100), lost).await.is_ok();
        assert!(told && !guard.is_held(), "watched {watched}: told {told}, held {}", guard.is_held());
        let _: String = bed.admin.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
        drop(guard);
        idle(&client).await;
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

bed::cases!(what_is_told_while_an_extend_is_under_way_stays_true:
    leased = false,
    watched = true,
);

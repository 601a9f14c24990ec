//! Requests to a holder to finish: when the holder hears them, and that they change nothing else.

use crate::pair::Pair;
use crate::prelude::*;
use bed::REVOCABLE;
use futures::FutureExt as _;

const WATCHDOG: Duration = ms(30_000);
const JAVA: &str = "7be4a1a6-9a6b-4a4c-8b9f-1c1f6f8f6f8f:7";

fn fields(pair: &Pair) -> Vec<String> {
    words(&does(&pair.server, "hkeys x"))
}

fn hears(guard: &Guard) -> bool {
    guard.revoked().now_or_never().is_some()
}

/// The request does not change the hold.
#[test]
fn holder_hears_request_at_its_next_renewal() {
    each(REVOCABLE, async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { theirs, mine, other, .. } = &pair;
        let guard = mine.lock().await.unwrap();
        let (before, lease) = (other.state().await.unwrap().holders, pair.server.pttl(b"x"));
        assert!(other.revoke().await.unwrap(), "nobody was asked");
        assert!(!hears(&guard), "before its renewal");
        assert!(pair.server.pttl(b"x") <= lease, "the request has set the lease");
        timeout(WATCHDOG / 3 + ms(20), guard.revoked()).await.expect("the next renewal reports the request");
        assert_eq!(other.state().await.unwrap().holders, before);
        assert!(guard.is_held() && guard.lost().now_or_never().is_none(), "the request has ended the hold: {guard:?}");
        assert!(hears(&guard), "only one of two calls hears the request");
        let waiter = waiter(lock(&theirs.client, flavour, "x").into());
        sleep(ms(200)).await;
        let stale = guard.revoked();
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        timeout(WATCHDOG, waiter).await.expect("it is served").unwrap();
        assert!(stale.now_or_never().is_none(), "after the release");
        // The request has ended with the hold.
        let next = other.lock().await.unwrap();
        assert_eq!(theirs.client.renew_now().await.renewed, 1);
        assert!(!hears(&next));
        next.unlock().await.unwrap();
        pair.ends().await;
    });
}

#[test]
fn holder_of_the_same_client_hears_request_at_once() {
    each(REVOCABLE, async |flavour| {
        let pair = Pair::near(flavour);
        let guard = pair.mine.lock_leased(ms(60_000)).await.unwrap();
        let revoked = tokio::spawn(guard.revoked());
        assert!(lock(&pair.ours.client, flavour, "x").revoke().await.unwrap());
        timeout(ms(10), revoked).await.expect("heard at once").unwrap();
        guard.unlock().await.unwrap();
        pair.ends().await;
    });
}

/// An explicit lease is not renewed.
#[test]
fn holder_with_explicit_lease_hears_request_when_it_extends() {
    each(REVOCABLE, async |flavour| {
        let pair = Pair::near(flavour);
        let guard = pair.mine.lock_leased(ms(60_000)).await.unwrap();
        assert!(pair.other.revoke().await.unwrap());
        sleep(WATCHDOG).await;
        assert!(!hears(&guard));
        guard.extend(ms(60_000)).await.unwrap();
        assert!(hears(&guard));
        guard.unlock().await.unwrap();
        pair.ends().await;
    });
}

#[test]
fn nobody_is_asked_at_free_locks_and_beside_java() {
    each(REVOCABLE, async |flavour| {
        let pair = Pair::near(flavour);
        assert!(!pair.other.revoke().await.unwrap());
        assert_eq!(pair.server.keys(), Vec::<Vec<u8>>::new());
        let mode = if flavour == Flavour::Write { "mode write " } else { "" };
        does(&pair.server, &format!("hset x {mode}{} 1", field(flavour, JAVA)));
        let before = fields(&pair);
        assert!(!pair.other.revoke().await.unwrap());
        assert_eq!(fields(&pair), before);
        does(&pair.server, "del x");
        pair.ends().await;
    });
}

#[test]
fn readers_are_not_asked_to_finish() {
    virtually(async || {
        let pair = Pair::near(Flavour::Write);
        let reading = pair.ours.client.rw("x").read().lock().await.unwrap();
        let before = fields(&pair);
        assert!(!pair.other.revoke().await.unwrap());
        assert_eq!(fields(&pair), before);
        reading.unlock().await.unwrap();
        pair.ends().await;
    });
}

#[test]
fn locks_without_room_for_a_request_refuse_it() {
    virtually(async || {
        let pair = Pair::near(Flavour::Reentrant);
        let client = &pair.ours.client;
        let all: [Box<dyn DistLock>; 5] = [
            Box::new(client.rw("x").read()),
            Box::new(client.plain("x")),
            Box::new(client.multi(["x", "y"])),
            Box::new(RedLock::new([client.clone()], "x")),
            Box::new(client.striped("x", 2)),
        ];
        let sent = pair.ours.link.sent();
        for lock in &all {
            let refused = lock.revoke().await;
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{lock:?}: {refused:?}");
        }
        assert_eq!(pair.ours.link.sent(), sent, "a command was sent");
    });
}

/// All guards of the owner hear the request. Counts and partial releases are as without a request.
#[test]
fn request_does_not_disturb_several_holds_of_an_owner() {
    each(REVOCABLE, async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { ours, mine, other, me, .. } = &pair;
        let (outer, inner) = (take(&**mine, me).await, take(&**mine, me).await);
        assert!(other.revoke().await.unwrap());
        let renewed = ours.client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.lost), (1, 0));
        assert_eq!([&outer, &inner].map(hears), [true, true]);
        assert_eq!((pair.count(flavour, me), other.hold_count(me).await.unwrap()), (2, 2));
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        // A hold that begins later hears the request too.
        let again = take(&**mine, me).await;
        assert_eq!([&again, &outer].map(hears), [true, true]);
        assert_eq!(again.unlock().await.unwrap(), Released::StillHeld(1));
        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
        assert_eq!(pair.server.pttl(b"x"), -2);
        pair.ends().await;
    });
}

/// A writer that also reads was asked to finish. Its readers were not.
#[test]
fn request_to_a_writer_ends_with_its_write_hold() {
    each([false, true], async |downgrades| {
        let pair = Pair::near(Flavour::Write);
        let Pair { ours, theirs, mine, other, me, .. } = &pair;
        let writing = take(&**mine, me).await;
        let mut reading = None;
        if !downgrades {
            reading = Some(take(&ours.client.rw("x").read(), me).await);
        }
        assert!(other.revoke().await.unwrap());
        ours.client.renew_now().await;
        assert!(hears(&writing));
        assert!(reading.as_ref().is_none_or(|reading| !hears(reading)), "a read hold hears the request");
        let reading = match reading {
            Some(reading) => {
                writing.unlock().await.unwrap();
                reading
            }
            None => writing.downgrade().await.unwrap(),
        };
        assert!(!fields(&pair).iter().any(|field| field.starts_with("revoke")), "{:?}", fields(&pair));
        let beside = theirs.client.rw("x").read().lock().await.unwrap();
        ours.client.renew_now().await;
        assert!(!hears(&reading));
        reading.unlock().await.unwrap();
        beside.unlock().await.unwrap();
        assert_eq!(pair.server.keys().len(), 0);
        pair.ends().await;
    });
}

/// The reply to a busy reader says whether a holder of Java was seen.
#[test]
fn request_is_not_taken_for_a_holder_of_java() {
    const READ: &str = concat!(
        include_str!("../../../lua/common/holds.lua"),
        include_str!("../../../lua/rwlock/covers.lua"),
        include_str!("../../../lua/rwlock/read.lua"),
    );
    virtually(async || {
        let pair = Pair::near(Flavour::Write);
        let writing = pair.mine.lock().await.unwrap();
        assert!(pair.other.revoke().await.unwrap());
        let keys: [&[u8]; 3] = [b"x", b"{x}:reader:rwlock_timeout:1", b"{x}:rwlock_waiting"];
        let args: [&[u8]; 8] = [b"reader", b"1000", b"", b"", b"0", b"0", b"{x}", b"1"];
        let busy = pair.server.eval(READ, &keys, &args);
        assert!(matches!(busy, SimReply::Int(1..)), "{busy:?}");
        writing.unlock().await.unwrap();
        pair.ends().await;
    });
}

#[test]
fn late_copy_of_a_request_does_not_reach_a_later_holder() {
    each(REVOCABLE, async |flavour| {
        let pair = Pair::near(flavour);
        let Pair { theirs, mine, other, .. } = &pair;
        // The client learns the server's clock.
        assert!(!theirs.client.reentrant("other").force_unlock().await.unwrap());
        let first = mine.lock().await.unwrap();
        theirs.link.plan_next(Mishap::LateCopy(ms(120_000)));
        assert!(other.revoke().await.unwrap());
        first.unlock().await.unwrap();
        let second = mine.lock().await.unwrap();
        sleep(ms(150_000)).await;
        assert!(!hears(&second));
        second.unlock().await.unwrap();
        pair.ends().await;
    });
}

//! Owners that several guards, clients and tasks act as: each hold counts for itself, whatever becomes of the others.

use std::sync::Arc;

use distlock::{Acquire, Error, Flavour, NotHeld, Owner, Released};
use distlock_support::{Action, Matcher, Proxy};

use bed::{Bed, becomes, builder, end, ends, enter, freed, idle, ms, reentrant, secs};

/// Flavours of which an owner may have several holds.
const REENTRANT: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

/// Runs a test body for each of them, one after the other, on one server.
pub async fn each(body: impl AsyncFn(&Bed, Flavour)) {
    reentrant(async |bed| {
        for flavour in REENTRANT {
            body(bed, flavour).await;
        }
    })
    .await;
}

/// This owner, as another process would know it.
pub fn elsewhere(owner: &Owner) -> Owner {
    owner.as_str().parse().unwrap()
}

/// What keeps everybody else out of a lock that is held.
const fn rival(flavour: Flavour) -> Flavour {
    if matches!(flavour, Flavour::Read) { Flavour::Write } else { flavour }
}

/// Its release takes nothing that the owner has acquired since, by the same client or another one.
#[tokio::test]
async fn an_expired_guard_frees_no_later_hold_of_its_owner() {
    each(async |bed, flavour| {
        let (first, second) = (bed.client().await, bed.client().await);
        for (same, client) in [(true, &first), (false, &second)] {
            let (mine, theirs) = (first.lock(flavour, "x"), client.lock(flavour, "x"));
            let me = first.owner();
            let they = elsewhere(&me);
            let expired = mine.acquire(Acquire::new().owner(&me).lease(ms(300))).await.unwrap().unwrap();
            freed(&mine).await;
            let held = enter(&*theirs, &they).await;
            drop(expired);
            becomes("commands under way", 0, async || first.stats().under_way).await;
            assert!(held.is_held(), "{flavour}, same client: {same}");
            assert_eq!(theirs.hold_count(&they).await.unwrap(), 1, "{flavour}, same client: {same}");
            assert_eq!(held.unlock().await.unwrap(), Released::Free, "{flavour}, same client: {same}");
        }
    })
    .await;
}

/// Another client has given its hold up, so no guard keeps it.
#[tokio::test]
async fn an_expired_guard_frees_no_hold_that_was_given_up() {
    each(async |bed, flavour| {
        let (first, second, third) = (bed.client().await, bed.client().await, bed.client().await);
        let expired = first.lock(flavour, "x").lock_leased(ms(300)).await.unwrap();
        let me = elsewhere(expired.owner());
        let lock = second.lock(flavour, "x");
        freed(&lock).await;
        let handed = enter(&*lock, &me).await.into_owner();
        becomes("commands of the second client", 0, async || second.stats().under_way).await;
        drop(expired);
        becomes("commands of the first client", 0, async || first.stats().under_way).await;
        let other = third.lock(rival(flavour), "x").try_lock().await.unwrap();
        assert!(other.is_none(), "{flavour}: a third client acquired a lock that is held");
        assert_eq!(lock.release(&handed).await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// Another process read the owner from the lock's state; neither release takes the other's hold.
#[tokio::test]
async fn holds_of_an_owner_that_was_read_from_redis_are_given_back_in_any_order() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        for (same, first_goes) in [(false, true), (true, true), (false, false), (true, false)] {
            let lock = client.lock(flavour, "x");
            let theirs = if same { client.lock(flavour, "x") } else { other.lock(flavour, "x") };
            let first = lock.lock().await.unwrap();
            let they: Owner = lock.state().await.unwrap().holders[0].0.parse().unwrap();
            let second = enter(&*theirs, &they).await;
            let what = format!("{flavour}, same client: {same}, the first goes first: {first_goes}");
            let (goes, stays) = if first_goes { (first, second) } else { (second, first) };
            assert_eq!(goes.unlock().await.unwrap(), Released::StillHeld(1), "{what}");
            assert_eq!(client.renew_now().await.lost + other.renew_now().await.lost, 0, "{what}");
            assert!(stays.is_held(), "{what}");
            assert_eq!(lock.hold_count(&they).await.unwrap(), 1, "{what}");
            assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{what}");
            idle(&client).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_release_by_owner_tells_the_guard_of_that_hold_at_once() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let guard = lock.lock_leased(secs(60)).await.unwrap();
        assert_eq!(lock.release(guard.owner()).await.unwrap(), Released::Free, "{flavour}");
        assert!(!guard.is_held(), "{flavour}");
    })
    .await;
}

/// The extend shortens the lease, and arrives after another client has come in as the owner.
#[tokio::test]
async fn an_extend_in_flight_cuts_no_lease_of_another_hold() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let (first, second) = (bed.connect(builder(&proxy.url())).await, bed.client().await);
        let (lock, theirs) = (first.lock(flavour, "x"), second.lock(flavour, "x"));
        let guard = lock.lock_leased(secs(200)).await.unwrap();
        guard.extend(secs(190)).await.unwrap();
        let slow = proxy.on_request(Matcher::command("EVALSHA"), Action::Delay(ms(300)));
        let extending = tokio::spawn(async move {
            guard.extend(secs(90)).await.unwrap();
            guard
        });
        ends("the extend is on its way", slow.fired()).await;
        let me: Owner = theirs.state().await.unwrap().holders[0].0.parse().unwrap();
        let held = theirs.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
        let guard = extending.await.unwrap();
        let lasts = async || ms(bed.admin.pttl("x").await.try_into().unwrap());
        let (promised, left) = (held.remaining(), lasts().await);
        assert!(held.is_held() && left > secs(200), "{flavour}: {left:?} left, {promised:?} promised");
        guard.unlock().await.unwrap();
        let left = lasts().await;
        assert!(held.is_held() && left > secs(200), "{flavour}, after the release: {left:?} left");
        held.unlock().await.unwrap();
        end(first).await;
    })
    .await;
}

/// Neither client knows of the other's hold.
#[tokio::test]
async fn an_acquire_in_flight_and_one_of_another_client_are_two_holds() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let (first, second) = (bed.connect(builder(&proxy.url())).await, bed.client().await);
        let (mine, theirs) = (first.lock(flavour, "x"), second.lock(flavour, "x"));
        for lock in [&mine, &theirs] {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        let me = first.owner();
        let slow = proxy.on_request(Matcher::command("EVALSHA"), Action::Delay(ms(150)));
        let how = Acquire::new().owner(&me);
        let acquiring = tokio::spawn(async move { mine.acquire(how).await });
        ends("the acquire is on its way", slow.fired()).await;
        let they = elsewhere(&me);
        let two = enter(&*theirs, &they).await;
        let one = ends("an acquire by the owner that holds the lock", acquiring).await.unwrap().unwrap().unwrap();
        assert_eq!(theirs.hold_count(&they).await.unwrap(), 2, "{flavour}");
        assert_eq!(one.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        assert!(two.is_held(), "{flavour}");
        assert_eq!(theirs.hold_count(&they).await.unwrap(), 1, "{flavour}");
        assert_eq!(two.unlock().await.unwrap(), Released::Free, "{flavour}");
        end(first).await;
    })
    .await;
}

/// Another client has given back the newest hold, unknown to this one.
#[tokio::test]
async fn coming_in_beside_a_hold_that_is_gone_ends_no_other() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let (lock, me) = (client.lock(flavour, "x"), client.owner());
        let (stays, goes) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        let released = other.lock(flavour, "x").release(&elsewhere(&me)).await.unwrap();
        assert_eq!(released, Released::StillHeld(1), "{flavour}");
        let comes = enter(&*lock, &me).await;
        assert!(stays.is_held() && comes.is_held() && !goes.is_held(), "{flavour}: {stays:?} {goes:?} {comes:?}");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2, "{flavour}");
        assert_eq!(comes.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        drop(goes);
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
        idle(&client).await;
    })
    .await;
}

/// The hold that this client knows of is gone, and the owner has another one elsewhere. In the queue it would wait for itself.
#[tokio::test]
async fn an_owner_that_holds_the_lock_elsewhere_does_not_queue() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for flavour in [Flavour::Reentrant, Flavour::Fair] {
            let (lock, theirs) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
            let me = client.owner();
            let stale = lock.acquire(Acquire::new().owner(&me).lease(secs(3600))).await.unwrap().expect("free");
            assert!(theirs.force_unlock().await.unwrap());
            let held = enter(&*theirs, &me).await;
            let waits = Arc::clone(&lock);
            let behind = tokio::spawn(async move { waits.lock().await.unwrap() });
            becomes("waiters", 1, async || client.stats().waiting).await;
            let again = ends("an acquire beside the owner's other hold", enter(&*lock, &me)).await;
            again.unlock().await.unwrap();
            drop(stale);
            held.unlock().await.unwrap();
            ends("the waiter", behind).await.unwrap().unlock().await.unwrap();
            idle(&client).await;
        }
    })
    .await;
}

/// A lock of another flavour has the name of a read-write lock.
#[tokio::test]
async fn an_error_names_the_owner_that_holds_a_half_of_a_read_write_lock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for half in [Flavour::Write, Flavour::Read] {
            let held = client.lock(half, "job").lock().await.unwrap();
            for flavour in [Flavour::Reentrant, Flavour::Fair, Flavour::Fenced, Flavour::Spin] {
                let refused = client.lock(flavour, "job").release(&client.owner()).await.unwrap_err();
                let Error::NotHeld { why: NotHeld::HeldBy { owner }, .. } = &refused else { panic!("{refused:?}") };
                assert_eq!(*owner, held.owner().to_string(), "{flavour}, where {half} is held");
            }
            held.unlock().await.unwrap();
        }
    })
    .await;
}

//! Owners that several guards, clients and kinds of lock act as.

use std::sync::Arc;

use distlock::{Acquire, Client, DistLock, Error, Flavour, MultiLock, Owner, RedLock, Released};
use distlock_support::{Action, Matcher, Proxy, RedisServer};

use super::{REENTRANT, each};
use bed::{enter, eventually, ms, reentrant, secs};

/// This owner, as another process would know it.
fn elsewhere(owner: &Owner) -> Owner {
    owner.as_str().parse().unwrap()
}

/// Finding 1: a hold that is over by its lease is nobody's to give back: the owner may hold anew, elsewhere or here.
#[tokio::test]
async fn f1_an_expired_guard_frees_nobody_elses_hold() {
    for flavour in REENTRANT {
        for same in [false, true] {
            reentrant(async |bed| {
                let (first, second) = (bed.client().await, bed.client().await);
                let second = if same { &first } else { &second };
                let (mine, theirs) = (first.lock(flavour, "x"), second.lock(flavour, "x"));
                let me = first.owner();
                let they = elsewhere(&me);
                let leased = Acquire::new().owner(&me).lease(ms(300));
                let expired = mine.acquire(leased).await.unwrap().unwrap();
                eventually("over", async || !mine.is_locked().await.unwrap()).await;
                let held = enter(&*theirs, &they).await;
                drop(expired);
                eventually("nothing under way", async || first.stats().under_way == 0).await;
                assert!(held.is_held(), "{flavour}, same client: {same}");
                assert_eq!(theirs.hold_count(&they).await.unwrap(), 1, "{flavour}, same client: {same}");
                assert_eq!(held.unlock().await.unwrap(), Released::Free, "{flavour}, same client: {same}");
            })
            .await;
        }
    }
}

/// Finding 1: a lock that was forced open takes the holds with it: who comes in again begins anew.
#[tokio::test]
async fn f1_forced_open_and_come_in_again() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.lock(flavour, "x");
        let me = elsewhere(&client.owner());
        let before = enter(&*lock, &me).await;
        assert!(other.lock(flavour, "x").force_unlock().await.unwrap());
        let after = enter(&*lock, &me).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        assert!(!before.is_held(), "{flavour}: the one before is lost");
        assert!(matches!(before.unlock().await, Err(Error::Lost { .. })), "{flavour}");
        assert!(after.is_held(), "{flavour}");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        assert_eq!(after.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// An owner that somebody read in Redis: its first guard takes no other hold with it, in whichever order they go.
#[tokio::test]
async fn an_owner_read_from_the_state_of_a_lock_is_known() {
    for flavour in REENTRANT {
        for (same, first_goes) in [(false, true), (true, true), (false, false), (true, false)] {
            reentrant(async |bed| {
                let (client, other) = (bed.client().await, bed.client().await);
                let lock = client.lock(flavour, "x");
                let theirs = if same { client.lock(flavour, "x") } else { other.lock(flavour, "x") };
                let first = lock.lock().await.unwrap();
                let they: Owner = lock.state().await.unwrap().holders[0].0.parse().unwrap();
                let second = enter(&*theirs, &they).await;
                let what = format!("{flavour}, same client: {same}, first: {first_goes}");
                let (goes, stays) = if first_goes { (first, second) } else { (second, first) };
                assert_eq!(goes.unlock().await.unwrap(), Released::StillHeld(1), "{what}");
                assert_eq!(client.renew_now().await.lost + other.renew_now().await.lost, 0, "{what}");
                assert!(stays.is_held(), "{what}");
                assert_eq!(lock.hold_count(&they).await.unwrap(), 1, "{what}");
                assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{what}");
            })
            .await;
        }
    }
}

/// The first guard of an owner, whose hold is over, against one that another client gave up for it: found by an adversary.
#[tokio::test]
async fn an_expired_first_guard_takes_no_hold_that_was_given_up() {
    each(async |bed, flavour| {
        let (first, second, third) = (bed.client().await, bed.client().await, bed.client().await);
        let expired = first.lock(flavour, "x").lock_leased(ms(300)).await.unwrap();
        let me = elsewhere(expired.owner());
        let lock = second.lock(flavour, "x");
        eventually("over", async || !lock.is_locked().await.unwrap()).await;
        let handed = enter(&*lock, &me).await.into_owner();
        eventually("given up", async || second.stats().under_way == 0).await;
        drop(expired);
        eventually("nothing under way", async || first.stats().under_way == 0).await;
        let theirs = if flavour == Flavour::Read { Flavour::Write } else { flavour };
        assert!(third.lock(theirs, "x").try_lock().await.unwrap().is_none(), "{flavour}: a third got in");
        assert_eq!(lock.release(&handed).await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// A release by owner of the hold that the first guard relies on tells that guard at once: found by an adversary.
#[tokio::test]
async fn a_release_by_owner_tells_the_first_guard() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let guard = lock.lock_leased(secs(60)).await.unwrap();
        assert_eq!(lock.release(guard.owner()).await.unwrap(), Released::Free, "{flavour}");
        assert!(!guard.is_held(), "{flavour}");
    })
    .await;
}

/// An extend that is under way while others come in as the owner cuts none of their leases: found by an adversary.
#[tokio::test]
async fn an_extend_under_way_cuts_no_lease_of_those_who_come_in() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let (first, second) = (bed.connect(Client::builder(&proxy.url())).await, bed.client().await);
        let guard = first.lock(flavour, "x").lock_leased(secs(20)).await.unwrap();
        guard.extend(secs(19)).await.unwrap();
        let slow = proxy.on_request(Matcher::command("EVALSHA"), Action::Delay(ms(300)));
        let extending = tokio::spawn(async move {
            guard.extend(ms(1500)).await.unwrap();
            guard
        });
        slow.fired().await;
        let me: Owner = second.lock(flavour, "x").state().await.unwrap().holders[0].0.parse().unwrap();
        let how = Acquire::new().owner(&me).lease(secs(60));
        let held = second.lock(flavour, "x").acquire(how).await.unwrap().unwrap();
        let guard = extending.await.unwrap();
        assert!(held.is_held() && bed.admin.pttl("x").await > 50_000, "{flavour}");
        guard.unlock().await.unwrap();
        assert!(held.remaining() > secs(50) && bed.admin.pttl("x").await > 50_000, "{flavour}");
        held.unlock().await.unwrap();
        first.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// Finding 2: two clients wait as one owner, and are served together: two holds.
#[tokio::test]
async fn f2_two_waiters_of_one_owner_are_two_holds() {
    bed::fair(async |bed| {
        let (first, second, holder) = (bed.client().await, bed.client().await, bed.client().await);
        let me = first.owner();
        let held = holder.fair("x").lock().await.unwrap();
        let wait = |client: &Client, owner: Owner| {
            let lock = client.fair("x");
            tokio::spawn(async move { lock.acquire(Acquire::new().owner(&owner).wait(secs(10))).await })
        };
        let one = wait(&first, me.clone());
        eventually("one waits", async || holder.fair("x").queue_len().await.unwrap() == 1).await;
        let two = wait(&second, elsewhere(&me));
        eventually("both wait", async || second.stats().waiting == 1).await;
        // It has asked, and has its place: the same one.
        tokio::time::sleep(ms(200)).await;
        held.unlock().await.unwrap();
        let one = one.await.unwrap().unwrap().expect("served");
        let two = two.await.unwrap().unwrap().expect("served");
        assert_eq!(holder.fair("x").hold_count(&me).await.unwrap(), 2);
        assert_eq!(one.unlock().await.unwrap(), Released::StillHeld(1));
        assert!(two.is_held());
        assert!(holder.fair("x").try_lock().await.unwrap().is_none(), "a third got in");
        assert_eq!(two.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// Finding 4: another client comes in as the owner while this one's first acquire is under way.
#[tokio::test]
async fn f4_an_acquire_under_way_beside_another_clients() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let (first, second) = (bed.connect(Client::builder(&proxy.url())).await, bed.client().await);
        let (mine, theirs) = (first.lock(flavour, "x"), second.lock(flavour, "x"));
        for lock in [&mine, &theirs] {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        let me = first.owner();
        let slow = proxy.on_request(Matcher::command("EVALSHA"), Action::Delay(ms(150)));
        let how = Acquire::new().owner(&me).wait(secs(5));
        let acquiring = tokio::spawn(async move { mine.acquire(how).await });
        slow.fired().await;
        let they = elsewhere(&me);
        let two = enter(&*theirs, &they).await;
        let one = acquiring.await.unwrap().unwrap().expect("the same owner");
        assert_eq!(theirs.hold_count(&they).await.unwrap(), 2, "{flavour}");
        assert_eq!(one.unlock().await.unwrap(), Released::StillHeld(1), "{flavour}");
        assert!(two.is_held());
        assert_eq!(theirs.hold_count(&they).await.unwrap(), 1, "{flavour}");
        assert_eq!(two.unlock().await.unwrap(), Released::Free, "{flavour}");
        first.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// Finding 4: an acquire whose reply is lost is asked for again, although somebody else knows the owner by now.
#[tokio::test]
async fn f4_a_repeat_of_an_owner_that_was_shared_meanwhile() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let first = bed.connect(Client::builder(&proxy.url()).retry_delay((ms(200), ms(400)))).await;
        let lock = first.lock(flavour, "x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let me = first.owner();
        let lost = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
        let (how, asking) = (Acquire::new().owner(&me).wait(secs(5)), Arc::clone(&lock));
        let acquiring = tokio::spawn(async move { asking.acquire(how).await });
        lost.fired().await;
        let they = elsewhere(&me);
        let guard = acquiring.await.unwrap().unwrap().expect("ours");
        assert_eq!(lock.hold_count(&they).await.unwrap(), 1, "{flavour}");
        assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}");
        first.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// A single lock and one made of several are held by one owner, each for itself.
async fn beside(single: &dyn DistLock, many: &dyn DistLock, me: &Owner, others: &[Arc<dyn DistLock>]) {
    let one = enter(single, me).await;
    let all = enter(many, me).await;
    one.unlock().await.unwrap();
    assert!(all.is_held());
    for other in others {
        assert!(other.try_lock().await.unwrap().is_none(), "{} is free while {all:?} says held", other.name());
    }
    all.unlock().await.unwrap();
}

/// Finding 5: members of a multi lock over several clients of one process, beside a single lock of the same owner.
#[tokio::test]
async fn f5_members_of_several_clients_are_holds_of_their_own() {
    reentrant(async |bed| {
        let (first, second, other) = (bed.client().await, bed.client().await, bed.client().await);
        for flavour in [Flavour::Reentrant, Flavour::Write, Flavour::Fair] {
            let many = MultiLock::of(vec![first.lock(flavour, "x"), second.lock(flavour, "y")]);
            let me = first.owner();
            beside(&*second.lock(flavour, "x"), &many, &me, &[other.lock(flavour, "x")]).await;
            // The client that made the owner holds what the other one's member is.
            beside(&*first.lock(flavour, "y"), &many, &me, &[other.lock(flavour, "y")]).await;
        }
    })
    .await;
}

/// Finding 16: one owner through two clients' multi locks, RedLocks, and a RedLock's owner at the next.
#[tokio::test]
async fn f16_one_owner_through_two_clients_locks_of_several() {
    reentrant(async |bed| {
        let (first, second, other) = (bed.client().await, bed.client().await, bed.client().await);
        let names = ["x", "y"];
        let me = first.owner();
        let they = second.multi(names);
        let (one, two) = (enter(&first.multi(names), &me).await, enter(&they, &me).await);
        one.unlock().await.unwrap();
        assert!(two.is_held());
        assert!(other.reentrant("x").try_lock().await.unwrap().is_none());
        assert_eq!(two.unlock().await.unwrap(), Released::Free);

        let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
        let clients = async || {
            let mut clients = Vec::new();
            for server in &servers {
                clients.push(Client::connect(&server.url()).await.unwrap());
            }
            clients
        };
        let (ours, theirs, thirds) = (clients().await, clients().await, clients().await);
        let red = |clients: &[Client]| RedLock::new(clients.iter().cloned(), "r");
        let one = red(&ours).lock().await.unwrap();
        let two = enter(&red(&theirs), one.owner()).await;
        one.unlock().await.unwrap();
        assert!(two.is_held());
        assert!(red(&thirds).try_lock().await.unwrap().is_none(), "a third holds what {two:?} says it has");
        assert_eq!(two.unlock().await.unwrap(), Released::Free);
        let me = ours[0].owner();
        let (one, two) = (enter(&red(&ours), &me).await, enter(&red(&theirs), &me).await);
        two.unlock().await.unwrap();
        assert!(one.is_held());
        assert!(red(&thirds).try_lock().await.unwrap().is_none());
        one.unlock().await.unwrap();
        for client in [ours, theirs, thirds].concat() {
            client.shutdown(secs(5)).await.unwrap();
        }
    })
    .await;
}

/// Finding 6: who gives back a hold without a guard leaves the leases of others alone.
#[tokio::test]
async fn f6_a_release_by_owner_cuts_no_other_lease() {
    each(async |bed, flavour| {
        let client = bed.quick().await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let given_up = enter(&*lock, &me).await.into_owner();
        let guard = lock.acquire(Acquire::new().owner(&me).lease(secs(60))).await.unwrap().unwrap();
        assert_eq!(lock.release(&given_up).await.unwrap(), Released::StillHeld(1), "{flavour}");
        let left = lock.remaining_ttl().await.unwrap().expect("held");
        assert!(guard.is_held() && guard.remaining() <= left, "{flavour}: {:?} of {left:?}", guard.remaining());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// Finding 14: a guard of the watchdog's that ends with its lease takes no longer lease of the same owner with it.
#[tokio::test]
async fn f14_an_expired_watchdog_ends_no_longer_lease() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let url = proxy.url();
        let options = Client::builder(&url).watchdog(bed::QUICK).command_timeout(ms(200)).retry_attempts(2);
        let client = bed.connect(options.retry_delay((ms(10), ms(50)))).await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let watched = enter(&*lock, &me).await;
        let leased = lock.acquire(Acquire::new().owner(&me).lease(secs(600))).await.unwrap().unwrap();
        proxy.blackhole(true);
        let lost = tokio::time::timeout(secs(10), watched.lost()).await.expect("not renewed, and not told");
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        // The scheduler finds it over.
        client.renew_now().await;
        assert!(leased.is_held(), "{flavour}");
        proxy.heal();
        drop(watched);
        eventually("one is left", async || {
            let count = |value: &String| value.parse::<u32>().ok();
            bed.admin.hgetall("x").await.values().filter_map(count).max() == Some(1)
        })
        .await;
        assert!(leased.is_held(), "{flavour}");
        assert!(bed.admin.pttl("x").await > 300_000, "{flavour}");
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1, "{flavour}");
        leased.unlock().await.unwrap();
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

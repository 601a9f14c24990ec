//! Holds whose guards were given up, and releases by owner.

use distlock::{Acquire, Client, Error, Flavour, Owner, Released};
use distlock_support::{Action, Matcher, Proxy};

use super::each;
use bed::{enter, eventually, idle, ms, secs};

/// This owner, as another process would know it.
fn elsewhere(owner: &Owner) -> Owner {
    owner.as_str().parse().unwrap()
}

/// A hold is given up and given back at once, beside a guard with a longer lease: found by the simulator.
#[tokio::test]
async fn a_hold_that_was_just_given_up_takes_no_lease_with_it() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let long = Acquire::new().owner(&me).lease(secs(90));
        let long = lock.acquire(long).await.unwrap().unwrap();
        let given_up = enter(&*lock, &me).await.into_owner();
        assert_eq!(lock.release(&given_up).await.unwrap(), Released::StillHeld(1), "{flavour}");
        let left = ms(bed.admin.pttl("x").await.try_into().unwrap());
        assert!(long.remaining() <= left, "{flavour}: {:?}, and the server {left:?}", long.remaining());
        assert_eq!(long.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// Two guards of an owner are over, and a new one is taken between their releases: found by the simulator.
#[tokio::test]
async fn a_release_of_one_that_is_over_counts_nothing_that_came_since() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let leased = || Acquire::new().owner(&me).lease(ms(300));
        let first = lock.acquire(leased()).await.unwrap().unwrap();
        let second = lock.acquire(leased()).await.unwrap().unwrap();
        eventually("over", async || !lock.is_locked().await.unwrap()).await;
        let (released, held, ()) = tokio::join!(biased; first.unlock(), enter(&*lock, &me), async { drop(second) });
        assert!(matches!(released, Err(Error::NotHeld { .. } | Error::Lost { .. })), "{flavour}: {released:?}");
        eventually("nothing under way", async || client.stats().under_way == 0).await;
        assert!(held.is_held(), "{flavour}");
        assert_eq!(client.renew_now().await.lost, 0, "{flavour}");
        assert_eq!(held.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// Another client gives a hold back by its owner in the instant in which its guard was given up, beside another guard:
/// found by an adversary.
#[tokio::test]
async fn a_release_by_owner_waits_for_the_mark_of_one_that_was_just_given_up() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let (client, other) = (bed.connect(Client::builder(&proxy.url())).await, bed.client().await);
        let (lock, theirs) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
        let me = client.owner();
        let (goes, stays) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        // The older one: whoever names none would be given the newest.
        let late = proxy.on_request(Matcher::command("EVALSHA"), Action::Delay(ms(30)));
        let handed = elsewhere(&goes.into_owner());
        assert_eq!(theirs.release(&handed).await.unwrap(), Released::StillHeld(1), "{flavour}");
        drop(late);
        assert_eq!(client.renew_now().await.lost, 0, "{flavour}");
        assert!(stays.is_held(), "{flavour}");
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
        client.shutdown(secs(5)).await.unwrap();
    })
    .await;
}

/// A release by owner does not keep this client from giving one of the owner's holds up meanwhile: found by a cold reading.
#[tokio::test]
async fn a_release_by_owner_takes_one_that_is_given_up_meanwhile() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let (goes, stays) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        let asks = bed.admin.calls("evalsha").await;
        let (released, _) = tokio::join!(lock.release(&me), async {
            eventually("asked", async || bed.admin.calls("evalsha").await > asks).await;
            goes.into_owner()
        });
        assert_eq!(released.unwrap(), Released::StillHeld(1), "{flavour}");
        assert_eq!(client.renew_now().await.lost, 0, "{flavour}");
        assert!(stays.is_held(), "{flavour}");
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// A guard that is lost already is given up, beside another one of its owner: found by a cold reading.
#[tokio::test]
async fn a_lost_guard_that_is_given_up_takes_no_other_with_it() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let (lost, stays) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        let ids = bed.admin.cmd::<String>(&["HGET", "x", &holds_of(flavour, &me)]).await;
        let first = ids.trim_start_matches(',').split(',').next().unwrap().to_owned();
        // As another client may give it back.
        let rest = ids.replacen(&format!(",{first}"), "", 1);
        let field = holds_of(flavour, &me);
        let count = field.trim_end_matches(":holds").to_owned();
        bed.admin.cmd::<i64>(&["HSET", "x", &field, &rest, &count, "1"]).await;
        assert_eq!(client.renew_now().await.lost, 1, "{flavour}");
        assert!(!lost.is_held() && stays.is_held(), "{flavour}");
        drop(lost.into_owner());
        eventually("nothing under way", async || client.stats().under_way == 0).await;
        assert!(stays.is_held(), "{flavour}");
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
        assert!(!other.lock(flavour, "x").is_locked().await.unwrap(), "{flavour}");
        for cover in bed.admin.keys().await.iter().filter(|key| key.contains("rwlock_timeout")) {
            bed.admin.cmd::<()>(&["DEL", cover]).await;
        }
    })
    .await;
}

/// The field of an owner's list of holds.
fn holds_of(flavour: Flavour, owner: &Owner) -> String {
    let half = if flavour == Flavour::Write { ":write" } else { "" };
    format!("{owner}{half}:holds")
}

/// A fresh owner's guard is given up; its hold is given back by its owner while that comes in again: found by a cold reading.
#[tokio::test]
async fn an_owner_comes_in_while_the_hold_that_was_given_up_is_given_back() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        for _ in 0..5 {
            let me = lock.lock().await.unwrap().into_owner();
            let both = async { tokio::join!(lock.release(&me), lock.acquire(Acquire::new().owner(&me))) };
            let (released, again) = tokio::time::timeout(secs(20), both).await.expect("goes round and round");
            let again = again.unwrap().unwrap();
            released.unwrap();
            assert_eq!(again.unlock().await.unwrap(), Released::Free, "{flavour}");
        }
        idle(&client).await;
    })
    .await;
}

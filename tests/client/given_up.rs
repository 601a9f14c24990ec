//! Holds whose guards were turned into their owners, and releases by owner.

use distlock::{Acquire, Flavour, Owner, Released};
use distlock_support::{Action, Matcher, Proxy};

use super::shared_owners::{each, elsewhere};
use bed::{becomes, builder, end, ends, enter, eventually, idle, ms, secs};

/// The other hold has a longer lease. Given back at once, and when the mark has reached the server.
#[tokio::test]
async fn a_release_by_owner_cuts_no_lease_of_another_hold() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        for at_once in [true, false] {
            let me = client.owner();
            let how = Acquire::new().owner(&me).lease(secs(900));
            let (long, given_up) = if at_once {
                let long = lock.acquire(how).await.unwrap().unwrap();
                (long, enter(&*lock, &me).await.into_owner())
            } else {
                let given_up = enter(&*lock, &me).await.into_owner();
                (lock.acquire(how).await.unwrap().unwrap(), given_up)
            };
            assert_eq!(lock.release(&given_up).await.unwrap(), Released::StillHeld(1), "{flavour}");
            let (promised, left) = (long.remaining(), bed.admin.pttl("x").await);
            assert!(long.is_held() && left > 450_000, "{flavour}: {left} ms left, {promised:?} promised");
            assert_eq!(long.unlock().await.unwrap(), Released::Free, "{flavour}");
        }
    })
    .await;
}

/// The mark is on its way when another client releases by owner: it must take the hold that was given up, not the newest.
#[tokio::test]
async fn a_release_by_owner_waits_for_the_mark_of_a_hold_that_was_just_given_up() {
    each(async |bed, flavour| {
        let proxy = Proxy::start(bed.server.addr());
        let (client, other) = (bed.connect(builder(&proxy.url())).await, bed.client().await);
        let (lock, theirs) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
        // The release waits for half a second for the mark. A stall may use that up; then the newest hold is taken.
        let mut marked = false;
        for _ in 0..20 {
            let me = client.owner();
            let (goes, stays) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
            let late = proxy.on_request(Matcher::command("EVALSHA"), Action::Delay(ms(30)));
            let handed = elsewhere(&goes.into_owner());
            assert_eq!(theirs.release(&handed).await.unwrap(), Released::StillHeld(1), "{flavour}");
            drop(late);
            marked = client.renew_now().await.lost == 0;
            assert_eq!(stays.is_held(), marked, "{flavour}");
            if marked {
                assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
                break;
            }
            drop(stays);
            theirs.force_unlock().await.unwrap();
            idle(&client).await;
        }
        assert!(marked, "{flavour}: the release took the hold that has a guard, 20 times in a row");
        end(client).await;
    })
    .await;
}

/// The release by owner is on its way.
#[tokio::test]
async fn a_release_by_owner_takes_a_hold_that_is_given_up_meanwhile() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let (goes, stays) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        let asks = bed.admin.calls("evalsha").await;
        let (released, _) = tokio::join!(lock.release(&me), async {
            eventually("the release is asked for", async || bed.admin.calls("evalsha").await > asks).await;
            goes.into_owner()
        });
        assert_eq!(released.unwrap(), Released::StillHeld(1), "{flavour}");
        assert_eq!(client.renew_now().await.lost, 0, "{flavour}");
        assert!(stays.is_held(), "{flavour}");
        assert_eq!(stays.unlock().await.unwrap(), Released::Free, "{flavour}");
    })
    .await;
}

/// Another client has given back one of two holds; its guard is then given up.
#[tokio::test]
async fn a_lost_guard_that_is_given_up_takes_no_other_hold() {
    each(async |bed, flavour| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let (lost, stays) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        let field = holds_of(flavour, &me);
        let ids: String = bed.admin.cmd(&["HGET", "x", &field]).await;
        let first = ids.trim_start_matches(',').split(',').next().unwrap().to_owned();
        // As a release by another client leaves it.
        let rest = ids.replacen(&format!(",{first}"), "", 1);
        let count = field.trim_end_matches(":holds").to_owned();
        bed.admin.cmd::<i64>(&["HSET", "x", &field, &rest, &count, "1"]).await;
        assert_eq!(client.renew_now().await.lost, 1, "{flavour}");
        assert!(!lost.is_held() && stays.is_held(), "{flavour}");
        drop(lost.into_owner());
        becomes("commands under way", 0, async || client.stats().under_way).await;
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

/// The owner was made by a lock's first guard.
#[tokio::test]
async fn an_owner_comes_in_while_its_given_up_hold_is_released() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        for _ in 0..5 {
            let me = lock.lock().await.unwrap().into_owner();
            let both = async { tokio::join!(lock.release(&me), enter(&*lock, &me)) };
            let (released, again) = ends("a release and an acquire by one owner", both).await;
            released.unwrap();
            assert_eq!(again.unlock().await.unwrap(), Released::Free, "{flavour}");
        }
        idle(&client).await;
    })
    .await;
}

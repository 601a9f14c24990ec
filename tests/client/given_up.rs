//! Holds whose guards were turned into their owners (given up), and releases by owner. `sim/given_away.rs` checks which
//! hold such a release ends.

use distlock::{Acquire, Flavour, Guard, Owner, Released};
use distlock_support::{Action, Matcher};

use super::rig::{each, elsewhere, nothing_under_way};
use bed::{builder, end, ends, enter, eventually, idle, ms, secs};

async fn stays(guard: Guard, what: &str) {
    assert!(guard.is_held(), "{what}");
    assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{what}");
}

/// The other hold has a longer lease. The release by owner is sent before or after the mark of the given-up hold (which
/// says that no guard has it) has reached the server.
#[tokio::test]
async fn release_by_owner_shortens_no_lease_of_other_hold() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        for at_once in [true, false] {
            let me = client.owner();
            let enter_for_long = async || {
                let how = Acquire::new().owner(&me).lease(secs(900));
                lock.acquire(how).await.unwrap().unwrap()
            };
            let early = if at_once { Some(enter_for_long().await) } else { None };
            let given_up = enter(&*lock, &me).await.into_owner();
            let long = match early {
                Some(early) => early,
                None => enter_for_long().await,
            };
            assert_eq!(lock.release(&given_up).await.unwrap(), Released::StillHeld(1), "{flavour}");
            let (promised, left) = (long.remaining(), bed.admin.pttl("x").await);
            assert!(left > 450_000, "{flavour}: {left} ms left, {promised:?} promised");
            stays(long, &flavour.to_string()).await;
        }
    })
    .await;
}

/// The mark of the given-up hold is in flight when another client releases by owner. The release must end the given-up
/// hold, not the newest hold.
#[tokio::test]
async fn release_by_owner_ends_hold_that_was_just_given_up() {
    each(async |bed, flavour| {
        let proxy = bed.proxy();
        let (client, other) = (bed.connect(builder(&proxy.url())).await, bed.client().await);
        let (lock, theirs) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
        // The release waits up to half a second for the mark. If the machine is suspended for longer, the release ends
        // the newest hold, and the test tries again.
        let mut tries = 0..20;
        loop {
            assert!(tries.next().is_some(), "{flavour}: the release took the hold that has a guard, 20 times in a row");
            let me = client.owner();
            let (goes, guard) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
            let late = proxy.on_request(Matcher::command("EVALSHA"), Action::Delay(ms(30)));
            let handed = elsewhere(&goes.into_owner());
            assert_eq!(theirs.release(&handed).await.unwrap(), Released::StillHeld(1), "{flavour}");
            drop(late);
            let marked = client.renew_now().await.lost == 0;
            assert_eq!(guard.is_held(), marked, "{flavour}");
            if marked {
                break stays(guard, &flavour.to_string()).await;
            }
            drop(guard);
            theirs.force_unlock().await.unwrap();
            idle(&client).await;
        }
        end(client).await;
    })
    .await;
}

#[tokio::test]
async fn release_by_owner_ends_hold_given_up_meanwhile() {
    each(async |bed, flavour| {
        let client = bed.still_client().await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let (goes, guard) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        let asks = bed.admin.calls("evalsha").await;
        let (released, _) = tokio::join!(lock.release(&me), async {
            eventually("the release is asked for", async || bed.admin.calls("evalsha").await > asks).await;
            goes.into_owner()
        });
        assert_eq!(released.unwrap(), Released::StillHeld(1), "{flavour}");
        assert_eq!(client.renew_now().await.lost, 0, "{flavour}");
        stays(guard, &flavour.to_string()).await;
    })
    .await;
}

/// Another client released one of the owner's two holds. Then the guard of this hold is given up.
#[tokio::test]
async fn giving_up_lost_guard_ends_no_other_hold() {
    each(async |bed, flavour| {
        let client = bed.still_client().await;
        let lock = client.lock(flavour, "x");
        let me = client.owner();
        let (lost, guard) = (enter(&*lock, &me).await, enter(&*lock, &me).await);
        // Creates the state that a release by another client leaves.
        let (count, list) = fields_of(flavour, &me);
        let ids: String = bed.admin.cmd(&["HGET", "x", &list]).await;
        let first = ids.trim_start_matches(',').split(',').next().unwrap();
        let rest = ids.replacen(&format!(",{first}"), "", 1);
        bed.admin.cmd::<i64>(&["HSET", "x", &list, &rest, &count, "1"]).await;
        assert_eq!(client.renew_now().await.lost, 1, "{flavour}");
        assert!(!lost.is_held(), "{flavour}");
        drop(lost.into_owner());
        nothing_under_way(&client).await;
        stays(guard, &flavour.to_string()).await;
        assert!(!bed.admin.exists("x").await, "{flavour}");
        // Deletes a reader's cover, if one is left.
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
    })
    .await;
}

fn fields_of(flavour: Flavour, owner: &Owner) -> (String, String) {
    let half = if flavour == Flavour::Write { ":write" } else { "" };
    (format!("{owner}{half}"), format!("{owner}{half}:holds"))
}

/// The acquire named no owner, so the client made one.
#[tokio::test]
async fn owner_acquires_while_its_given_up_hold_is_released() {
    each(async |bed, flavour| {
        let client = bed.client().await;
        let lock = client.lock(flavour, "x");
        for _ in 0..5 {
            let me = lock.lock().await.unwrap().into_owner();
            let both = async { tokio::join!(lock.release(&me), enter(&*lock, &me)) };
            let (released, again) = ends("a release and an acquire by one owner", both).await;
            released.unwrap();
            stays(again, &flavour.to_string()).await;
        }
        idle(&client).await;
    })
    .await;
}

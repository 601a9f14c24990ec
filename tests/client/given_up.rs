//! Holds whose guards were turned into their owners (given up), and releases by owner. `sim/given_away.rs` checks which
//! hold such a release ends.

use distlock::{Guard, Released};
use distlock_support::{Action, Matcher};

use super::rig::{each, elsewhere};
use bed::{builder, end, ends, enter, eventually, idle, ms};

async fn stays(guard: Guard, what: &str) {
    assert!(guard.is_held(), "{what}");
    assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{what}");
}

/// The mark of the given-up hold (which says that no guard has it) is in flight when another client releases by owner.
/// The release must end the given-up hold, not the newest hold.
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

/// The guard is given up while its own client already looks for a hold without a guard.
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

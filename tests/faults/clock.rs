//! A server whose time of day is changed. Redis measures leases by this clock (P2 in `tests/README.md`).

use distlock::{Error, Flavour, Lost, NotHeld, Released};
use distlock_support::{Clock, RedisServer};

use bed::{Bed, ends, run_on, secs};

async fn shifted(body: impl AsyncFnOnce(&Bed, &Clock)) {
    let Some(clock) = Clock::new() else { return };
    let make = |client: &distlock::Client, name: &str| client.lock(Flavour::Reentrant, name);
    run_on(clock.of(RedisServer::builder()).start(), make, async |bed| body(bed, &clock).await).await;
}

/// A step forward ends leases early. The guard of a watched hold learns of the loss at its next renewal, and the guard
/// of an explicit lease at its release.
#[tokio::test]
async fn forward_clock_step_ends_leases_and_next_renewal_reports_loss() {
    shifted(async |bed, clock| {
        let client = bed.client().await;
        let guard = client.reentrant("x").lock().await.unwrap();
        let leased = client.reentrant("y").lock_leased(secs(3600)).await.unwrap();
        clock.shift(1_800_000);
        let left = bed.admin.pttl("y").await;
        assert!((1..=1_800_000).contains(&left), "a lease of an hour has {left} ms left after half an hour");
        let lost = tokio::spawn(guard.lost());
        client.renew_now().await;
        let lost = ends("the loss is signalled", lost).await.unwrap();
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(!guard.is_held());
        clock.shift(3_700_000);
        let other = bed.client().await.reentrant("y").try_lock().await.unwrap().expect("free for the server");
        let refused = leased.unlock().await.unwrap_err();
        let Error::NotHeld { why: NotHeld::HeldBy { owner }, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(owner, other.owner().as_str());
        other.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn backward_clock_step_prolongs_the_lock_of_a_dead_holder() {
    shifted(async |bed, clock| {
        let client = bed.client().await;
        let (alive, dead) = (client.reentrant("alive"), client.reentrant("dead"));
        let guard = alive.lock().await.unwrap();
        let owner = dead.lock_leased(secs(200)).await.unwrap().into_owner();
        clock.shift(-3_600_000);
        let left = bed.admin.pttl("dead").await;
        assert!((3_600_000..=3_800_000).contains(&left), "{left} ms");
        // A live holder renews and releases as usual.
        let renewed = client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.lost), (1, 0));
        assert!(guard.is_held());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        alive.lock().await.unwrap().unlock().await.unwrap();
        assert!(dead.try_lock().await.unwrap().is_none());
        assert_eq!(dead.release(&owner).await.unwrap(), Released::Free);
    })
    .await;
}

//! Servers whose time of day is changed.

use distlock::{Acquire, DistLock as _, Error, Lost, Released};
use distlock_support::{Clock, RedisServer};

use crate::rig::{Five, Path, by_all, long, patient, run};
use bed::ends;

fn shifted() -> Option<(Five, Vec<Clock>)> {
    let clocks = (0..5).map(|_| Clock::new()).collect::<Option<Vec<_>>>()?;
    let servers = clocks.iter().map(|clock| clock.of(RedisServer::builder()).start()).collect();
    Some((Five::of(servers), clocks))
}

/// A step forward ends leases early. On two of five servers it does no harm. On three servers, another user can
/// acquire, and the first holder learns of the loss at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_clock_step_loses_the_lock_only_on_a_majority() {
    let Some((five, clocks)) = shifted() else { return };
    run(five, async |five| {
        let (user, other) = (five.warm(Path::Direct, patient).await, five.warm(Path::Direct, patient).await);
        let guard = by_all(&user.red("x"), Acquire::new()).await;
        clocks[0].shift(3_600_000);
        clocks[3].shift(3_600_000);
        user.renew().await;
        assert!(guard.is_held(), "{guard:?}");
        let second = other.red("x").try_lock().await;
        assert!(!matches!(second, Ok(Some(_))), "two holders: {second:?}");
        other.idle().await;
        // With the third server, another user gets a majority. The first holder has not noticed yet.
        clocks[1].shift(3_600_000);
        let second = ends("three of five have forgotten it", other.red("x").lock()).await.unwrap();
        assert!(second.is_held());
        user.renew().await;
        let lost = ends("the loss is signalled", guard.lost()).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
        assert!(!guard.is_held());
        second.unlock().await.unwrap();
    })
    .await;
}

/// A step back prolongs leases. A live holder renews and releases as usual. A dead holder excludes other users for
/// longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backward_clock_step_keeps_lock_of_dead_holder_longer() {
    let Some((five, clocks)) = shifted() else { return };
    run(five, async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let (alive, dead) = (user.red("alive"), user.red("dead"));
        let guard = by_all(&alive, Acquire::new()).await;
        let owner = by_all(&dead, long()).await.into_owner();
        for at in [0, 2, 4] {
            clocks[at].shift(-3_600_000);
        }
        // On the other servers the lease has ended.
        for at in [1, 3] {
            assert_eq!(five.admin(at).await.cmd::<u64>(&["DEL", "dead"]).await, 1);
        }
        for at in [0, 2, 4] {
            let left = five.admin(at).await.pttl("dead").await;
            assert!(left > 3_600_000, "server {at} has it for {left} ms");
        }
        assert!(dead.try_lock().await.unwrap().is_none(), "three of five have it still");
        user.renew().await;
        assert!(guard.is_held());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        user.idle().await;
        assert_eq!(dead.release(&owner).await.unwrap(), Released::Free);
        ends("the dead holder's lock is free", dead.lock()).await.unwrap().unlock().await.unwrap();
    })
    .await;
}

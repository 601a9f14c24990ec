//! Servers whose time of day is changed. `tests/faults/clock.rs` has a step back, at one server.

use distlock::{Acquire, Error, Lost};
use distlock_support::{Clock, RedisServer};

use crate::rig::{Five, Path, by_all, patient, run};
use bed::ends;

/// A step forward ends leases early. On two of five servers it does no harm. On three servers, another user can
/// acquire, and the first holder learns of the loss at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_clock_step_loses_the_lock_only_on_a_majority() {
    let Some(clocks) = (0..5).map(|_| Clock::new()).collect::<Option<Vec<_>>>() else { return };
    let servers = clocks.iter().map(|clock| clock.of(RedisServer::builder()).start()).collect();
    run(Five::of(servers), async |five| {
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

//! Signals of a held guard: its loss and its current lease. `tests/sim/timing` asserts when they arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock::{Error, Lost, Result};
use futures::FutureExt as _;

use crate::mutex::Held;
use crate::subject::{Subject, freed};
use bed::{ends, ms, secs};

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns true if this is the loss `how`, under the guard's own name.
fn is_lost<T>(outcome: &Result<T>, guard: &Held, how: Lost) -> bool {
    matches!(outcome, Err(Error::Lost { name, why }) if **name == *guard.name() && *why == how)
}

pub async fn run_stops_its_work_when_the_lock_is_lost(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (bed.mutex(&ours, "job"), bed.mutex(&theirs, "job"));
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    assert!(guard.is_held());

    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&stopped));
    let work = async move {
        let _flag = flag;
        std::future::pending::<()>().await;
    };
    let (lost, ()) = ends("work under a lock that is lost", async {
        tokio::join!(guard.run(work), async {
            assert!(other.take_away().await.unwrap());
            assert_eq!(ours.renew_now().await.renewed, 0);
        })
    })
    .await;
    assert!(stopped.load(Ordering::SeqCst), "the work goes on");
    assert!(is_lost(&lost, &guard, Lost::Gone), "{lost:?}");
    assert!(!guard.is_held() && guard.remaining().is_zero());
    // `run` does not start work on a lost lock.
    assert!(guard.run(async { panic!("must not run") }).await.is_err());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { why: Lost::Gone, .. })));
    bed.sweep_covers().await;
}

pub async fn release_is_never_reported_as_a_loss(bed: &Subject<'_>) {
    let (ours, theirs) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (bed.mutex(&ours, "job"), bed.mutex(&theirs, "job"));
    let guard = lock.lock_leased(secs(60)).await.unwrap();
    let (lost, expiring) = (guard.lost(), guard.expiring());
    guard.unlock().await.unwrap();
    // The futures may outlive the guard.
    other.lock().await.unwrap().unlock().await.unwrap();
    assert!(lost.now_or_never().is_none() && expiring.now_or_never().is_none(), "an unlock was taken for a loss");

    let guard = lock.lock().await.unwrap();
    let dropped = guard.lost();
    drop(guard);
    let guard = lock.lock().await.unwrap();
    let released = guard.lost();
    match guard {
        Held::Lock(guard) => {
            let owner = guard.into_owner();
            bed.lock(&ours, "job").release(&owner).await.unwrap();
        }
        Held::Permit(guard) => guard.release().await.unwrap(),
    }
    other.lock().await.unwrap().unlock().await.unwrap();
    assert!(dropped.now_or_never().is_none(), "a drop was taken for a loss");
    assert!(released.now_or_never().is_none(), "a release, of a lock by its owner, was taken for a loss");
}

pub async fn extend_replaces_the_lease(bed: &Subject<'_>) {
    let client = bed.still_client().await;
    let lock = bed.mutex(&client, "job");
    let guard = lock.lock_leased(secs(60)).await.unwrap();
    guard.extend(secs(600)).await.unwrap();
    let ttl = lock.remaining_ttl().await.unwrap().unwrap();
    assert!(ttl > secs(60) && ttl <= secs(600), "extended to 600 s: {ttl:?}");
    assert!(guard.remaining() > secs(60) && guard.remaining() < secs(600), "{:?}", guard.remaining());
    // A shorter lease may have expired when its reply arrives.
    let _ = guard.extend(ms(100)).await;
    let lost = ends("lost() of a lease that was made short", guard.lost()).await;
    assert!(is_lost(&Err::<(), _>(lost.clone()), &guard, Lost::Expired), "{lost:?}");
    let refused = guard.extend(secs(60)).await;
    assert!(is_lost(&refused, &guard, Lost::Expired), "{refused:?}");
    drop(guard);
    freed(&lock).await;

    // `extend` does not recreate a hold that the server has lost.
    let guard = lock.lock_leased(secs(60)).await.unwrap();
    bed.admin.cmd::<()>(&["FLUSHALL"]).await;
    let refused = guard.extend(secs(600)).await;
    assert!(is_lost(&refused, &guard, Lost::Gone), "{refused:?}");
    assert!(!guard.is_held() && !lock.is_locked().await.unwrap());
}

//! Two holders (findings 1 to 7, 16): shared owners, late copies, forged and misread grants.

mod extends;
mod given_up;
mod grants;
mod late;
mod shared;
mod spent;

use distlock::{Acquire, DistLock as _, FairLock, Flavour, Guard};

use bed::{Bed, eventually, reentrant, secs};

/// Flavours whose holds an owner may have several of.
const REENTRANT: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Fair, Flavour::Read, Flavour::Write, Flavour::Fenced, Flavour::Spin];

/// Runs a test body for each of them, on a server of its own.
async fn each(body: impl AsyncFn(&Bed, Flavour)) {
    for flavour in REENTRANT {
        reentrant(async |bed| body(bed, flavour).await).await;
    }
}

/// The first in the queue of the fair lock `x` hears messages.
async fn waiter_listens(bed: &Bed) {
    eventually("in the queue, and listening", async || {
        let head: Option<String> = bed.admin.cmd(&["LINDEX", "redisson_lock_queue:{x}", "0"]).await;
        let channels = bed.admin.channels().await;
        head.is_some_and(|head| channels.contains(&format!("redisson_lock__channel:{{x}}:{head}")))
    })
    .await;
}

/// Theirs is held, we wait in the queue, and theirs passes the lock on to us.
async fn passed_on(bed: &Bed, theirs: &FairLock, mine: &FairLock, how: Acquire) -> Guard {
    let held = theirs.lock().await.unwrap();
    let (guard, ()) = tokio::join!(mine.acquire(how), async {
        waiter_listens(bed).await;
        held.unlock().await.unwrap();
    });
    guard.unwrap().unwrap()
}

/// The owner that holds a lock.
async fn holder(lock: &FairLock) -> String {
    lock.state().await.unwrap().holders[0].0.clone()
}

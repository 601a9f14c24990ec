//! The operations of each flavour, as two clients with the same login carry them out.

use std::time::Duration;

use bed::{Bed, PATIENCE, becomes, ends, eventually, in_vain, ms, secs, waits_in_vain};
use distlock::{Acquire, Client, DistLock, Flavour, Prefer, Released};

/// Runs every operation of both halves of a read-write lock. Returns true if a waiting writer held back a reader.
pub(super) async fn read_and_write(bed: &Bed, one: &Client, two: &Client) -> distlock::Result<bool> {
    let (mine, theirs) = (one.rw("rw").prefer(Prefer::Writers), two.rw("rw"));
    let first = mine.read().lock().await?;
    let me = first.owner().clone();
    let again = mine.read().acquire(Acquire::new().owner(&me)).await?;
    let beside = theirs.read().lock().await?;
    // There are more readers than the scripts check one by one.
    let crowd = theirs.read();
    let mut crowd = futures::future::try_join_all((0..20).map(|_| crowd.lock())).await?;
    if let Some(guard) = crowd.pop() {
        guard.unlock().await?;
    }
    drop(crowd);
    eventually("they left", async || two.stats().under_way == 0).await;
    one.renew_now().await;
    first.extend(secs(60)).await?;
    theirs.read().state().await?;
    let writing = mine.write();
    let writer = tokio::spawn(async move { writing.lock().await });
    let listens = async || bed.admin.numsub("redisson_rwlock:{app:rw}").await == 1;
    eventually("it has asked once", async || listens().await || writer.is_finished()).await;
    let held_back = match theirs.read().lock_for(ms(300)).await {
        outcome if in_vain(&outcome) => true,
        outcome => outcome?.is_none(),
    };
    writer.abort();
    eventually("it gave up", async || one.stats().waiting + one.stats().under_way == 0).await;
    beside.unlock().await?;
    if let Some(again) = again {
        again.unlock().await?;
    }
    // The last reader's release wakes the writer, and the writer's downgrade wakes all readers.
    let writing = mine.write();
    let writer = tokio::spawn(async move { writing.lock_for(PATIENCE).await });
    eventually("it waits", async || one.stats().waiting == 1 || writer.is_finished()).await;
    first.unlock().await?;
    let Some(guard) = bed::ends("the waiting writer", writer).await.expect("no panic")? else { return Ok(held_back) };
    let reading = theirs.read();
    let reader = tokio::spawn(async move { reading.lock_for(PATIENCE).await });
    eventually("it waits", async || two.stats().waiting == 1 || reader.is_finished()).await;
    guard.extend(secs(60)).await?;
    let guard = guard.downgrade().await?;
    drop(bed::ends("the waiting reader", reader).await.expect("no panic")?);
    guard.unlock().await?;
    for half in [&mine.read() as &dyn DistLock, &mine.write()] {
        let guard = half.lock().await?;
        half.force_unlock().await?;
        drop(guard);
    }
    Ok(held_back)
}

pub(super) async fn take_turns(flavour: Flavour, one: &Client, two: &Client) -> distlock::Result<()> {
    let (mine, theirs) = (one.lock(flavour, "x"), two.lock(flavour, "x"));
    if let Some(outer) = mine.acquire(Acquire::new().wait(ms(0))).await? {
        let me = outer.owner().clone();
        let inner = mine.acquire(Acquire::new().owner(&me)).await?;
        one.renew_now().await;
        outer.extend(secs(60)).await?;
        theirs.state().await?;
        let stranger = theirs.release(&two.owner()).await;
        assert!(stranger.is_err(), "a stranger released it");
        let waiter = tokio::spawn(async move { theirs.lock_for(PATIENCE).await });
        eventually("it waits", async || two.stats().waiting == 1 || waiter.is_finished()).await;
        if let Some(inner) = inner {
            inner.unlock().await?;
        }
        outer.unlock().await?;
        drop(bed::ends("the waiter", waiter).await.expect("no panic")?);
    }
    eventually("it is given back", async || two.stats().under_way + two.stats().holds == 0).await;
    let guard = mine.lock().await?;
    // The owner's text is read here, so another process may know the owner.
    let again = mine.acquire(Acquire::new().owner(&guard.owner().to_string().parse()?)).await?;
    drop(again);
    mine.force_unlock().await?;
    drop(guard);
    Ok(())
}

/// Runs every operation of a plain lock. `lease` limits the wait if no release message arrives.
pub(super) async fn plain_turns(one: &Client, two: &Client, lease: Duration) -> distlock::Result<()> {
    let (mine, theirs) = (one.plain("x"), two.plain("x"));
    let me = one.owner();
    let guard = mine.lock().await?;
    one.renew_now().await;
    guard.extend(lease).await?;
    theirs.state().await?;
    let waiter = tokio::spawn(async move { theirs.lock_for(PATIENCE).await });
    eventually("it waits", async || two.stats().waiting == 1 || waiter.is_finished()).await;
    tokio::time::sleep(ms(50)).await;
    guard.unlock().await?;
    drop(bed::ends("the waiter", waiter).await.expect("no panic")?);
    eventually("it is given back", async || two.stats().under_way + two.stats().holds == 0).await;
    let guard = mine.acquire(Acquire::new().owner(&me)).await?;
    mine.force_unlock().await?;
    drop(guard);
    Ok(())
}

pub(super) async fn wakes(bed: &Bed, one: &Client, two: &Client) {
    let guard = one.reentrant("y").lock().await.unwrap();
    let lock = two.reentrant("y");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    let channel = "redisson_lock__channel:{app:y}";
    becomes("subscribers", 1, async || bed.admin.numsub(channel).await).await;
    guard.unlock().await.unwrap();
    drop(ends("the waiter", waiter).await.unwrap());
}

/// Runs every operation of a fair lock: queueing, a grant to the head of the queue, giving up, queries, force.
pub(super) async fn queue(one: &Client, two: &Client) {
    let fair = one.fair("fair");
    let guard = fair.lock().await.unwrap();
    let lock = two.fair("fair");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    let queued = async || fair.queue_len().await.unwrap();
    becomes("places in the queue", 1, queued).await;
    waits_in_vain(ms(50), async |wait| one.fair("fair").lock_for(wait).await).await;
    becomes("places in the queue", 1, queued).await;
    let left = async || fair.queue().await.unwrap().waiters[0].remaining;
    let mut last = left().await;
    eventually("its place is refreshed", async || std::mem::replace(&mut last, left().await) < last).await;
    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    let guard = ends("the waiter of the fair lock", waiter).await.unwrap();
    assert!(fair.force_unlock().await.unwrap());
    drop(guard);
}

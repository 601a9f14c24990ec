//! `with`: acquire, work, release, for every kind of lock.

use std::cell::Cell;
use std::future::pending;
use std::sync::Arc;

use bed::{Bed, FLAVOURS, PATIENCE, ends, idle, ms};
use distlock::{Client, DistLock, Error, Flavour, Guard, RedLock};

use crate::jobs;

/// A flavour that excludes this one.
fn rival(flavour: Flavour) -> Flavour {
    if flavour == Flavour::Read { Flavour::Write } else { flavour }
}

/// Holds the lock for another client until the result is dropped.
async fn held(bed: &Bed, flavour: Flavour, name: &str) -> Guard {
    bed.client().await.lock(rival(flavour), name).lock().await.unwrap()
}

#[tokio::test]
async fn work_runs_under_the_lock_and_the_lock_is_free_afterwards() {
    jobs(async |bed| {
        let client = bed.client().await;
        for flavour in FLAVOURS {
            let lock = client.lock(flavour, "x");
            let work = async |guard: &Guard| (guard.fencing_token().is_ok(), lock.is_locked().await.unwrap());
            let output = lock.with(PATIENCE, work).await.unwrap();
            assert_eq!(output, Some((flavour == Flavour::Fenced, true)), "{flavour}");
            assert!(!lock.is_locked().await.unwrap(), "{flavour}");
        }
    })
    .await;
}

#[tokio::test]
async fn busy_lock_returns_none_and_the_work_is_not_called() {
    jobs(async |bed| {
        let client = bed.client().await;
        for flavour in FLAVOURS {
            let guard = held(bed, flavour, "x").await;
            let lock = client.lock(flavour, "x");
            let called = Cell::new(false);
            let busy = lock.with(ms(0), async |_: &Guard| called.set(true)).await;
            assert!(matches!(busy, Ok(None)), "{flavour}: {busy:?}");
            assert!(!called.get(), "{flavour}: the work was called");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// Readers are left out: after a forced release, their covers stay until the lease ends.
#[tokio::test]
async fn work_is_stopped_when_the_lock_is_lost() {
    jobs(async |bed| {
        let client = bed.client().await;
        for flavour in FLAVOURS.into_iter().filter(|flavour| *flavour != Flavour::Read) {
            let lock = client.lock(flavour, "x");
            let work = async |_: &Guard| {
                assert!(lock.force_unlock().await.unwrap());
                pending::<()>().await;
            };
            let lost = ends("the work", lock.with(PATIENCE, work)).await;
            assert!(matches!(lost, Err(Error::Lost { .. })), "{flavour}: {lost:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn failed_release_is_an_error() {
    jobs(async |bed| {
        let lock = bed.client().await.reentrant("x");
        let work = async |_: &Guard| bed.admin.cmd::<()>(&["DEL", "x"]).await;
        let failed = lock.with(PATIENCE, work).await;
        assert!(matches!(failed, Err(Error::NotHeld { .. })), "{failed:?}");
    })
    .await;
}

async fn frees_all_when_dropped(client: &Client, lock: Arc<dyn DistLock>) {
    let (begins, begun) = tokio::sync::oneshot::channel();
    let there = Arc::clone(&lock);
    let job = tokio::spawn(async move {
        let work = async move |_: &Guard| {
            begins.send(()).unwrap();
            pending::<()>().await;
        };
        there.with(PATIENCE, work).await
    });
    ends("the begin of the work", begun).await.unwrap();
    assert!(lock.is_locked().await.unwrap());
    job.abort();
    assert!(job.await.is_err());
    idle(client).await;
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test]
async fn dropped_work_releases_single_locks_and_groups() {
    jobs(async |bed| {
        let client = bed.client().await;
        let red = RedLock::new([client.clone()], "red");
        let (multi, striped) = (client.multi(["a", "b"]), client.striped("parts", 2));
        assert_eq!(red.with(PATIENCE, async |guard| guard.is_held()).await.unwrap(), Some(true));
        assert_eq!(multi.with(PATIENCE, async |guard| guard.members().len()).await.unwrap(), Some(2));
        assert_eq!(striped.with(PATIENCE, async |guard| guard.is_held()).await.unwrap(), Some(true));
        assert_eq!(
            client.fenced("x").with(PATIENCE, async |guard| guard.fencing_token().ok()).await.unwrap(),
            Some(Some(1))
        );
        frees_all_when_dropped(&client, client.lock(Flavour::Fair, "fair")).await;
        frees_all_when_dropped(&client, Arc::new(multi)).await;
    })
    .await;
}

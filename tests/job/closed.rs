//! The time for which a job's name stays closed, and work that is stopped.

use std::future::pending;
use std::sync::Arc;

use bed::{ends, eventually, idle, ms, secs, with_longer_waits};
use distlock::{Error, Lost};
use tokio::sync::Notify;

use crate::{NAME, jobs, open, runs};

#[tokio::test]
async fn early_end_keeps_the_name_closed_for_at_least_and_no_longer() {
    jobs(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        assert!(client.once(NAME, secs(600), secs(3600), async {}).await.unwrap().is_some());
        let left = bed.admin.pttl(NAME).await;
        assert!(0 < left && left <= 600_000, "{left} ms left of 600 s");
        assert_eq!((runs(&other).await, runs(&client).await), (false, false), "open before at_least has passed");
        open(bed).await;
        assert!(client.once(NAME, ms(300), secs(3600), async {}).await.unwrap().is_some());
        eventually("the name is open again", async || runs(&other).await).await;
        open(bed).await;
        assert!(client.once(NAME, ms(0), secs(3600), async {}).await.unwrap().is_some());
        assert!(bed.keys().await.is_empty(), "closed although at_least is zero");
        idle(&client).await;
    })
    .await;
}

#[tokio::test]
async fn work_is_stopped_when_at_most_has_passed() {
    jobs(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        with_longer_waits(ms(400), async |at_most| {
            // Each work has a reference: dropping the work leaves one.
            let one = Arc::new(());
            let held = Arc::clone(&one);
            let work = async move {
                pending::<()>().await;
                drop(held);
            };
            let outcome = ends("the work", client.once(NAME, ms(0), at_most, work)).await;
            assert_eq!(Arc::strong_count(&one), 1, "the work was not dropped");
            match outcome {
                Err(Error::Lost { why: Lost::Expired, .. }) => Some(()),
                // The lease was too short for the reply of the acquire.
                Err(error) if error.is_retryable() => {
                    idle(&client).await;
                    None
                }
                outcome => panic!("{outcome:?}"),
            }
        })
        .await;
        eventually("the job runs elsewhere", async || runs(&other).await).await;
        open(bed).await;
    })
    .await;
}

/// The job's future is dropped, or its work panics.
#[tokio::test]
async fn half_done_work_keeps_the_name_closed_until_at_most() {
    jobs(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for panics in [false, true] {
            let (there, works) = (client.clone(), Arc::new(Notify::new()));
            let begun = Arc::clone(&works);
            let work = async move {
                begun.notify_one();
                assert!(!panics, "of the test");
                pending::<()>().await;
            };
            let job = tokio::spawn(async move { there.once(NAME, ms(0), secs(3600), work).await });
            ends("the begin of the work", works.notified()).await;
            job.abort();
            assert!(job.await.is_err());
            idle(&client).await;
            let left = bed.admin.pttl(NAME).await;
            assert!(0 < left && left <= 3_600_000, "{left} ms left of an hour, panics: {panics}");
            assert!(!runs(&other).await, "panics: {panics}");
            open(bed).await;
        }
    })
    .await;
}

#[tokio::test]
async fn forced_release_during_the_work_is_reported() {
    jobs(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        for at_least in [secs(0), secs(600)] {
            let forced = async { other.reentrant(NAME).force_unlock().await.unwrap() };
            let outcome = client.once(NAME, at_least, secs(3600), forced).await;
            let is_reported = matches!(outcome, Err(Error::NotHeld { .. } | Error::Lost { why: Lost::Gone, .. }));
            assert!(is_reported && bed.keys().await.is_empty(), "{at_least:?}: {outcome:?}");
        }
        // A client that forces its own lock is notified at once.
        let forced = async {
            client.reentrant(NAME).force_unlock().await.unwrap();
            pending::<()>().await;
        };
        let outcome = ends("the work", client.once(NAME, secs(600), secs(3600), forced)).await;
        assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
        idle(&client).await;
    })
    .await;
}

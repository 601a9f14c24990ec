//! Latches: every waiter goes on at zero, and no count down is lost or counted twice.

use std::time::Duration;

use bed::cost::sent;
use bed::harm::{ACTIONS, runs};
use bed::{Bed, becomes, ends, idle, ms};
use distlock::{Client, Error, Flavour, Latch};

/// Runs a test body. At the end only tokens are left, which have an end.
async fn latches(body: impl AsyncFn(&Bed)) {
    let make = |client: &Client, name: &str| client.lock(Flavour::Reentrant, name);
    bed::run(make, async |bed: &Bed| {
        body(bed).await;
        for key in bed.admin.keys().await {
            assert!(!key.starts_with("distlock_once:") || bed.admin.pttl(&key).await > 0, "{key} has no end");
            bed.admin.cmd::<()>(&["DEL", &key]).await;
        }
    })
    .await;
}

async fn with(client: &Client, name: &str, n: u32) -> Latch {
    let latch = client.latch(name);
    assert!(latch.try_set(n).await.unwrap());
    latch
}

#[tokio::test]
async fn count_goes_down_to_zero_and_the_latch_can_be_used_again() {
    latches(async |bed| {
        let client = bed.client().await;
        let latch = client.latch("parts");
        latch.wait().await.unwrap();
        assert_eq!((latch.count().await.unwrap(), latch.count_down(1).await.unwrap()), (0, 0));
        for _ in 0..2 {
            assert!(latch.try_set(3).await.unwrap() && !latch.try_set(9).await.unwrap());
            assert!(!latch.wait_for(ms(20)).await.unwrap());
            assert_eq!(latch.count_down(0).await.unwrap(), 3);
            assert_eq!((latch.count_down(1).await.unwrap(), latch.count().await.unwrap()), (2, 2));
            assert_eq!(latch.count_down(7).await.unwrap(), 0);
            latch.wait().await.unwrap();
            assert!(!bed.admin.exists("parts").await);
        }
        assert!(matches!(latch.try_set(0).await, Err(Error::Config { .. })));
        assert!(matches!(client.latch("").wait().await, Err(Error::Config { .. })));
        bed.admin.cmd::<()>(&["HSET", "odd", "a", "1"]).await;
        let odd = client.latch("odd");
        assert!(odd.count().await.is_err() && odd.wait().await.is_err() && odd.count_down(1).await.is_err());
        // The value of a plain lock is text that is not a number.
        let guard = client.plain("plain").lock().await.unwrap();
        assert!(client.latch("plain").count_down(1).await.is_err() && guard.is_held());
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn waiters_of_all_clients_go_on_at_zero_and_after_a_delete() {
    latches(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for deletes in [false, true] {
            let latch = with(&client, "parts", 2).await;
            let mut waiting = Vec::new();
            for waits in [&client, &client, &other] {
                let latch = waits.latch("parts");
                waiting.push(tokio::spawn(async move { latch.wait().await }));
            }
            becomes("waiters", (2, 1), async || (client.stats().waiting, other.stats().waiting)).await;
            if deletes {
                assert!(other.latch("parts").delete().await.unwrap() && !latch.delete().await.unwrap());
            } else {
                assert_eq!(other.latch("parts").count_down(1).await.unwrap(), 1);
                assert_eq!((client.stats().waiting, other.stats().waiting), (2, 1));
                latch.count_down(1).await.unwrap();
            }
            for waiter in waiting {
                ends("the waiter", waiter).await.unwrap().unwrap();
            }
        }
    })
    .await;
}

/// A hundred tasks of one process look twice in all while they begin to wait, and once at zero. The fourth command is the
/// count down.
#[tokio::test]
async fn hundred_waiting_tasks_look_as_one() {
    latches(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let latch = with(&other, "parts", 1).await;
        latch.count_down(1).await.unwrap();
        assert!(latch.try_set(1).await.unwrap());
        client.latch("parts").count().await.unwrap();
        sent(bed).await;
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let latch = client.latch("parts");
                tokio::spawn(async move { latch.wait().await })
            })
            .collect();
        becomes("waiters", 100, async || client.stats().waiting).await;
        becomes("subscribers", 1, async || bed.admin.channels().await.len()).await;
        latch.count_down(1).await.unwrap();
        for task in tasks {
            ends("the waiter", task).await.unwrap().unwrap();
        }
        let sent = sent(bed).await;
        assert!(sent["subscribe"] == 1 && sent["evalsha"] <= 4, "{sent:?}");
    })
    .await;
}

/// Messages may be lost, so waiters look again after `poll_cap`.
#[tokio::test]
async fn lost_message_delays_a_waiter_by_the_poll_cap_at_most() {
    latches(async |bed| {
        let client =
            bed.connect(bed.still_builder().configure(|options| options.poll_cap = Duration::from_millis(300))).await;
        let latch = with(&client, "parts", 1).await;
        let waiting = tokio::spawn(async move { latch.wait().await });
        becomes("waiters", 1, async || client.stats().waiting).await;
        bed.admin.cmd::<()>(&["DEL", "parts"]).await;
        ends("the waiter", waiting).await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn count_down_in_doubt_counts_once() {
    latches(async |bed| {
        for (n, action) in ACTIONS.into_iter().enumerate() {
            let proxy = bed.proxy();
            let client = bed.connect(bed::fault::brisk(&proxy.url())).await;
            let latch = with(&client, &format!("parts{n}"), 9).await;
            latch.count_down(1).await.unwrap();
            let armed = proxy.on_request(runs(&["common/once", "latch/down"]), action);
            let left = latch.count_down(2).await;
            assert!(left.as_ref().map_or(true, |left| *left == 6), "{action:?}: {left:?}");
            drop(armed);
            idle(&client).await;
            becomes(&format!("{action:?}: the count after {left:?}"), 6, async || latch.count().await.unwrap()).await;
            latch.delete().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn shutdown_ends_waits_with_closed() {
    latches(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let latch = with(&other, "parts", 1).await;
        let there = client.latch("parts");
        let waiting = tokio::spawn(async move { there.wait().await });
        becomes("waiters", 1, async || client.stats().waiting).await;
        client.shutdown(bed::PATIENCE).await.unwrap();
        assert!(matches!(ends("the waiter", waiting).await.unwrap(), Err(Error::Closed)));
        latch.delete().await.unwrap();
    })
    .await;
}

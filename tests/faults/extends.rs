//! Extends whose reply is lost or late. The guard must report the right state nevertheless.

use distlock::{Acquire, Error};
use distlock_support::{Action, Matcher};

use bed::{builder, end, ends, ms, reentrant, secs};

const HOUR: u64 = 3600;

/// The extend shortens the lease, and its reply is lost. `lost()` and `run()` complete at the shorter lease.
#[tokio::test]
async fn an_extend_in_doubt_ends_the_work_at_the_shorter_lease() {
    reentrant(async |bed| {
        for several in [false, true] {
            let proxy = bed.proxy();
            let client = bed.connect(builder(&proxy.url())).await;
            let how = Acquire::new().lease(secs(2 * HOUR));
            let guard = if several {
                client.multi(["x", "y"]).acquire(how).await.unwrap().unwrap()
            } else {
                client.reentrant("x").acquire(how).await.unwrap().unwrap()
            };
            guard.extend(secs(HOUR)).await.unwrap();
            let lost = tokio::spawn(guard.lost());
            let works = guard.run(std::future::pending::<()>());
            let extends = async {
                // Both futures wait for the end of the longer lease.
                tokio::task::yield_now().await;
                let swallowed = proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
                let extended = guard.extend(ms(1500)).await;
                ends("a lost reply", swallowed.fired()).await;
                extended
            };
            let (works, extended) = ends("the work", async { tokio::join!(works, extends) }).await;
            assert!(extended.is_err(), "an extend without a reply: {extended:?}");
            assert!(matches!(works, Err(Error::Lost { .. })), "{works:?}");
            let lost = ends("the loss is signalled", lost).await.unwrap();
            assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
            drop(guard);
            end(client).await;
        }
    })
    .await;
}

/// The server refuses the extend, but the refusal arrives after the shorter lease would have ended. The guard is lost.
#[tokio::test]
async fn a_refusal_that_comes_after_the_shorter_lease_revives_no_guard() {
    reentrant(async |bed| {
        for watched in [false, true] {
            let proxy = bed.proxy();
            let client = bed.connect(builder(&proxy.url())).await;
            let how = if watched { Acquire::new() } else { Acquire::new().lease(secs(2 * HOUR)) };
            let guard = client.reentrant("x").acquire(how).await.unwrap().unwrap();
            // Afterwards the server knows the script.
            client.renew_now().await;
            guard.extend(secs(HOUR)).await.unwrap();
            let lost = tokio::spawn(guard.lost());
            bed.admin.config_set("maxmemory", "1").await;
            let late = proxy.on_request(Matcher::command("EVALSHA"), Action::DelayReply(ms(1500)));
            let extended = guard.extend(ms(500)).await;
            assert!(extended.is_err() && late.has_fired(), "{extended:?}");
            assert!(!guard.is_held(), "watched {watched}: held after the shorter lease");
            ends("the loss is signalled", lost).await.unwrap();
            assert!(!guard.is_held(), "watched {watched}: held after the loss was signalled");
            bed.admin.config_set("maxmemory", "0").await;
            drop(guard);
            end(client).await;
        }
    })
    .await;
}

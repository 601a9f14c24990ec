//! The housekeeping budget: commands that no operation causes ([`HOUSEKEEPING`]). Each rule limits their number by
//! events of the test or by ticks of a timer, but not by the clock, because on a slow machine timers tick less often.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bed::cost::{HOUSEKEEPING, only, sent};
use bed::{Bed, becomes, end, ends, eventually, idle, ms, passer, reentrant};
use distlock::Client;
use tokio::task::JoinHandle;

async fn housekeeping(bed: &Bed) -> BTreeMap<String, u64> {
    let mut stats = bed.admin.commandstats().await;
    bed.admin.reset_stats().await;
    stats.retain(|name, _| HOUSEKEEPING.iter().any(|own| name.starts_with(own)));
    stats
}

/// Runs the scripts once, so that the server knows them.
async fn warmed(bed: &Bed, client: &Client) {
    client.reentrant("warm").lock().await.unwrap().unlock().await.unwrap();
    idle(client).await;
    bed.admin.reset_stats().await;
}

/// No timer fires during this test, so clients that are idle, acquire locks or hold locks send no housekeeping.
#[tokio::test]
async fn client_without_due_timers_sends_no_housekeeping() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        warmed(bed, &client).await;
        let lock = client.reentrant("a");
        for _ in 0..50 {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        let guard = lock.lock().await.unwrap();
        assert_eq!(client.renew_now().await.renewed, 1);
        assert_eq!(housekeeping(bed).await, only(&[]));
        guard.unlock().await.unwrap();
    })
    .await;
}

/// All waiters of a name share one subscription, however often they are woken. It ends once, after its linger.
#[tokio::test]
async fn waiters_of_a_name_share_one_subscription() {
    reentrant(async |bed| {
        let holder = bed.still_client().await;
        let client = bed.connect(bed.still_builder().configure(|options| options.subscription_linger = ms(100))).await;
        warmed(bed, &client).await;
        let guard = holder.reentrant("a").lock().await.unwrap();
        let waiters: Vec<_> = (0..10).map(|_| passer(client.reentrant("a"))).collect();
        becomes("waiting tasks", 10, async || client.stats().waiting).await;
        guard.unlock().await.unwrap();
        for waiter in waiters {
            ends("a waiter", waiter).await.unwrap();
        }
        becomes("channels with a subscriber", Vec::<String>::new(), async || bed.admin.channels().await).await;
        assert_eq!(bed.admin.calls("subscribe").await, 1);
        assert_eq!(housekeeping(bed).await, only(&[("unsubscribe", 1)]));
    })
    .await;
}

/// The connection for messages sends one ping in each interval, whether the client is idle, holds a lock or waits. It
/// sends nothing else.
#[tokio::test]
async fn pings_are_bounded_by_the_ticks_of_their_timer() {
    reentrant(async |bed| {
        let holder = bed.still_client().await;
        let guard = holder.reentrant("b").lock().await.unwrap();
        for state in ["idle", "holding", "waiting"] {
            let client = bed.connect(bed.still_builder().configure(|options| options.ping_interval = INTERVAL)).await;
            warmed(bed, &client).await;
            let held = if state == "holding" { Some(client.reentrant("a").lock().await.unwrap()) } else { None };
            let asked = bed.admin.calls("evalsha").await;
            let waiting = (state == "waiting").then(|| passer(client.reentrant("b")));
            becomes("waiting tasks", usize::from(waiting.is_some()), async || client.stats().waiting).await;
            if waiting.is_some() {
                // The second attempt follows the confirmed subscription.
                becomes("attempts", asked + 2, async || bed.admin.calls("evalsha").await).await;
            }
            becomes("commands in flight", 0, async || client.stats().under_way).await;
            let (ticks, ticking) = ticks();
            sent(bed).await;
            eventually("five ticks and a ping", async || ticks.load(Relaxed) >= 5 && bed.admin.calls("ping").await > 0)
                .await;
            let pings = bed.admin.calls("ping").await;
            // The client's timer may be one tick ahead, and the next tick may be in progress.
            let most = ticks.load(Relaxed) + 2;
            assert!(pings <= most, "{state}: {pings} pings in {most} ticks");
            assert_eq!(sent(bed).await, only(&[]), "{state}");
            ticking.abort();
            if let Some(waiting) = waiting {
                waiting.abort();
            }
            drop(held);
            end(client).await;
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

const INTERVAL: Duration = ms(200);

/// Counts the ticks of a timer on the client's thread. This timer is as late as the client's own timers.
fn ticks() -> (Arc<AtomicU64>, JoinHandle<()>) {
    let ticks = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ticks);
    let ticking = tokio::spawn(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            count.fetch_add(1, Relaxed);
        }
    });
    (ticks, ticking)
}

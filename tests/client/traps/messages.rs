//! Traps 5 and 6: subscriptions that are reported too early, and messages that get lost in a flood.

use distlock_support::Admin;
use distlock_support::proxy::{Action, Matcher};

use crate::rig::{is_served, runtime, takes};
use bed::fault::count;
use bed::{becomes, builder, ends, eventually, ms, reentrant, secs};

/// fred's `subscribe()` completes before `SUBSCRIBE` is written. This crate's connection for messages waits for the
/// server's reply. fred's subscriptions wait for the reply to a later `PING` (node/subscriptions.rs,
/// `Subscriptions::subscribe`). Only after this reply does a waiter try once more and sleep.
///
/// Here the `SUBSCRIBE` takes 300 ms, and the lock is released meanwhile. No message arrives, and no poll happens for
/// an hour.
#[tokio::test]
async fn trap_05_no_wake_up_is_lost_while_the_subscription_is_under_way() {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let holder = bed.client().await;
        let waiter = bed.connect(builder(&proxy.url()).configure(|options| options.poll_cap = secs(3600))).await;
        for round in 0..3 {
            let name = format!("lock {round}");
            let guard = holder.reentrant(&name).lock().await.unwrap();
            let seen = proxy.requests_seen("SUBSCRIBE");
            proxy.on_request(Matcher::command("SUBSCRIBE"), Action::Delay(ms(300)));
            let waiting = takes(waiter.reentrant(&name));
            eventually("the waiter subscribes", async || proxy.requests_seen("SUBSCRIBE") > seen).await;
            // A waiter that relied on the early completion would try at once, and then sleep.
            tokio::time::sleep(ms(100)).await;
            guard.unlock().await.unwrap();
            is_served("the waiter", waiting).await;
        }
    })
    .await;
}

/// If messages arrive faster than they are read, fred's buffer of 4096 drops the oldest ones, and fred's documented
/// loop ends for good. Our own connection for messages has no buffer that overflows.
///
/// The message for the waiter is in the middle of 16 000 messages for another lock.
#[tokio::test]
async fn trap_06_a_flood_of_messages_loses_no_waiter() {
    const FLOOD: &str = "for i = 1, 8000 do redis.call('publish', KEYS[2], '0') end
        redis.call('del', KEYS[1]) redis.call('publish', KEYS[1 + 2], '0')
        for i = 1, 8000 do redis.call('publish', KEYS[2], '0') end";
    reentrant(async |bed| {
        let holder = bed.client().await;
        let client = bed.connect(bed.builder().configure(|options| options.poll_cap = secs(3600))).await;
        let _busy = holder.reentrant("busy").lock().await.unwrap();
        let bystander = takes(client.reentrant("busy"));
        let (channel, other) = ("redisson_lock__channel:{lock}", "redisson_lock__channel:{busy}");
        becomes("subscribers", 1, async || bed.admin.numsub(other).await).await;
        for _ in 0..5 {
            let held = holder.reentrant("lock").lock().await.unwrap();
            let waiting = takes(client.reentrant("lock"));
            becomes("subscribers", 1, async || bed.admin.numsub(channel).await).await;
            // Time for the waiter to try once more, and sleep.
            tokio::time::sleep(ms(100)).await;
            // Another thread publishes while this thread is blocked, so all messages are in the socket when the client
            // reads again.
            let url = bed.server.url();
            let flood = std::thread::spawn(move || {
                runtime().block_on(async {
                    let admin = Admin::from_url(&url).await;
                    let () = admin.cmd(&["EVAL", FLOOD, "3", "lock", other, channel]).await;
                });
            });
            flood.join().unwrap();
            let guard = ends("the waiter", waiting).await.unwrap();
            assert_eq!(count(&bed.admin, "lock").await, 1);
            assert!(held.unlock().await.is_err(), "it was taken from its holder");
            guard.unlock().await.unwrap();
        }
        bystander.abort();
    })
    .await;
}

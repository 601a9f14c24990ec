//! The cost of the fair lock.

use std::time::Duration;

use distlock::{Client, DistLock as _};
use tokio::task::JoinHandle;

use bed::cost::{only, sent, turns};
use bed::{Bed, eventually, fair, ms, secs};

/// A client, when the server knows the scripts.
async fn begin(bed: &Bed) -> Client {
    let client = bed.client().await;
    let lock = client.fair("warm");
    let guard = lock.lock().await.unwrap();
    assert!(lock.lock_for(ms(20)).await.unwrap().is_none());
    lock.queue().await.unwrap();
    lock.force_unlock().await.unwrap();
    drop(guard);
    lock.lock().await.unwrap().unlock().await.unwrap();
    bed::idle(&client).await;
    bed.admin.reset_stats().await;
    client
}

/// The scripts that were run since the counts were last forgotten, and the subscriptions.
async fn counts(bed: &Bed) -> (u64, u64, u64) {
    let stats = bed.admin.commandstats().await;
    let calls = |name: &str| stats.get(name).copied().unwrap_or(0);
    (calls("evalsha") + calls("eval"), calls("subscribe"), calls("unsubscribe"))
}

async fn queued(bed: &Bed, count: usize) {
    let length = async || bed.admin.cmd::<usize>(&["LLEN", "redisson_lock_queue:{x}"]).await;
    eventually(&format!("{count} wait"), async || length().await == count).await;
}

fn waiters(client: &Client, count: usize) -> Vec<JoinHandle<()>> {
    let waiter = |_| {
        let lock = client.fair("x");
        tokio::spawn(async move { assert!(lock.lock().await.unwrap().unlock().await.is_ok()) })
    };
    (0..count).map(waiter).collect()
}

#[tokio::test]
async fn lock_and_unlock_or_drop_of_a_free_fair_lock_are_two_commands() {
    fair(async |bed| {
        let client = begin(bed).await;
        let lock = client.fair("x");
        turns(bed, &client, &lock).await;
    })
    .await;
}

#[tokio::test]
async fn try_lock_of_a_busy_fair_lock_is_one_command() {
    fair(async |bed| {
        let (client, other) = (begin(bed).await, bed.client().await);
        let lock = client.fair("x");
        let guard = lock.lock().await.unwrap();
        sent(bed).await;
        assert!(other.fair("x").try_lock().await.unwrap().is_none());
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(sent(bed).await, only(&[("evalsha", 2)]));
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A waiter's first wait: a place, a subscription, and a look for what has happened since. Its later ones: a place. Being
/// served costs nothing: the release does it.
#[tokio::test]
async fn a_waiter_costs_two_commands_and_later_one() {
    const WAITERS: u64 = 16;
    fair(async |bed| {
        let (holder, client) = (begin(bed).await, bed.client().await);
        for (round, places, subscriptions) in [(0, 2 * WAITERS, WAITERS), (1, WAITERS, 0), (2, WAITERS, 0)] {
            let guard = holder.fair("x").lock().await.unwrap();
            bed.admin.reset_stats().await;
            let waiting = waiters(&client, WAITERS as usize);
            queued(bed, WAITERS as usize).await;
            // Every attempt in vain asks for the rest of the lease; under load several go in one command.
            let attempts = async || bed.admin.calls("pttl").await;
            let all = async || attempts().await >= places && bed.admin.channels().await.len() >= WAITERS as usize;
            eventually("all have looked again", all).await;
            let (scripts, subscribed, unsubscribed) = counts(bed).await;
            println!("round {round}: {scripts} commands of {WAITERS} waiters, {subscribed} subscriptions");
            // A refresh may fall in between.
            assert!(scripts <= places + 1, "round {round}: {scripts}");
            assert_eq!((subscribed, unsubscribed), (subscriptions, 0), "round {round}");
            bed.admin.reset_stats().await;
            guard.unlock().await.unwrap();
            for waiter in waiting {
                waiter.await.unwrap();
            }
            let (scripts, subscribed, unsubscribed) = counts(bed).await;
            println!("round {round}: {scripts} commands of {} releases", WAITERS + 1);
            // A refresh, and a renewal of what was passed on.
            assert!(scripts <= WAITERS + 1 + 2, "round {round}: {scripts}");
            assert_eq!((subscribed, unsubscribed), (0, 0), "round {round}");
        }
    })
    .await;
}

/// Keeping the places of a client is a command a beat (1 to 2.2 s), whatever the number of its waiters.
#[tokio::test]
async fn keeping_places_is_one_command_a_beat() {
    const SPAN: Duration = secs(5);
    fair(async |bed| {
        let (holder, client) = (begin(bed).await, bed.client().await);
        // A lease of its own: the watchdog sends nothing in between.
        let guard = holder.fair("x").lock_leased(secs(100)).await.unwrap();
        let (mut waiting, mut before) = (Vec::new(), 0);
        for count in [1, 100, 400] {
            waiting.extend(waiters(&client, count - before));
            before = count;
            queued(bed, count).await;
            eventually("all listen", async || bed.admin.channels().await.len() == count).await;
            bed.admin.reset_stats().await;
            // The last look of the last of them.
            tokio::time::sleep(ms(200)).await;
            bed.admin.reset_stats().await;
            let began = std::time::Instant::now();
            tokio::time::sleep(SPAN).await;
            let (scripts, subscribed, unsubscribed) = counts(bed).await;
            // Those at the edges, and one more where the server did not know the script.
            let most = began.elapsed().as_secs() + 2;
            println!("{count} waiters: {scripts} commands in {SPAN:?}");
            let stats = bed.admin.commandstats().await;
            assert!((2..=most).contains(&scripts) && subscribed + unsubscribed == 0, "{count} waiters: {stats:?}");
        }
        guard.unlock().await.unwrap();
        for waiter in waiting {
            waiter.await.unwrap();
        }
    })
    .await;
}

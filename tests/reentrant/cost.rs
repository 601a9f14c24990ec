//! The cost of the reentrant lock.

use bed::cost::{only, passed_on, renewal, sent, turns};
use bed::{Bed, eventually, ms, reentrant, secs};
use distlock::{Acquire, Client, DistLock, Flavour, ReentrantLock};

/// Runs every script once, so that the server knows them, and forgets the counts.
async fn warm(bed: &Bed, client: &Client) {
    let lock = client.reentrant("warm");
    let me = client.owner();
    let outer = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
    outer.extend(secs(20)).await.unwrap();
    lock.state().await.unwrap();
    outer.unlock().await.unwrap();
    lock.force_unlock().await.unwrap();
    bed.admin.reset_stats().await;
}

async fn begin(bed: &Bed) -> (Client, ReentrantLock) {
    let client = bed.client().await;
    warm(bed, &client).await;
    let lock = client.reentrant("x");
    (client, lock)
}

#[tokio::test]
async fn lock_and_unlock_or_drop_of_a_free_lock_are_two_commands() {
    reentrant(async |bed| {
        let (client, lock) = begin(bed).await;
        turns(bed, &client, &lock).await;
        // The boxed form of the trait costs the same.
        turns(bed, &client, &lock as &dyn DistLock).await;
    })
    .await;
}

#[tokio::test]
async fn try_lock_of_a_busy_lock_is_one_command() {
    reentrant(async |bed| {
        let (_client, lock) = begin(bed).await;
        let other = bed.client().await;
        let guard = lock.lock().await.unwrap();
        sent(bed).await;
        assert!(other.reentrant("x").try_lock().await.unwrap().is_none());
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(sent(bed).await, only(&[("evalsha", 2)]));
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn each_re_entry_release_query_and_extension_is_one_command() {
    reentrant(async |bed| {
        let (client, lock) = begin(bed).await;
        let me = client.owner();
        let how = || Acquire::new().owner(&me);
        let outer = lock.acquire(how()).await.unwrap().unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        let inner = lock.acquire(how()).await.unwrap().unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        inner.unlock().await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        outer.extend(secs(10)).await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        lock.state().await.unwrap();
        lock.is_locked().await.unwrap();
        lock.hold_count(&me).await.unwrap();
        lock.remaining_ttl().await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 4)]));
        assert!(outer.is_held() && !outer.remaining().is_zero());
        assert_eq!(sent(bed).await, only(&[]));
        lock.force_unlock().await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]));
        drop(outer);
    })
    .await;
}

/// Behind a lock that another process holds, a hundred tasks cost what one does: an attempt, a subscription that is
/// confirmed by a PING, and the second attempt that closes the gap between the two.
#[tokio::test]
async fn a_hundred_waiting_tasks_of_one_process_are_one_contender_and_one_subscription() {
    reentrant(async |bed| {
        let (_client, lock) = begin(bed).await;
        let waiting = bed.client().await;
        warm(bed, &waiting).await;
        let guard = lock.lock().await.unwrap();
        sent(bed).await;
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let lock = waiting.reentrant("x");
                tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
            })
            .collect();
        let subscribed = async || bed.admin.numsub("redisson_lock__channel:{x}").await == 1;
        eventually("a subscription", subscribed).await;
        eventually("all wait", async || waiting.stats().waiting == 100).await;
        // The second attempt follows the subscription.
        let attempts = async || bed.admin.calls("evalsha").await == 2;
        eventually("two attempts", attempts).await;
        tokio::time::sleep(ms(300)).await;
        let mut all = sent(bed).await;
        all.remove("pubsub");
        all.retain(|name, _| !name.starts_with("pubsub"));
        assert_eq!(all, only(&[("evalsha", 2), ("ping", bed::pings()), ("subscribe", 1)]));

        guard.unlock().await.unwrap();
        for task in tasks {
            task.await.unwrap();
        }
        let served = sent(bed).await;
        // A lock is handed over up to 16 times before it goes back to the server: 100 tasks take it in at least 6 series,
        // each an acquire and a release; a few attempts more may be in vain.
        let commands = served.get("evalsha").copied().unwrap_or_default();
        assert!((12..=60).contains(&commands), "{served:?}");
        assert_eq!(served.get("subscribe"), None, "{served:?}");
    })
    .await;
}

#[tokio::test]
async fn passing_on_inside_a_process_costs_nothing() {
    reentrant(async |bed| {
        begin(bed).await;
        let all = passed_on(bed, Flavour::Reentrant).await;
        // One that a busy machine lets wait for long enough subscribes, and looks once.
        let [scripts, subscribed] =
            ["evalsha", "subscribe"].map(|command| all.get(command).copied().unwrap_or_default());
        assert!(scripts <= subscribed && subscribed <= 1, "{all:?}");
    })
    .await;
}

#[tokio::test]
async fn renewal_of_1050_locks_is_11_commands() {
    reentrant(async |bed| {
        let (client, _) = begin(bed).await;
        let mut guards = Vec::new();
        for n in 0..1050 {
            guards.push(client.reentrant(&bed::kin(&format!("r{n}"))).lock().await.unwrap());
        }
        // The first round teaches the server the script.
        client.renew_now().await;
        renewal(bed, &client, &guards, 11).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_acquires_make_no_new_connection() {
    reentrant(async |bed| {
        let (client, _) = begin(bed).await;
        let connections = async || {
            let info: String = bed.admin.cmd(&["INFO", "stats"]).await;
            let counts = info.lines().filter_map(|line| line.strip_prefix("total_connections_received:"));
            counts.map(|count| count.trim().parse::<u64>().unwrap()).sum::<u64>()
        };
        let before = connections().await;
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                let lock = client.reentrant(&format!("c{n}"));
                tokio::spawn(async move {
                    for _ in 0..100 {
                        lock.lock().await.unwrap().unlock().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(connections().await, before);
        // Under load commands are shared: never more than two an acquire and release, and here far fewer.
        let commands = sent(bed).await.get("evalsha").copied().unwrap_or_default();
        assert!(commands < 20_000, "{commands}");
    })
    .await;
}

//! The cost of the plain lock: a free lock costs one `SET` and no script.

use bed::cost::{only, passed_on, renewal};
use bed::{becomes, enter, idle, secs};
use distlock::{Flavour, PlainValue, Released};

use crate::rig::{plain, sent, warm};

#[tokio::test]
async fn lock_and_release_cost_one_set_and_one_script_and_a_refusal_one_set() {
    plain(async |bed| {
        let (client, other) = (warm(bed).await, bed.still_client().await);
        let lock = client.plain("x");
        sent(bed).await;
        for by_hand in [true, false] {
            for _ in 0..10 {
                let guard = lock.lock().await.unwrap();
                if by_hand {
                    guard.unlock().await.unwrap();
                } else {
                    drop(guard);
                    idle(&client).await;
                }
            }
            assert_eq!(sent(bed).await, (10, 10), "by hand: {by_hand}");
        }
        let guard = lock.lock().await.unwrap();
        sent(bed).await;
        assert!(other.plain("x").try_lock().await.unwrap().is_none() && lock.try_lock().await.unwrap().is_none());
        assert_eq!(sent(bed).await, (0, 2));
        guard.unlock().await.unwrap();
        sent(bed).await;
        // The release reads the value, deletes it and publishes. There are no other commands.
        lock.lock().await.unwrap().unlock().await.unwrap();
        let mut inside = bed.admin.commandstats().await;
        let wanted = ["evalsha", "get", "del", "publish", "set"];
        let other = ["config|", "info", "client|", "latency|", "ping"];
        inside.retain(|name, _| !other.iter().any(|own| name.starts_with(own)));
        assert_eq!(inside, only(&wanted.map(|name| (name, 1))));
    })
    .await;
}

/// An owner that other tasks may use acquires by a script, because a script has a last moment.
#[tokio::test]
async fn acquire_by_owner_query_and_extend_cost_one_command_each() {
    plain(async |bed| {
        let client = warm(bed).await;
        let lock = client.plain("x");
        let me = client.owner();
        let guard = enter(&lock, &me).await;
        assert_eq!(sent(bed).await.0, 1);
        guard.extend(secs(60)).await.unwrap();
        assert_eq!(sent(bed).await, (1, 0));
        lock.state().await.unwrap();
        lock.is_locked().await.unwrap();
        lock.hold_count(&me).await.unwrap();
        lock.remaining_ttl().await.unwrap();
        assert_eq!(sent(bed).await, (4, 0));
        // A release by owner first reads the value.
        let owner = guard.into_owner();
        idle(&client).await;
        assert_eq!(sent(bed).await, (0, 0));
        assert_eq!(lock.release(&owner).await.unwrap(), Released::Free);
        assert_eq!(sent(bed).await, (2, 0));
        assert!(!lock.force_unlock().await.unwrap());
        assert_eq!(sent(bed).await, (1, 0));
    })
    .await;
}

/// Behind a holder of this crate, a waiter sends a `SET`, a subscribe, and one more attempt in case the lock was
/// released before the subscription. After that it sends nothing, however many waiters there are.
#[tokio::test]
async fn hundred_waiting_tasks_are_one_contender_and_one_subscription() {
    plain(async |bed| {
        let (client, waiting) = (bed.still_client().await, warm(bed).await);
        let guard = client.plain("x").lock().await.unwrap();
        sent(bed).await;
        let tasks: Vec<_> = (0..100).map(|_| bed::passer(waiting.plain("x"))).collect();
        becomes("waiting tasks", 100, async || waiting.stats().waiting).await;
        // These are the waiter's own `SET`, its subscribe, and the attempt after it.
        let seen = async || {
            let stats = bed.admin.commandstats().await;
            ["set", "evalsha", "subscribe"].map(|name| stats.get(name).copied().unwrap_or_default())
        };
        becomes("SET, EVALSHA and SUBSCRIBE", [2, 1, 1], seen).await;
        bed.admin.reset_stats().await;
        guard.unlock().await.unwrap();
        for task in tasks {
            bed::ends("a waiter", task).await.unwrap();
        }
        let (scripts, _) = sent(bed).await;
        // The process hands the lock over up to 16 times before it returns the lock to the server.
        assert!((6..=60).contains(&scripts), "{scripts}");
    })
    .await;
}

#[tokio::test]
async fn hand_over_inside_process_costs_no_commands() {
    plain(async |bed| {
        let all = passed_on(bed, Flavour::Plain).await;
        // A task that waits long enough subscribes and tries once.
        let [scripts, subscribed] =
            ["evalsha", "subscribe"].map(|command| all.get(command).copied().unwrap_or_default());
        assert!(
            scripts <= subscribed && subscribed <= 1 && scripts + subscribed == all.values().sum::<u64>(),
            "{all:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn renewal_of_1050_locks_costs_11_commands() {
    plain(async |bed| {
        let client = warm(bed).await;
        let mut guards = Vec::new();
        for n in 0..1050 {
            guards.push(client.plain(&bed::kin(&format!("r{n}"))).lock().await.unwrap());
        }
        client.renew_now().await;
        renewal(bed, &client, &guards, 11).await;
        // Holds whose value has another form are renewed by a separate command.
        guards.push(client.plain(&bed::kin("hex")).value(PlainValue::Hex).lock().await.unwrap());
        renewal(bed, &client, &guards, 12).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

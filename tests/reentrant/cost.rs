//! The cost of the reentrant lock.

use bed::cost::{only, passed_on, renewal, sent, steps, turns, warm};
use bed::{Bed, at_one, becomes, enter, reentrant, secs};
use distlock::{Client, Flavour, ReentrantLock};
use futures::future::join_all;

async fn begin(bed: &Bed) -> (Client, ReentrantLock) {
    let client = bed.connect(bed.still_builder().configure(|options| options.local_handoff_time = secs(600))).await;
    warm(bed, &client, Flavour::Reentrant).await;
    let lock = client.reentrant("x");
    (client, lock)
}

/// A call costs the same through the lock's own type and through the trait object (`steps`).
#[tokio::test]
async fn each_operation_costs_one_command() {
    reentrant(async |bed| {
        let (client, lock) = begin(bed).await;
        turns(bed, &client, &lock).await;
        steps(bed, &client, Flavour::Reentrant).await;
        let me = client.owner();
        let guard = enter(&lock, &me).await;
        sent(bed).await;
        lock.is_locked().await.unwrap();
        lock.hold_count(&me).await.unwrap();
        lock.remaining_ttl().await.unwrap();
        assert_eq!(sent(bed).await, only(&[("evalsha", 3)]));
        assert!(guard.is_held() && !guard.remaining().is_zero());
        assert_eq!(sent(bed).await, only(&[]));
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Behind another process's hold, a hundred tasks cost as much as one task: an attempt, a subscribe, and a second
/// attempt in case the lock was released before the subscription.
#[tokio::test]
async fn hundred_waiting_tasks_are_one_contender_and_one_subscription() {
    reentrant(async |bed| {
        let ((_holder, lock), (waiting, _)) = (begin(bed).await, begin(bed).await);
        let guard = lock.lock().await.unwrap();
        sent(bed).await;
        let tasks: Vec<_> = (0..100).map(|_| bed::passer(waiting.reentrant("x"))).collect();
        becomes("waiting tasks", 100, async || waiting.stats().waiting).await;
        becomes("attempts", 2, async || bed.admin.calls("evalsha").await).await;
        assert_eq!(sent(bed).await, only(&[("evalsha", 2), ("subscribe", 1)]));

        guard.unlock().await.unwrap();
        for task in tasks {
            bed::ends("a waiter", task).await.unwrap();
        }
        let served = sent(bed).await;
        // The process hands a lock over up to 16 times before it returns the lock to the server. So 100 tasks need at
        // least 6 series of hand-overs, with an acquire and a release each. A few more attempts may fail.
        assert!((12..=60).contains(&served["evalsha"]), "{served:?}");
        assert_eq!(served.get("subscribe"), None, "{served:?}");
    })
    .await;
}

#[tokio::test]
async fn fifty_hand_overs_inside_process_cost_at_most_two_commands() {
    reentrant(async |bed| {
        begin(bed).await;
        let all = passed_on(bed, Flavour::Reentrant).await;
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
    reentrant(async |bed| {
        let (client, _) = begin(bed).await;
        let mut guards = Vec::new();
        for n in 0..1050 {
            guards.push(client.reentrant(&bed::kin(&format!("r{n}"))).lock().await.unwrap());
        }
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
        let names = (0..100).map(|n| client.reentrant(&format!("c{n}")));
        join_all(names.map(async |lock| {
            for _ in 0..100 {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        }))
        .await;
        assert_eq!(connections().await, before);
        let commands = sent(bed).await["evalsha"];
        assert!(commands <= 20_000, "more than two commands an acquire and release: {commands}");
    })
    .await;
}

/// Tests the counter of commands. A client's `GET` counts, but a `GET` inside a script and the admin's commands do not.
#[tokio::test]
async fn client_commands_are_counted_but_commands_inside_scripts_are_not() {
    at_one(
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            bed.still_client().await;
            let other = redis::Client::open(format!("redis://{}", bed.server.addr())).unwrap();
            let mut other = other.get_multiplexed_async_connection().await.unwrap();
            sent(bed).await;
            let () = redis::cmd("GET").arg("a").query_async(&mut other).await.unwrap();
            let script = "return redis.call('GET', KEYS[1])";
            let () = redis::cmd("EVAL").arg(script).arg(1).arg("a").query_async(&mut other).await.unwrap();
            assert!(!bed.admin.exists("a").await);
            assert_eq!(sent(bed).await, only(&[("eval", 1), ("get", 1)]));
        },
    )
    .await;
}

//! Barriers: no party returns before all have arrived, and no party waits for a dead one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bed::cost::sent;
use bed::harm::{ACTIONS, runs};
use bed::{Bed, becomes, ends, idle, ms, secs};
use distlock::{Barrier, BarrierWait, Client, Error, Flavour, Result};
use futures::future::join_all;
use tokio::task::JoinHandle;

/// Runs a test body. At the end only keys with an end are left: states of barriers, and tokens.
async fn barriers(body: impl AsyncFn(&Bed)) {
    let make = |client: &Client, name: &str| client.lock(Flavour::Reentrant, name);
    bed::run(make, async |bed: &Bed| {
        body(bed).await;
        for key in bed.admin.keys().await {
            assert!(bed.admin.pttl(&key).await > 0, "{key} has no end");
            assert!(!key.ends_with(":parties"), "{key} has parties");
            bed.admin.cmd::<()>(&["DEL", &key]).await;
        }
    })
    .await;
}

fn arrive(barrier: &Barrier) -> JoinHandle<Result<BarrierWait>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait().await })
}

async fn waiting(barrier: &Barrier, n: u64) {
    becomes("parties that wait", n, async || barrier.waiting().await.unwrap()).await;
}

#[tokio::test]
async fn last_arrival_of_each_round_lets_all_clients_go() {
    barriers(async |bed| {
        let clients = [bed.still_client().await, bed.still_client().await];
        let mut first = None;
        for n_round in 0..3 {
            let mut tasks = Vec::new();
            for n in 0..4 {
                let barrier = clients[n % 2].barrier("start", 5);
                tasks.push(arrive(&barrier));
                waiting(&barrier, n as u64 + 1).await;
            }
            assert!(tasks.iter().all(|task| !task.is_finished()));
            let last = clients[0].barrier("start", 5).wait().await.unwrap();
            let round = *first.get_or_insert(last.round()) + n_round;
            assert!(last.is_leader() && last.round() == round);
            for task in tasks {
                let wait = ends("a party", task).await.unwrap().unwrap();
                assert!(!wait.is_leader() && wait.round() == round);
            }
        }
    })
    .await;
}

/// Eight tasks run a hundred rounds. Before each arrival a task counts; after it, all have counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_goes_on_before_all_have_arrived() {
    barriers(async |bed| {
        let clients = join_all((0..4).map(|_| bed.client())).await;
        let arrived = Arc::new(AtomicU64::new(0));
        let task = |n: usize| {
            let (barrier, arrived) = (clients[n % 4].barrier("steps", 8), Arc::clone(&arrived));
            tokio::spawn(async move {
                let mut leads = 0;
                for round in 1..=100 {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    let wait = barrier.wait().await.unwrap();
                    leads += u64::from(wait.is_leader());
                    assert!(arrived.load(Ordering::SeqCst) >= 8 * round, "round {round}");
                }
                leads
            })
        };
        let tasks: Vec<_> = (0..8).map(task).collect();
        let mut leaders = 0;
        for task in tasks {
            leaders += ends("a task", task).await.unwrap();
        }
        assert_eq!(leaders, 100);
    })
    .await;
}

#[tokio::test]
async fn dead_party_breaks_its_round_and_the_next_round_works() {
    barriers(async |bed| {
        let client = bed.quick().await;
        let barrier = client.barrier("start", 3);
        // A party whose process has died: it arrived, and its lease has ended.
        let first = arrive(&barrier);
        waiting(&barrier, 1).await;
        bed.admin.cmd::<()>(&["ZADD", "distlock_barrier:{start}:parties", "1", "dead"]).await;
        assert!(matches!(ends("a party", first).await.unwrap(), Err(Error::Broken { name }) if &*name == "start"));
        waiting(&barrier, 0).await;
        // A later arrival breaks the round of a dead party too, and waits in the next round.
        bed.admin.cmd::<()>(&["ZADD", "distlock_barrier:{start}:parties", "1", "dead"]).await;
        let tasks = [arrive(&barrier), arrive(&barrier)];
        waiting(&barrier, 2).await;
        let round = barrier.wait().await.unwrap().round();
        for task in tasks {
            assert_eq!(ends("a party", task).await.unwrap().unwrap().round(), round);
        }
    })
    .await;
}

/// A party whose keys were deleted gets an error, even if others have ended a round with new keys before it looks.
#[tokio::test]
async fn deleted_keys_break_the_round_although_others_have_ended_one_since() {
    barriers(async |bed| {
        let (client, other) = (bed.still_client().await, bed.client().await);
        let first = arrive(&client.barrier("start", 2));
        waiting(&client.barrier("start", 2), 1).await;
        bed.admin.cmd::<()>(&["DEL", "distlock_barrier:{start}", "distlock_barrier:{start}:parties"]).await;
        let second = arrive(&other.barrier("start", 2));
        waiting(&other.barrier("start", 2), 1).await;
        other.barrier("start", 2).wait().await.unwrap();
        ends("a party", second).await.unwrap().unwrap();
        assert!(matches!(ends("a party", first).await.unwrap(), Err(Error::Broken { .. })));
    })
    .await;
}

#[tokio::test]
async fn party_that_stops_waiting_leaves_its_round() {
    barriers(async |bed| {
        let client = bed.client().await;
        let barrier = client.barrier("start", 2);
        assert!(barrier.wait_for(ms(50)).await.unwrap().is_none());
        waiting(&barrier, 0).await;
        for round in 0..20 {
            let mut dropped = Box::pin(barrier.wait());
            for _ in 0..round {
                if futures::poll!(&mut dropped).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(dropped);
            idle(&client).await;
            waiting(&barrier, 0).await;
        }
        let task = arrive(&barrier);
        waiting(&barrier, 1).await;
        assert!(barrier.wait_for(secs(600)).await.unwrap().is_some_and(|wait| wait.is_leader()));
        ends("a party", task).await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn wait_renews_the_lease_of_every_party_of_a_process() {
    barriers(async |bed| {
        let client = bed.quick().await;
        let barrier = client.barrier("start", 4);
        let tasks = [arrive(&barrier), arrive(&barrier), arrive(&barrier)];
        waiting(&barrier, 3).await;
        let lowest = async || {
            let first: Vec<Vec<u8>> =
                bed.admin.cmd(&["ZRANGE", "distlock_barrier:{start}:parties", "0", "0", "WITHSCORES"]).await;
            String::from_utf8(first[1].clone()).unwrap().parse::<u64>().unwrap()
        };
        let before = lowest().await;
        // Longer than the lease: without renewals the round would be broken.
        bed::eventually("all leases are renewed twice", async || lowest().await > before + 4_000).await;
        assert!(barrier.wait().await.unwrap().is_leader());
        for task in tasks {
            ends("a party", task).await.unwrap().unwrap();
        }
    })
    .await;
}

/// The parties of a client that is shut down leave before its connections close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_ends_waits_and_their_parties_leave() {
    barriers(async |bed| {
        let other = bed.client().await;
        for _ in 0..10 {
            let client = bed.client().await;
            let tasks = [(); 2].map(|()| arrive(&client.barrier("start", 3)));
            waiting(&other.barrier("start", 3), 2).await;
            client.shutdown(bed::PATIENCE).await.unwrap();
            assert_eq!(other.barrier("start", 3).waiting().await.unwrap(), 0);
            for task in tasks {
                assert!(matches!(ends("a party", task).await.unwrap(), Err(Error::Closed)));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn other_numbers_of_parties_and_impossible_names_are_refused() {
    barriers(async |bed| {
        let client = bed.client().await;
        let barrier = client.barrier("start", 2);
        let task = arrive(&barrier);
        waiting(&barrier, 1).await;
        let error = client.barrier("start", 3).wait().await.unwrap_err();
        assert!(matches!(&error, Error::Server { message, .. } if message.contains("is for 2 parties")), "{error}");
        assert!(matches!(client.barrier("start", 0).wait().await, Err(Error::Config { .. })));
        assert!(matches!(client.barrier("", 1).wait().await, Err(Error::Config { .. })));
        assert!(client.barrier("alone", 1).wait().await.unwrap().is_leader());
        barrier.wait().await.unwrap();
        ends("a party", task).await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn arrival_in_doubt_counts_once_or_not_at_all() {
    barriers(async |bed| {
        for (n, action) in ACTIONS.into_iter().enumerate() {
            let proxy = bed.proxy();
            let client = bed.connect(bed::fault::brisk(&proxy.url())).await;
            let barrier = client.barrier(&format!("start{n}"), 3);
            client.barrier("warm", 1).wait().await.unwrap();
            let armed = proxy.on_request(runs(&["common/once", "barrier/rounds", "barrier/arrive"]), action);
            let first = arrive(&barrier);
            // A single attempt may fail. Then the party has left.
            bed::eventually(&format!("{action:?}: the first party"), async || {
                first.is_finished() || barrier.waiting().await.is_ok_and(|waiting| waiting == 1)
            })
            .await;
            drop(armed);
            if first.is_finished() {
                let outcome = first.await.unwrap();
                assert!(outcome.is_err(), "{action:?}: {outcome:?}");
                idle(&client).await;
                waiting(&barrier, 0).await;
                continue;
            }
            let second = arrive(&barrier);
            waiting(&barrier, 2).await;
            assert!(!first.is_finished() && !second.is_finished(), "{action:?}");
            barrier.wait().await.unwrap();
            for task in [first, second] {
                ends("a party", task).await.unwrap().unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn arrival_costs_two_commands_and_the_last_one_costs_one() {
    barriers(async |bed| {
        let client = bed.still_client().await;
        client.barrier("warm", 1).wait().await.unwrap();
        sent(bed).await;
        assert!(client.barrier("warm", 1).wait().await.unwrap().is_leader());
        assert_eq!(sent(bed).await.get("evalsha").copied(), Some(1));
    })
    .await;
}

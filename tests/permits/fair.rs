//! Fair permits: order across clients, and clean-up after a request that gives up or dies.

use std::sync::Arc;

use distlock::{Acquire, Client, Permits};
use parking_lot::Mutex;
use tokio::runtime;
use tokio::task::JoinHandle;

use crate::rig::{counts, is_busy, permits, take, waits, with};
use bed::cost::{only, sent};
use bed::harm::cut_at;
use bed::{becomes, ends, eventually, idle, ms, secs, with_longer_waits};

/// Number of requests in the line of the fair permits `gate`.
async fn line(client: &Client) -> usize {
    client.fair("distlock_line:{gate}").queue_len().await.unwrap()
}

fn fair(client: &Client) -> Permits {
    client.permits("gate").fair()
}

/// Waits until a request holds the fair lock.
async fn fair_lock_is_taken(admin: &Client) {
    let is_taken = async || admin.fair("distlock_line:{gate}").is_locked().await.unwrap();
    becomes("the fair lock is taken", true, is_taken).await;
}

/// Starts a request. Returns when it waits in the line, behind `ahead` others.
async fn joins(gate: &Permits, n: u32, admin: &Client, ahead: usize) -> JoinHandle<distlock::PermitGuard> {
    let task = waits(gate, n);
    becomes("requests in the line", ahead + 1, async || line(admin).await).await;
    task
}

/// Starts a request. Returns when it holds the fair lock and waits for permits.
async fn leads(gate: &Permits, n: u32, client: &Client, admin: &Client) -> JoinHandle<distlock::PermitGuard> {
    let task = waits(gate, n);
    let state = async || {
        let held = admin.fair("distlock_line:{gate}").state().await.unwrap().is_locked();
        (held, line(admin).await, client.stats().waiting)
    };
    becomes("the front of the line", (true, 0, 1), state).await;
    task
}

#[tokio::test]
async fn requests_of_several_clients_are_served_in_order_of_arrival() {
    permits(async |bed| {
        let holder = bed.client().await;
        let there = with(&holder, "gate", 1).await;
        let held = take(&there, 1).await;
        let clients = [bed.client().await, bed.client().await, bed.client().await];
        let (order, mut tasks) = (Arc::<Mutex<Vec<usize>>>::default(), Vec::new());
        for n in 0..15 {
            let (gate, order) = (fair(&clients[n % 3]), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let guard = gate.acquire(1).await.unwrap();
                order.lock().push(n);
                guard.release().await.unwrap();
            }));
            // Request 0 holds the fair lock, so n requests are queued.
            becomes("requests in the line", n, async || line(&holder).await).await;
            if n == 0 {
                becomes("waiting tasks", 1, async || clients[0].stats().waiting).await;
            }
        }
        held.release().await.unwrap();
        for task in tasks {
            ends("a request", task).await.unwrap();
        }
        assert_eq!(*order.lock(), (0..15).collect::<Vec<_>>());
        assert_eq!(counts(&there).await, (1, 0));
    })
    .await;
}

/// At least one permit is free until the large request is served. A request without order can take it. A later fair
/// request cannot.
#[tokio::test]
async fn large_request_is_not_overtaken_by_later_fair_requests() {
    permits(async |bed| {
        let (admin, client, later) = (bed.client().await, bed.client().await, bed.client().await);
        let there = with(&admin, "gate", 3).await;
        let (first, second) = (take(&there, 1).await, take(&there, 1).await);
        let large = leads(&fair(&client), 3, &client, &admin).await;
        let small = joins(&fair(&later), 1, &admin, 0).await;
        assert!(is_busy(&fair(&admin), 1).await, "a request in the line was overtaken");
        take(&there, 1).await.release().await.unwrap();
        first.release().await.unwrap();
        assert!(is_busy(&fair(&admin), 1).await);
        assert!(!small.is_finished() && !large.is_finished());
        second.release().await.unwrap();
        let large = ends("the large request", large).await.unwrap();
        assert!(!small.is_finished());
        assert_eq!(counts(&there).await, (0, 3));
        large.release().await.unwrap();
        ends("the small request", small).await.unwrap().release().await.unwrap();
        assert_eq!(counts(&there).await, (3, 0));
    })
    .await;
}

/// A try does not hold the fair lock, so tries do not refuse each other.
#[tokio::test]
async fn tries_without_a_waiting_request_take_all_permits() {
    permits(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        with(&client, "gate", 6).await;
        let gates = [fair(&client), fair(&other)];
        let first = [take(&gates[0], 1).await, take(&gates[0], 1).await];
        let tries = futures::future::join_all((0..4).map(|n| take(&gates[n % 2], 1))).await;
        assert!(is_busy(&gates[0], 1).await);
        for guard in first.into_iter().chain(tries) {
            guard.release().await.unwrap();
        }
    })
    .await;
}

/// If a request used the scope's owner for the fair lock, the second request would re-enter it and overtake.
#[tokio::test]
async fn requests_of_one_owner_scope_wait_for_each_other() {
    permits(async |bed| {
        let (admin, client) = (bed.client().await, bed.client().await);
        let there = with(&admin, "gate", 2).await;
        let held = take(&there, 1).await;
        let (gate, owner) = (fair(&client), client.owner());
        let request = |n| {
            let (gate, owner) = (gate.clone(), owner.clone());
            tokio::spawn(async move { owner.scope(async { gate.acquire(n).await.unwrap() }).await })
        };
        let large = request(2);
        becomes("waiting tasks", 1, async || client.stats().waiting).await;
        fair_lock_is_taken(&client).await;
        let small = request(1);
        becomes("requests in the line", 1, async || line(&admin).await).await;
        assert_eq!(counts(&there).await, (1, 1), "the second request overtook the first");
        held.release().await.unwrap();
        ends("the large request", large).await.unwrap().release().await.unwrap();
        ends("the small request", small).await.unwrap().release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn next_request_continues_after_the_first_is_dropped() {
    permits(async |bed| {
        let (admin, client) = (bed.client().await, bed.client().await);
        let there = with(&admin, "gate", 2).await;
        let held = take(&there, 1).await;
        let front = leads(&fair(&client), 2, &client, &admin).await;
        let next = joins(&fair(&client), 1, &admin, 0).await;
        front.abort();
        ends("the next request", next).await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
        assert_eq!(counts(&there).await, (2, 0));
    })
    .await;
}

/// The wait of the first request must not end before the next one waits behind it.
#[tokio::test]
async fn next_request_continues_after_the_first_times_out() {
    permits(async |bed| {
        let (admin, client) = (bed.client().await, bed.client().await);
        let there = with(&admin, "gate", 2).await;
        let held = take(&there, 1).await;
        with_longer_waits(ms(500), async |wait| {
            let gate = fair(&client);
            let front = tokio::spawn({
                let gate = gate.clone();
                async move { gate.acquire_for(2, wait).await }
            });
            let is_taken = async || admin.fair("distlock_line:{gate}").is_locked().await.unwrap();
            eventually("the front", async || front.is_finished() || is_taken().await).await;
            let next = waits(&gate, 1);
            eventually("the line", async || front.is_finished() || line(&admin).await == 1).await;
            let has_waited = !front.is_finished() && !next.is_finished();
            let front = ends("the wait in front", front).await.unwrap();
            assert!(!matches!(front, Ok(Some(_))), "one permit is held: {front:?}");
            ends("the next request", next).await.unwrap().release().await.unwrap();
            (has_waited && matches!(front, Ok(None))).then_some(())
        })
        .await;
        held.release().await.unwrap();
        assert_eq!(counts(&there).await, (2, 0));
    })
    .await;
}

/// Drops the request at its first awaits: with free permits, first in the queue, and behind another request. Nothing is
/// left in Redis.
#[tokio::test]
async fn fair_request_dropped_at_its_first_awaits_leaves_nothing() {
    permits(async |bed| {
        let client = bed
            .connect(bed.builder().watchdog(secs(3600)).configure(|options| {
                options.subscription_linger = ms(0);
                options.poll_cap = ms(10);
            }))
            .await;
        let admin = bed.client().await;
        let there = with(&admin, "gate", 3).await;
        let nothing_left = async |free: (i64, u64), when: String| {
            idle(&client).await;
            becomes(&format!("{when}: free and held permits"), free, async || counts(&there).await).await;
            let keys = async || bed.admin.keys().await.into_iter().filter(|key| key.contains("line")).count();
            let left = async || (client.stats().names, keys().await, bed.admin.channels().await);
            becomes(&format!("{when}: names, keys and channels"), (0, 0, Vec::new()), left).await;
        };
        let mut at = 0;
        while cut_at(fair(&client).acquire_with(2, Acquire::new().lease(secs(3600))), at).await.is_none() {
            nothing_left((3, 0), format!("free permits, dropped at await {at}")).await;
            at += 1;
        }
        assert!(at > 1, "the request has no await point");
        nothing_left((3, 0), "held and dropped".to_owned()).await;
        let held = take(&there, 2).await;
        for at in 0..14 {
            assert!(cut_at(fair(&client).acquire(2), at).await.is_none());
            nothing_left((1, 2), format!("in front, dropped at await {at}")).await;
        }
        let other = bed.client().await;
        let front = leads(&fair(&other), 2, &other, &admin).await;
        for at in 0..10 {
            assert!(cut_at(fair(&client).acquire(1), at).await.is_none());
            idle(&client).await;
            becomes("requests in the line", 0, async || line(&admin).await).await;
        }
        held.release().await.unwrap();
        ends("the request in front", front).await.unwrap().release().await.unwrap();
    })
    .await;
}

/// The first client dies with its runtime and releases nothing. The next request continues when the lease of the fair
/// lock ends.
#[tokio::test]
async fn next_request_continues_when_the_client_in_front_has_died() {
    permits(async |bed| {
        let admin = bed.client().await;
        let there = with(&admin, "gate", 2).await;
        let held = take(&there, 1).await;
        let home = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = bed.quick_builder();
        home.spawn(async move {
            let client = options.connect().await.unwrap();
            client.permits("gate").fair().acquire(2).await
        });
        fair_lock_is_taken(&admin).await;
        let client = bed.connect(bed.quick_builder()).await;
        let next = joins(&fair(&client), 1, &admin, 0).await;
        home.shutdown_background();
        ends("the next request", next).await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
        assert_eq!(counts(&there).await, (2, 0));
    })
    .await;
}

#[tokio::test]
async fn fair_acquire_and_release_cost_four_commands_and_a_refused_try_one() {
    permits(async |bed| {
        let (admin, client) = (bed.still_client().await, bed.still_client().await);
        let there = with(&admin, "gate", 2).await;
        // The server learns the scripts.
        fair(&admin).acquire(1).await.unwrap().release().await.unwrap();
        idle(&admin).await;
        sent(bed).await;
        for _ in 0..5 {
            fair(&client).acquire(2).await.unwrap().release().await.unwrap();
            idle(&client).await;
        }
        assert_eq!(sent(bed).await, only(&[("evalsha", 20)]), "acquire and release");
        let held = take(&there, 2).await;
        let front = leads(&fair(&client), 1, &client, &admin).await;
        sent(bed).await;
        assert!(is_busy(&fair(&admin), 1).await);
        assert_eq!(sent(bed).await, only(&[("evalsha", 1)]), "a refused try");
        held.release().await.unwrap();
        ends("the request in front", front).await.unwrap().release().await.unwrap();
    })
    .await;
}

//! The same faults for the fair lock, whose waiters stand in a queue on the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, DistLock as _, Error, Flavour, Guard, Lost, Released};
use distlock_support::RedisServer;
use distlock_support::proxy::{Action, Matcher, Proxy};
use tokio::task::JoinHandle;

use bed::fault::brisk;
use bed::harm::in_every_way;
use bed::harm::runs;
use bed::pest::{Deed, Pest, contend_for};
use bed::{Bed, Counter, eventually, fair, idle, ms, secs};

const QUEUE: &str = "redisson_lock_queue:{a}";

async fn fair_on(server: RedisServer, body: impl AsyncFnOnce(&Bed)) {
    bed::run_on(server, |client, name| client.lock(Flavour::Fair, name), body).await;
}

/// The requests that run a script of the fair lock by its hash.
fn script(name: &str) -> Matcher {
    match name {
        "refresh" => runs(&["common/holds", "fair/queue", "fair/mend", "fair/refresh"]),
        _ => runs(&["common/holds", "fair/queue", &format!("fair/{name}")]),
    }
}

/// Has every script run once, so that the server knows it.
async fn warm(client: &Client) {
    let lock = client.fair("warm");
    let guard = lock.lock().await.unwrap();
    // Through a refresh, and given up.
    assert!(lock.lock_for(ms(2400)).await.unwrap().is_none());
    eventually("nothing is under way", async || client.stats().under_way == 0).await;
    guard.unlock().await.unwrap();
    idle(client).await;
}

async fn queue(bed: &Bed) -> Vec<String> {
    bed.admin.cmd(&["LRANGE", QUEUE, "0", "-1"]).await
}

async fn queued(bed: &Bed, count: usize) {
    eventually(&format!("{count} wait"), async || queue(bed).await.len() == count).await;
}

fn waiter(client: &Client) -> JoinHandle<(Guard, Instant)> {
    bed::waiter(client.fair("a"))
}

/// Clients that sleep for long if nobody wakes them.
async fn sleepers(bed: &Bed) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..4 {
        let builder = brisk(&bed.server.url()).watchdog(secs(30)).poll_cap(secs(30)).retry_attempts(100);
        clients.push(bed.connect(builder).await);
    }
    clients
}

/// Connections and scripts are lost all the time while 64 tasks of 4 clients wait: all are served, and never two at once.
async fn pests_lose_no_waiter((what, deeds): (&str, &'static [Deed])) {
    fair(async |bed| {
        let clients = sleepers(bed).await;
        let pest = Pest::start(bed, ms(50), deeds).await;
        let start = Instant::now();
        let waits = contend_for(Flavour::Fair, &clients, 64, 3, ms(4)).await;
        let (took, struck) = (start.elapsed(), pest.stop().await);
        println!("{what}: 192 locks in {took:?}, struck {struck} times; longest wait {:?}", waits.last().unwrap());
        assert!(struck > 5 && took < secs(60), "{what}: struck {struck} times, {took:?}");
    })
    .await;
}

bed::cases!(on two threads, pests_lose_no_waiter:
    of_messages = ("messages", &[Deed::Kill("pubsub")]),
    of_all_connections = ("all", &[Deed::Kill("normal"), Deed::Kill("pubsub")]),
    of_scripts = ("scripts", &[Deed::Flush]),
);

/// The connection for messages is closed in the very moment of waiting, and the release falls in the gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_passed_on_while_the_subscription_is_away_is_noticed() {
    fair(async |bed| {
        let (holder, waiting) = (bed.client().await, sleepers(bed).await.remove(0));
        for round in 0..5 {
            let guard = holder.fair("a").lock().await.unwrap();
            let next = waiter(&waiting);
            queued(bed, 1).await;
            eventually("it listens", async || !bed.admin.channels().await.is_empty()).await;
            assert!(bed.admin.client_kill_type("pubsub").await >= 1);
            guard.unlock().await.unwrap();
            let released = Instant::now();
            let (guard, granted) = next.await.unwrap();
            let late = granted.saturating_duration_since(released);
            println!("round {round}: granted {late:?} after the release");
            assert!(late < ms(1500), "{late:?}");
            guard.unlock().await.unwrap();
        }
    })
    .await;
}

/// `kill -9` and a restart with the data: the queue is as it was, and all are served in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_survives_a_restart_with_data() {
    let durable = RedisServer::builder().aof(true).arg("--appendfsync", "always").start();
    fair_on(durable, async |bed| {
        let clients = sleepers(bed).await;
        let guard = clients[0].fair("a").lock().await.unwrap();
        let mut line = Vec::new();
        for n in 0..8 {
            line.push(waiter(&clients[1 + n % 3]));
            queued(bed, n + 1).await;
        }
        let places = queue(bed).await;
        for _ in 0..3 {
            tokio::task::block_in_place(|| bed.server.restart());
            // Through a refresh of everybody.
            tokio::time::sleep(ms(1200)).await;
            assert_eq!(queue(bed).await, places);
        }
        let mut guard = guard;
        for next in line {
            guard.unlock().await.unwrap();
            guard = next.await.unwrap().0;
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A restart without the data: the holder hears of the loss; whoever waits takes a new place, and all are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_lost_in_a_restart_is_taken_up_anew() {
    fair(async |bed| {
        let clients = sleepers(bed).await;
        for _ in 0..3 {
            let guard = clients[0].fair("a").lock().await.unwrap();
            let counter = Arc::new(Counter::default());
            let waiting: Vec<_> = (0..8)
                .map(|n| {
                    let (lock, counter) = (clients[1 + n % 3].fair("a"), Arc::clone(&counter));
                    tokio::spawn(async move {
                        let guard = lock.lock().await.unwrap();
                        counter.bump(ms(1)).await;
                        guard.unlock().await.unwrap();
                    })
                })
                .collect();
            queued(bed, 8).await;
            tokio::task::block_in_place(|| bed.server.restart());
            let restarted = Instant::now();
            let lost = tokio::time::timeout(secs(3), guard.lost()).await.expect("far before the lease ends");
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            for waiting in waiting {
                tokio::time::timeout(secs(20), waiting).await.expect("served").unwrap();
            }
            println!("all served {:?} after the restart", restarted.elapsed());
            assert!(restarted.elapsed() < secs(5) && counter.get() == 8, "{:?}", restarted.elapsed());
        }
    })
    .await;
}

/// A server that is frozen for less than a place lasts, and for longer: nobody loses its place, as nobody was there to
/// take it, or takes another one; all are served.
async fn a_frozen_server_loses_no_waiter(freeze: Duration) {
    fair(async |bed| {
        let clients = sleepers(bed).await;
        let guard = clients[0].fair("a").lock().await.unwrap();
        let waiting: Vec<_> = (0..6)
            .map(|n| {
                let lock = clients[1 + n % 3].fair("a");
                tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
            })
            .collect();
        queued(bed, 6).await;
        bed.server.stop();
        tokio::time::sleep(freeze).await;
        bed.server.cont();
        let start = Instant::now();
        // Right into the first moments of those who come back.
        let answers = async || match clients[0].fair("a").queue().await {
            Ok(_) => true,
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                false
            }
        };
        eventually("it answers", answers).await;
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        for waiting in waiting {
            tokio::time::timeout(secs(20), waiting).await.expect("served").unwrap();
        }
        println!("frozen for {freeze:?}: all served {:?} later", start.elapsed());
        assert!(start.elapsed() < secs(6), "{:?}", start.elapsed());
        idle(&clients[1]).await;
        assert_eq!(bed.admin.keys().await, Vec::<String>::new());
    })
    .await;
}

bed::cases!(on two threads, a_frozen_server_loses_no_waiter:
    for_less_than_a_place_lasts = secs(2),
    for_longer = secs(6),
);

/// What is hit, and which of its kind.
const TARGETS: [(&str, usize); 5] = [("acquire", 1), ("acquire", 2), ("refresh", 1), ("release", 1), ("leave", 1)];

/// A waiter whose command is lost, repeated, delayed or cut off: it is served once, or gone once it gave up, and whoever
/// stands behind it is served as well.
async fn hit(bed: &Bed, action: Action, (name, nth): (&str, usize)) {
    let label = format!("{action:?} of {name} {nth}");
    let key = label.replace(['{', '}'], "");
    let proxy = Proxy::start(bed.server.addr());
    let builder = brisk(&proxy.url()).watchdog(secs(30)).coalesce(false).subscription_linger(ms(0));
    let (client, direct) = (bed.connect(builder).await, bed.connect(brisk(&bed.server.url()).watchdog(secs(30))).await);
    let queue = format!("redisson_lock_queue:{{{key}}}");
    let length = async || bed.admin.cmd::<usize>(&["LLEN", &queue]).await;
    let stand =
        async |count| eventually(&format!("{label}: {count} wait"), async || length().await == count).await;

    let guard = direct.fair(&key).lock().await.unwrap();
    let armed = proxy.on_request(script(name).containing(&key).nth(nth), action);
    let lock = client.fair(&key);
    let hit = tokio::spawn(async move { lock.lock().await });
    stand(1).await;
    let lock = direct.fair(&key);
    let behind = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    stand(2).await;
    match name {
        "leave" => {
            hit.abort();
            eventually(&format!("{label}: it has left"), async || length().await == 1).await;
            guard.unlock().await.unwrap();
        }
        _ => {
            if name == "refresh" || nth == 2 {
                tokio::time::timeout(secs(5), armed.fired()).await.unwrap_or_else(|_| panic!("{label}: never sent"));
            }
            guard.unlock().await.unwrap();
            let served = tokio::time::timeout(secs(8), hit).await.unwrap_or_else(|_| panic!("{label}: not served"));
            let guard = served.unwrap().unwrap_or_else(|error| panic!("{label}: {error:?}"));
            let holders = bed.admin.hgetall(&key).await;
            let mine = format!("{:?}", guard.owner());
            assert!(
                holders.len() == 1 && holders.iter().all(|(id, n)| mine.contains(id) && n == "1"),
                "{label}: {holders:?}"
            );
            if let Err(error) = guard.unlock().await {
                panic!("{label}: {error:?}");
            }
        }
    }
    tokio::time::timeout(secs(8), behind).await.unwrap_or_else(|_| panic!("{label}: held up")).unwrap();
    assert!(armed.has_fired(), "{label}: never sent");
    idle(&client).await;
    eventually(&format!("{label}: nothing is left"), async || {
        let keys = bed.admin.keys().await;
        !keys.iter().any(|left| left.contains(&key))
    })
    .await;
    for client in [client, direct] {
        client.shutdown(secs(5)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_a_waiter_lost_in_every_way_holds_nobody_up() {
    fair(async |bed| {
        warm(&bed.client().await).await;
        in_every_way(TARGETS, |action, target| hit(bed, action, target)).await;
    })
    .await;
}

/// A key beside the lock's own holds something else: whoever would queue up is told, and takes no place; whoever holds the lock
/// gives it back all the same, as does who forces it open.
#[tokio::test]
async fn a_key_of_another_type_beside_the_lock_is_told_and_keeps_nobody_from_giving_back() {
    const BESIDE: [&str; 3] = ["redisson_lock_queue:{x}", "redisson_lock_timeout:{x}", "redisson_lock_waiters:{x}:x"];
    fair(async |bed| {
        let client = bed.client().await;
        let lock = client.fair("x");
        for key in BESIDE {
            for forced in [false, true] {
                let guard = lock.lock().await.unwrap();
                let () = bed.admin.cmd(&["SET", key, "something"]).await;
                let refused = lock.lock_for(secs(5)).await;
                assert!(matches!(refused, Err(Error::WrongType { .. })), "{key}: {refused:?}");
                eventually("its clean-up", async || client.stats().under_way == 0).await;
                let mut keys = bed.admin.keys().await;
                keys.sort();
                assert_eq!(keys, [key, "x"], "a place is left");
                if forced {
                    assert!(lock.force_unlock().await.unwrap(), "{key}");
                    drop(guard);
                } else {
                    assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{key}");
                }
                eventually("what follows", async || client.stats().under_way == 0).await;
                assert_eq!(bed.admin.keys().await, [key], "{forced}");
                let () = bed.admin.cmd(&["DEL", key]).await;
            }
        }
    })
    .await;
}

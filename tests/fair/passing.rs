//! Passing on: a release makes the head of the queue the owner.

use std::time::{Duration, Instant};

use distlock::{Client, DistLock as _};
use distlock_support::proxy::{Mode, Proxy};

use crate::monitor::client_of;
use crate::peer::{HISTORY, Peer, history};
use crate::rig::{channel, holders, keys_gone, queue, queued, waiter};
use bed::events::Events;
use bed::lag::Lag;
use bed::{Bed, Counter, eventually, fair, ms, secs};

/// Right after the release the head is the owner, for a first lease; it is told so by one message, and makes it last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_makes_the_head_the_owner() {
    fair(async |bed| {
        let (holder, waiting) = (bed.client().await, bed.client().await);
        let guard = holder.fair("a").lock().await.unwrap();
        let (first, second) = (waiter(&waiting, "a"), {
            queued(bed, "a", 1).await;
            waiter(&waiting, "a")
        });
        queued(bed, "a", 2).await;
        let places = queue(bed, "a").await;
        let on = channel("a", &places[0]);
        eventually("it listens", async || bed.admin.numsub(&on).await == 1).await;
        let events = Events::subscribe(&bed.server, &[&on, &channel("a", &places[1])]).await;
        guard.unlock().await.unwrap();
        let (now, ttl) = (holders(bed, "a").await, bed.admin.pttl("a").await);
        assert_eq!(now, [(places[0].clone(), "1".to_owned())].into());
        assert!(ttl > 3000 && ttl <= 4500, "{ttl}");
        assert_eq!(queue(bed, "a").await, places[1..]);
        let (guard, _) = first.await.unwrap();
        assert!(guard.is_held() && guard.remaining() <= ms(4500), "{:?}", guard.remaining());
        // For as long as it is passed on: what is left of the time for which it may be silent, 4.5 s at the most.
        let told = async || (3000..=4500).map(|ms| events.count_of(&on, &format!("{ms} "))).sum::<usize>() == 1;
        eventually("it was told", told).await;
        let long = eventually("it lasts", async || bed.admin.pttl("a").await > 20_000).await;
        println!("renewed {long:?} after it was passed on");
        eventually("the guard knows", async || guard.remaining() > secs(20)).await;
        assert_eq!(events.count(&channel("a", &places[1]), "0"), 0, "the one behind it sleeps");
        guard.unlock().await.unwrap();
        second.await.unwrap().0.unlock().await.unwrap();
    })
    .await;
}

/// Steady contention: an acquire and a release are a command each, and there is no subscribing.
async fn steady(bed: &Bed, clients: &[Client]) {
    const TASKS: usize = 8;
    const ROUNDS: usize = 50;
    for client in clients {
        client.fair("warm").lock().await.unwrap().unlock().await.unwrap();
    }
    let counter = std::sync::Arc::new(Counter::default());
    bed.admin.reset_stats().await;
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS * clients.len())
        .map(|n| {
            let (lock, counter) = (clients[n % clients.len()].fair("hot"), counter.clone());
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    counter.bump(Duration::ZERO).await;
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let took = start.elapsed();
    let stats = bed.admin.commandstats().await;
    let calls = |name: &str| stats.get(name).copied().unwrap_or(0);
    let all = TASKS * clients.len() * ROUNDS;
    let commands = (calls("evalsha") + calls("eval")) as f64 / all as f64;
    println!(
        "{} clients: {commands:.2} commands an acquire, {} subscribe, {} unsubscribe, {} ping, {all} in {took:?}",
        clients.len(),
        calls("subscribe"),
        calls("unsubscribe"),
        calls("ping")
    );
    assert_eq!(counter.get() as usize, all);
    assert!(commands <= 2.2, "{commands}");
    // Who was served before it listened takes another owner, and another subscription.
    let waiters = 2 * (TASKS * clients.len()) as u64;
    assert!(calls("subscribe") <= waiters && calls("unsubscribe") <= waiters, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steady_contention_is_two_commands_an_acquire() {
    fair(async |bed| {
        let clients = [bed.client().await];
        steady(bed, &clients).await;
        let clients = [bed.client().await, bed.client().await];
        steady(bed, &clients).await;
    })
    .await;
}

/// The same from two processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steady_contention_of_two_processes_is_two_commands_an_acquire() {
    fair(async |bed| {
        let mut peers = Peer::several(bed, 2, &[]).await;
        for peer in &mut peers {
            // The scripts are known from here on.
            peer.contend("warm", 2, 2, 0);
            peer.child.expect("done").await;
        }
        bed.admin.reset_stats().await;
        for peer in &mut peers {
            peer.contend("hot", 8, 50, 0);
        }
        for peer in &mut peers {
            peer.child.expect("done").await;
        }
        let stats = bed.admin.commandstats().await;
        let calls = |name: &str| stats.get(name).copied().unwrap_or(0);
        let commands = (calls("evalsha") + calls("eval")) as f64 / 800.0;
        println!("2 processes: {commands:.2} commands an acquire, {} subscribe", calls("subscribe"));
        assert!(commands <= 2.2, "{commands}");
        assert!(calls("subscribe") <= 32 && calls("unsubscribe") <= 32, "{stats:?}");
        for peer in peers {
            peer.close().await;
        }
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
    })
    .await;
}

/// Passed on to a process that has just been frozen: the next is served when the first lease ends; the frozen one, when
/// it goes on, does not take the lock that it was passed for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_head_loses_what_it_was_passed() {
    fair(async |bed| {
        let client = bed.client().await;
        let mut peer = Peer::start(bed, &[]).await;
        let guard = client.fair("a").lock().await.unwrap();
        peer.wait("a", 1);
        queued(bed, "a", 1).await;
        let behind = waiter(&client, "a");
        queued(bed, "a", 2).await;
        let places = queue(bed, "a").await;
        let listens = async || bed.admin.numsub(&channel("a", &places[0])).await == 1;
        eventually("the peer listens", listens).await;
        peer.child.stop();
        let lag = Lag::start();
        guard.unlock().await.unwrap();
        let released = Instant::now();
        assert!(holders(bed, "a").await.contains_key(&places[0]), "it was passed on to the frozen one");
        let (guard, granted) = behind.await.unwrap();
        let cost = granted.saturating_duration_since(released);
        println!("the next was served {cost:?} after the release");
        assert!(cost <= lag.allow(secs(5)), "{cost:?}");
        let _: u64 = bed.admin.cmd(&["RPUSH", HISTORY, "+me"]).await;
        peer.child.cont();
        let back = eventually("it queues up again", async || {
            queue(bed, "a").await.first().is_some_and(|owner| client_of(owner) == peer.id)
        })
        .await;
        println!("the frozen one stands in the queue again {back:?} after it went on");
        // Long enough to hear all that was said meanwhile, and to be refreshed.
        tokio::time::sleep(ms(1500)).await;
        assert!(guard.is_held() && holders(bed, "a").await.keys().all(|owner| client_of(owner) == client.id()));
        let _: u64 = bed.admin.cmd(&["RPUSH", HISTORY, "-me"]).await;
        guard.unlock().await.unwrap();
        peer.child.expect("+ a").await;
        peer.child.expect("- a").await;
        peer.close().await;
        assert_eq!(history(bed, &[]).await.len(), 2, "nobody came while somebody was inside");
        let _: u64 = bed.admin.cmd(&["DEL", HISTORY]).await;
        keys_gone(bed, secs(5)).await;
    })
    .await;
}

/// All that the waiter is sent comes late, beyond the first lease: it is not taken for the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_after_the_first_lease_is_not_the_lock() {
    fair(async |bed| {
        for only_replies in [false, true] {
            let proxy = Proxy::start(bed.server.addr());
            let direct = bed.connect(bed.builder().fair_wait(secs(2))).await;
            let late = bed.connect(Client::builder(&proxy.url()).fair_wait(secs(2))).await;
            let guard = direct.fair("a").lock().await.unwrap();
            let first = waiter(&late, "a");
            queued(bed, "a", 1).await;
            let behind = waiter(&direct, "a");
            queued(bed, "a", 2).await;
            let places = queue(bed, "a").await;
            let listens = async || bed.admin.numsub(&channel("a", &places[0])).await == 1;
            eventually("it listens", listens).await;
            if only_replies {
                proxy.set_downstream_mode(Mode::Hang);
            } else {
                proxy.blackhole(true);
            }
            guard.unlock().await.unwrap();
            let released = Instant::now();
            assert!(holders(bed, "a").await.contains_key(&places[0]), "it was passed on");
            let (guard, granted) = behind.await.unwrap();
            println!("the next was served {:?} after the release", granted.saturating_duration_since(released));
            proxy.heal();
            let again = async || queue(bed, "a").await.iter().any(|owner| client_of(owner) == late.id());
            eventually("it stands in the queue again", again).await;
            tokio::time::sleep(ms(500)).await;
            assert!(!first.is_finished(), "it has taken an old message for the lock");
            assert!(guard.is_held() && direct.fair("a").is_locked().await.unwrap());
            guard.unlock().await.unwrap();
            first.await.unwrap().0.unlock().await.unwrap();
            for client in [&direct, &late] {
                bed::idle(client).await;
                client.shutdown(secs(5)).await.unwrap();
            }
            keys_gone(bed, secs(5)).await;
        }
    })
    .await;
}

/// No message comes at all: the refresh a second finds out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_message_costs_a_second() {
    fair(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let (holder, waiting) = (bed.client().await, bed.connect(Client::builder(&proxy.url())).await);
        proxy.set_downstream_mode(Mode::DropMessages);
        for _ in 0..3 {
            let guard = holder.fair("a").lock().await.unwrap();
            let first = waiter(&waiting, "a");
            queued(bed, "a", 1).await;
            let places = queue(bed, "a").await;
            eventually("it listens", async || bed.admin.numsub(&channel("a", &places[0])).await == 1).await;
            guard.unlock().await.unwrap();
            let released = Instant::now();
            let (guard, granted) = first.await.unwrap();
            let cost = granted.saturating_duration_since(released);
            println!("found out after {cost:?}");
            assert!(cost < ms(1500), "{cost:?}");
            guard.unlock().await.unwrap();
        }
        proxy.heal();
    })
    .await;
}

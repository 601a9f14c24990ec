//! What acknowledgement costs, by the server's own counts and by the clock.

use std::time::{Duration, Instant};

use bed::median;
use distlock::{Acks, Client, DistLock as _, Flavour};
use distlock_support::{Mode, Replicas, ReplicasOptions, must, undisturbed};
use futures::future::join_all;

use crate::{FLAVOURS, TURN, client, end, in_step, ms, over, secs, servers};

#[tokio::test]
async fn one_wait_a_group_and_none_for_releases_and_queries() {
    let servers = servers(1).await;
    let admin = servers.node(0).admin();
    let strict = client(&servers, Acks::AtLeast(1)).await;
    for flavour in FLAVOURS {
        strict.lock(flavour, "warm").lock().await.unwrap().unlock().await.unwrap();
    }
    for flavour in FLAVOURS {
        let lock = strict.lock(flavour, "one");
        admin.reset_stats().await;
        let guard = lock.lock().await.unwrap();
        assert_eq!(admin.calls("wait").await, 1, "{flavour}: acquired");
        lock.state().await.unwrap();
        guard.unlock().await.unwrap();
        assert_eq!(admin.calls("wait").await, 1, "{flavour}: released");
    }
    // A renewal of a hundred locks is one command, and has one.
    let locks: Vec<_> = (0..100).map(|n| strict.reentrant(&format!("many:{n}"))).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    strict.renew_now().await;
    admin.reset_stats().await;
    assert_eq!(strict.renew_now().await.renewed, 100);
    assert_eq!(admin.calls("wait").await, 1);
    drop(guards);
    end(strict).await;
    for acks in [Acks::Off, Acks::Redisson] {
        // Redisson's rule asks nobody where there is but one server.
        let off = client(&servers, acks).await;
        admin.reset_stats().await;
        for flavour in FLAVOURS {
            off.lock(flavour, "none").lock().await.unwrap().unlock().await.unwrap();
        }
        assert_eq!(admin.calls("wait").await, 0, "{acks:?}");
        end(off).await;
    }
}

/// So many tasks, each with a lock of its own, so many turns each. How long that took.
async fn turns(client: &Client, tasks: usize, each: usize) -> Duration {
    let began = Instant::now();
    let all = (0..tasks).map(|task| {
        let lock = client.reentrant(&format!("turn:{task}"));
        tokio::spawn(async move {
            for _ in 0..each {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        })
    });
    for task in join_all(all).await {
        task.unwrap();
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_share_groups_and_are_half_as_fast_at_the_least() {
    const TASKS: usize = 64;
    const EACH: usize = 100;
    let _turn = TURN.lock().await;
    undisturbed(async || {
        let servers = servers(1).await;
        let admin = servers.node(0).admin();
        let (off, strict) = (client(&servers, Acks::Off).await, client(&servers, Acks::AtLeast(1)).await);
        turns(&off, TASKS, 10).await;
        turns(&strict, TASKS, 10).await;
        let (mut without, mut with) = (Vec::new(), Vec::new());
        let mut groups = 0;
        for _ in 0..5 {
            without.push(turns(&off, TASKS, EACH).await);
            admin.reset_stats().await;
            with.push(turns(&strict, TASKS, EACH).await);
            groups += admin.calls("wait").await;
        }
        let acquires = u64::try_from(5 * TASKS * EACH).unwrap();
        let (without, with) = (median(without), median(with));
        println!(
            "64 tasks: {acquires} acquires in {groups} groups; {without:?} without acknowledgement, {with:?} with"
        );
        must(groups * 3 < acquires, &format!("{groups} WAITs for {acquires} acquires"));
        must(with < without * 2, &format!("{with:?} with acknowledgement, {without:?} without"));
        end(off).await;
        end(strict).await;
    })
    .await;
}

/// The way to the replica is long, so that it is that which is measured.
#[tokio::test]
async fn a_single_acquire_is_one_trip_to_the_replica() {
    let _turn = TURN.lock().await;
    undisturbed(async || {
        let servers = Replicas::start(ReplicasOptions::default().replicas(1).proxies(true)).await;
        in_step(&servers).await;
        let strict = over(servers.node(0).admin_url(), Acks::AtLeast(1)).ack_timeout(secs(2)).connect().await.unwrap();
        // The replica comes to its primary by way of that one's proxy.
        servers.node(0).proxy().set_upstream_mode(Mode::Delay(ms(5)));
        servers.node(0).proxy().set_downstream_mode(Mode::Delay(ms(5)));
        let admin = servers.node(0).admin();
        let (mut trips, mut acquires) = (Vec::new(), Vec::new());
        for n in 0..40 {
            admin.cmd::<()>(&["SET", "trip", "1", "PX", "100"]).await;
            let began = Instant::now();
            assert_eq!(admin.cmd::<u64>(&["WAIT", "1", "2000"]).await, 1);
            trips.push(began.elapsed());
            let lock = strict.lock(FLAVOURS[n % FLAVOURS.len()], "single");
            let began = Instant::now();
            let guard = lock.lock().await.unwrap();
            acquires.push(began.elapsed());
            guard.unlock().await.unwrap();
        }
        let (trip, acquire) = (median(trips), median(acquires));
        println!("one trip to the replica {trip:?}, one acquire {acquire:?}");
        must(acquire < trip.mul_f64(1.3), &format!("{acquire:?} for an acquire, {trip:?} for a trip"));
        end(strict).await;
    })
    .await;
}

/// What is not acknowledged is not the slower for those that are.
#[tokio::test]
async fn others_wait_for_no_replica() {
    let servers = servers(1).await;
    let strict = over(servers.node(0).admin_url(), Acks::AtLeast(1)).ack_timeout(secs(8)).connect().await.unwrap();
    let guard = strict.reentrant("mine").lock().await.unwrap();
    servers.node(1).stop();
    let lock = strict.lock(Flavour::Reentrant, "theirs");
    let waiting = tokio::spawn(async move { lock.lock().await });
    bed::eventually("a WAIT is under way", async || {
        let clients: String = servers.node(0).admin().cmd(&["INFO", "clients"]).await;
        clients.contains("blocked_clients:1\r")
    })
    .await;
    let began = Instant::now();
    for _ in 0..100 {
        strict.reentrant("mine").state().await.unwrap();
    }
    guard.unlock().await.unwrap();
    must(began.elapsed() < secs(4), "none of them waited");
    servers.node(1).cont();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
    end(strict).await;
}

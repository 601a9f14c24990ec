//! Commands and replies that are lost, repeated or late, connections that are cut, and servers that freeze or restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock::{Acquire, Builder, Client, Error, Lost, PermitGuard, Permits};
use distlock_support::Numbers;
use distlock_support::proxy::{Action, Matcher, Proxy};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::rig::{counts, is_busy, permits, take, waits, with};
use bed::fault::brisk;
use bed::harm::{ACTIONS, cut, runs};
use bed::scripts::files;
use bed::{becomes, ends, idle, ms, secs};

/// A client that notices faults early, and retries for as long as a test waits. No lease ends during a test.
fn stubborn(url: &str) -> Builder {
    brisk(url).watchdog(secs(600)).retry_attempts(1_000)
}

/// Checks that all three permits can be taken at once, and no fourth.
async fn exactly_three_are_free(label: &str, gate: &Permits) {
    becomes(&format!("{label}: free and held permits"), (3, 0), async || counts(gate).await).await;
    let all = ends("a request for all permits", gate.acquire(3)).await.unwrap();
    assert!(is_busy(gate, 1).await, "{label}: more permits than there are");
    all.release().await.unwrap();
    assert_eq!(counts(gate).await, (3, 0), "{label}");
}

/// A client that meets faults, and the same permits through a client that meets none.
struct Scene {
    label: String,
    proxy: Arc<Proxy>,
    client: Client,
    gate: Permits,
    there: Permits,
}

/// Runs `body` for every action at once, each with three permits of its own.
async fn in_every_way(body: impl AsyncFn(Action, Scene)) {
    permits(async |bed| {
        let (direct, mut running) = (bed.client().await, Vec::new());
        for action in ACTIONS {
            let proxy = bed.proxy();
            let client = bed.connect(stubborn(&proxy.url())).await;
            let label = format!("{action:?}").replace(['(', ')'], " ");
            let (gate, there) = (client.permits(&label), with(&direct, &label, 3).await);
            // The server learns the scripts.
            take(&gate, 1).await.release().await.unwrap();
            running.push(body(action, Scene { label, proxy, client, gate, there }));
        }
        join_all(running).await;
    })
    .await;
}

/// A request that waits is retried until its outcome is known. A single attempt may fail, and is undone then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_with_command_fault_takes_its_permits_once_or_not_at_all() {
    in_every_way(async |action, Scene { label, proxy, client, gate, there }| {
        for round in 0..4 {
            let what = format!("{label}, round {round}");
            let armed = proxy.on_request(runs(&files("permits/acquire")).containing(&label), action);
            if round % 2 == 0 {
                let guard = gate.acquire(2).await.unwrap_or_else(|error| panic!("{what}: acquire: {error:?}"));
                assert_eq!((guard.is_held(), counts(&there).await), (true, (1, 2)), "{what}");
                guard.release().await.unwrap_or_else(|error| panic!("{what}: release: {error:?}"));
            } else {
                match gate.try_acquire(2).await {
                    Ok(guard) => drop(guard.unwrap_or_else(|| panic!("{what}: busy, with nobody there"))),
                    Err(error) => assert!(error.is_retryable(), "{what}: {error:?}"),
                }
            }
            ends(&format!("{what}: the command is sent"), armed.fired()).await;
            idle(&client).await;
            exactly_three_are_free(&what, &there).await;
        }
    })
    .await;
}

/// Another client holds the third permit, so a release that counts twice shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_with_command_fault_returns_its_permits_once() {
    in_every_way(async |action, Scene { label, proxy, client, gate, there }| {
        for by_hand in [true, false] {
            let what = format!("{label}, by hand: {by_hand}");
            let kept = take(&there, 1).await;
            let guard = gate.acquire(2).await.unwrap_or_else(|error| panic!("{what}: acquire: {error:?}"));
            let armed = proxy.on_request(runs(&files("permits/release")).containing(&label), action);
            if by_hand {
                guard.release().await.unwrap_or_else(|error| panic!("{what}: release: {error:?}"));
            } else {
                drop(guard);
            }
            ends(&format!("{what}: the command is sent"), armed.fired()).await;
            idle(&client).await;
            becomes(&format!("{what}: free and held permits"), (2, 1), async || counts(&there).await).await;
            kept.release().await.unwrap();
            exactly_three_are_free(&what, &there).await;
        }
    })
    .await;
}

#[tokio::test]
async fn acquires_at_a_frozen_server_that_were_dropped_or_failed_hold_nothing_later() {
    permits(async |bed| {
        let (client, other) = (bed.connect(stubborn(&bed.server.url())).await, bed.client().await);
        let (gate, there) = (client.permits("gate"), with(&other, "gate", 3).await);
        take(&gate, 1).await.release().await.unwrap();
        for round in 0..3 {
            bed.server.stop();
            assert!(cut(gate.acquire(2), 3, Duration::ZERO).await.is_none(), "nobody answers");
            assert!(client.stats().under_way > 0, "no command was in flight");
            // In the second round, the server goes on before the command times out.
            if round != 1 {
                let error = gate.try_acquire(1).await.expect_err("nobody answers");
                assert!(error.outcome_unknown(), "{error:?}");
            }
            bed.server.cont();
            idle(&client).await;
            exactly_three_are_free(&format!("round {round}"), &there).await;
        }
    })
    .await;
}

/// The regular renewal comes after 100 s, so the reconnect causes the one that finds the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_lost_in_a_restart_without_data_and_waiters_get_new_ones() {
    permits(async |bed| {
        let retries =
            || bed.builder().retry_attempts(1_000).configure(|options| options.retry_delay = (ms(20), ms(100)));
        let connect = async || {
            bed.connect(retries().watchdog(secs(300)).configure(|options| options.poll_cap = secs(3600))).await
        };
        let (client, other) = (connect().await, connect().await);
        let gate = with(&client, "gate", 3).await;
        let guard = take(&gate, 2).await;
        let leased = gate.acquire_with(1, Acquire::new().lease(secs(600))).await.unwrap().unwrap();
        let next = waits(&other.permits("gate"), 2);
        becomes("waiting tasks", 1, async || other.stats().waiting).await;
        tokio::task::block_in_place(|| bed.server.restart());
        for held in [guard, leased] {
            let lost = ends("the signal of the loss", held.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(!held.is_held());
            let released = held.release().await;
            assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
        }
        // The number of permits is lost, too.
        assert!(gate.try_set_permits(3).await.unwrap());
        let next = ends("the waiter", next).await.unwrap();
        assert_eq!((next.count(), counts(&gate).await), (2, (1, 2)));
        next.release().await.unwrap();
    })
    .await;
}

/// The guards that tasks hold now, and the most permits that were held at once.
#[derive(Default)]
struct Inside {
    guards: Vec<Arc<PermitGuard>>,
    most: u32,
}

impl Inside {
    fn enter(&mut self, guard: PermitGuard) -> Arc<PermitGuard> {
        let guard = Arc::new(guard);
        self.guards.push(Arc::clone(&guard));
        let held: u32 = self.guards.iter().filter(|guard| guard.is_held()).map(|guard| guard.count()).sum();
        assert!(held <= 3, "{held} of 3 permits are held: {:?}", self.guards);
        self.most = self.most.max(held);
        guard
    }

    fn leave(&mut self, guard: Arc<PermitGuard>) -> PermitGuard {
        self.guards.retain(|other| !Arc::ptr_eq(other, &guard));
        Arc::into_inner(guard).expect("nobody else has this guard")
    }
}

const CUTS: u32 = 60;

/// Takes permits and gives them back, until there were enough cuts.
async fn work(gate: Permits, inside: Arc<Mutex<Inside>>, cuts: Arc<AtomicU32>, mut numbers: Numbers) {
    let mut rounds = 0;
    while rounds < 5 || cuts.load(Ordering::Relaxed) < CUTS {
        let n = 1 + numbers.below(3) as u32;
        let guard = gate.acquire(n).await.unwrap_or_else(|error| panic!("acquire: {error:?}"));
        let guard = inside.lock().enter(guard);
        tokio::time::sleep(numbers.between(0, 3)).await;
        let guard = inside.lock().leave(guard);
        if numbers.once_in(2) {
            drop(guard);
        } else if let Err(error) = guard.release().await {
            assert!(matches!(error, Error::ReleasePending { .. }), "release: {error:?}");
        }
        rounds += 1;
    }
}

fn harm(proxy: &Proxy, numbers: &mut Numbers) {
    match numbers.below(4) {
        0 => proxy.rst_all(),
        1 => proxy.close_all(),
        _ => {
            let nth = Matcher::command("EVALSHA").nth(1 + numbers.below(3) as usize);
            proxy.on_request(nth, numbers.of(&[Action::SwallowReplyClose, Action::CloseAfter, Action::Duplicate]));
        }
    }
}

/// Sixteen tasks of four clients take one to three of three permits, while connections are cut and replies are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_never_let_tasks_hold_more_permits_than_there_are() {
    permits(async |bed| {
        let direct = bed.client().await;
        let there = with(&direct, "gate", 3).await;
        let (inside, cuts) = (Arc::new(Mutex::new(Inside::default())), Arc::new(AtomicU32::new(0)));
        let (mut clients, mut proxies, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        for n in 0..4 {
            let proxy = bed.proxy();
            let client = bed.connect(stubborn(&proxy.url())).await;
            for task in 0..4 {
                let (inside, cuts) = (Arc::clone(&inside), Arc::clone(&cuts));
                tasks.spawn(work(client.permits("gate"), inside, cuts, Numbers::lane(n, task)));
            }
            clients.push(client);
            proxies.push(proxy);
        }
        let mut numbers = Numbers::new(7);
        while !tasks.is_empty() {
            harm(&proxies[numbers.below(4) as usize], &mut numbers);
            cuts.fetch_add(1, Ordering::Relaxed);
            tokio::select! {
                Some(done) = tasks.join_next() => done.unwrap(),
                () = tokio::time::sleep(numbers.between(10, 40)) => {}
            }
        }
        for (proxy, client) in proxies.iter().zip(&clients) {
            proxy.heal();
            idle(client).await;
        }
        exactly_three_are_free("after the cuts", &there).await;
        assert_eq!(inside.lock().most, 3, "the tasks have not competed for the permits");
    })
    .await;
}

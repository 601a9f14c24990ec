//! Dropped at any point it leaves nothing behind (C1, C2; lesson 2).

use std::time::{Duration, Instant};

use distlock::{Acquire, Client, DistLock, Error, Flavour, MultiLock, Step};
use distlock_support::Numbers;
use tokio::task::JoinHandle;

use crate::rig::{Second, member, multi, soon};
use bed::dropped::{at_each_await, only_left};
use bed::harm::cut;
use bed::{Bed, apart, eventually, idle, ms, reentrant, secs};

/// So short that subscriptions end and begin anew meanwhile.
const LINGER: Duration = ms(20);

/// So many acquires of these, dropped at random points.
async fn drops(lock: MultiLock, client: Client, seed: u64, count: u64) -> u64 {
    let mut numbers = Numbers::new(seed);
    let mut dropped = 0;
    while dropped < count {
        let how = match numbers.below(5) {
            0 => Acquire::new().wait(ms(numbers.below(3))),
            1 => Acquire::new().lease(secs(20)),
            2 => Acquire::new().owner(&client.owner()),
            3 => Acquire::new().owner(&client.owner()).lease(secs(20)),
            _ => Acquire::new(),
        };
        let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(4000)) };
        match cut(lock.acquire(how), numbers.below(8), pause).await {
            None => dropped += 1,
            Some(Ok(Some(guard))) => match numbers.below(3) {
                0 => drop(cut(guard.unlock(), numbers.below(4), Duration::ZERO).await),
                1 => drop(guard),
                _ => drop(guard.unlock().await.unwrap()),
            },
            // A wait of a few milliseconds may end while a command is under way: it is undone.
            Some(Ok(None) | Err(Error::Timeout { step: Step::Command })) => {}
            Some(Err(error)) => panic!("{error}"),
        }
    }
    dropped
}

async fn all_dropped(tasks: Vec<JoinHandle<u64>>) {
    let began = Instant::now();
    let mut dropped = 0;
    for task in tasks {
        dropped += task.await.unwrap();
    }
    println!("{dropped} dropped in {:?}", began.elapsed());
}

/// Two clients that soon hear no more of what they do not wait for.
async fn two(bed: &Bed) -> [Client; 2] {
    let builder = || bed.builder().subscription_linger(LINGER);
    [bed.connect(builder()).await, bed.connect(builder()).await]
}

async fn nothing_left(bed: &Bed, clients: &[Client]) {
    for client in clients {
        idle(client).await;
    }
    eventually("no key is left", async || bed.keys().await.is_empty()).await;
    eventually("no subscription is left", async || bed.admin.channels().await.is_empty()).await;
    for client in clients {
        eventually("no name leaves a trace", async || client.stats().names == 0).await;
    }
}

/// Plain ones that overlap, of two clients, with one that somebody holds from time to time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_ones_dropped_at_random_points() {
    reentrant(async |bed| {
        let clients = two(bed).await;
        let tasks: Vec<_> = (0..8_usize)
            .map(|n| {
                let client = &clients[n % 2];
                let lock = client.multi((0..4).map(|i| format!("c{}", (n + i * 3) % 8)));
                tokio::spawn(drops(lock, client.clone(), n as u64 + 1, 150))
            })
            .collect();
        all_dropped(tasks).await;
        nothing_left(bed, &clients).await;
        let all = clients[0].multi((0..8).map(|n| format!("c{n}")));
        all.try_lock().await.unwrap().expect("free").unlock().await.unwrap();
    })
    .await;
}

/// All flavours, on two servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_flavours_dropped_at_random_points() {
    reentrant(async |bed| {
        let clients = two(bed).await;
        let second = Second::with(|builder| builder.subscription_linger(LINGER)).await;
        let tasks: Vec<_> = (0..4_usize)
            .map(|n| {
                let client = &clients[n % 2];
                let mut locks: Vec<_> =
                    Flavour::ALL.iter().map(|flavour| client.lock(*flavour, flavour.as_str())).collect();
                locks.push(member(second.client.reentrant("there")));
                locks.push(member(multi(client, &[(Flavour::Reentrant, "inner"), (Flavour::Fair, "most")])));
                locks.rotate_left(n * 2);
                tokio::spawn(drops(MultiLock::of(locks), client.clone(), n as u64 + 100, 100))
            })
            .collect();
        all_dropped(tasks).await;
        nothing_left(bed, &clients).await;
        second.end().await;
    })
    .await;
}

/// One owner of several tasks, which come in, leave and are dropped at random beside one another, and beside strangers: the
/// count is right at every end, and nobody is given what another task gave back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_owner_of_several_tasks_dropped_at_random_points() {
    reentrant(async |bed| {
        let [client, other] = two(bed).await;
        let me = client.owner();
        let mut tasks = Vec::new();
        for n in 0..4_u64 {
            let (client, me) = (client.clone(), me.clone());
            tasks.push(tokio::spawn(async move {
                let mut numbers = Numbers::new(n + 300);
                let lock = client.multi(["a", "b", "c"]);
                for _ in 0..80 {
                    let how = Acquire::new().owner(&me).wait(ms(numbers.below(20)));
                    let pause = Duration::from_micros(numbers.below(6_000));
                    match cut(lock.acquire(how), 0, pause.max(Duration::from_micros(1))).await {
                        Some(Ok(Some(guard))) => {
                            assert!(guard.is_held());
                            let held = lock.hold_count(&me).await.unwrap();
                            assert!((1..=8).contains(&held), "{held} holds of four tasks");
                            if numbers.below(3) == 0 {
                                drop(guard);
                            } else {
                                guard.unlock().await.unwrap();
                            }
                        }
                        None | Some(Ok(None) | Err(Error::Timeout { step: Step::Command })) => {}
                        Some(Err(error)) => panic!("{error}"),
                    }
                }
            }));
        }
        tasks.push(tokio::spawn(async move {
            drops(other.multi(["b", "x"]), other.clone(), 400, 80).await;
        }));
        for task in tasks {
            task.await.unwrap();
        }
        nothing_left(bed, &[client]).await;
    })
    .await;
}

/// Waiters that are dropped hold nobody up: those behind them come in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_waiters_hold_nobody_up() {
    reentrant(async |bed| {
        let clients = two(bed).await;
        let tasks: Vec<_> = (0..16_usize)
            .map(|n| {
                let client = clients[n % 2].clone();
                let lock = client.multi(["a", "b", "c"]);
                tokio::spawn(async move {
                    drops(lock.clone(), client, n as u64 + 200, 10).await;
                    let guard = soon("the last one is seen through", secs(30), lock.lock()).await.unwrap();
                    assert!(guard.is_held());
                    guard.unlock().await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        nothing_left(bed, &clients).await;
    })
    .await;
}

/// Dropped at its first await, at its second, and so on; the same with the release. Its members are on primaries of their own, in a
/// cluster, and free, or somebody else has one of them.
#[tokio::test]
async fn dropped_at_each_await_it_leaves_nothing() {
    reentrant(async |bed| {
        let client = bed.connect(bed.builder().subscription_linger(LINGER)).await;
        let other = bed.client().await;
        let mut kinds: Vec<_> = Flavour::ALL.iter().map(|flavour| [*flavour; 3]).collect();
        kinds.push([Flavour::Reentrant, Flavour::Fair, Flavour::Write]);
        for kind in kinds {
            let names = apart("each");
            let members: Vec<_> = kind.into_iter().zip(names.iter().map(String::as_str)).collect();
            let lock = multi(&client, &members);
            for taken in [None, Some(0), Some(2)] {
                let mut theirs = Vec::new();
                if let Some(taken) = taken {
                    // Readers let each other in.
                    let flavour = if kind[taken] == Flavour::Read { Flavour::Write } else { kind[taken] };
                    theirs.push(other.lock(flavour, &names[taken]).lock().await.unwrap());
                }
                let keys = bed.keys().await;
                // What is left would outlast the test.
                let how = || Acquire::new().lease(secs(60)).wait(if taken.is_some() { ms(60) } else { secs(10) });
                let waits = at_each_await(
                    async || lock.acquire(how()).await,
                    async |when| {
                        only_left(bed, &client, &keys, &when).await;
                    },
                )
                .await;
                println!("{kind:?}, {taken:?} taken: {waits:?} awaits");
                for guard in theirs {
                    guard.unlock().await.unwrap();
                }
            }
            let free = multi(&other, &members).try_lock().await.unwrap();
            free.expect("free at once").unlock().await.unwrap();
        }
    })
    .await;
}

/// Dropped while it waits with members in its hands: they are free at once, not at the end of a lease.
#[tokio::test]
async fn dropped_while_it_holds_some() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let theirs = other.reentrant("b").lock().await.unwrap();
        let lock = multi(&client, &[(Flavour::Fair, "a"), (Flavour::Fair, "b"), (Flavour::Fair, "c")]);
        for _ in 0..5 {
            let waiter = tokio::spawn({
                let lock = lock.clone();
                async move { lock.lock().await.map(drop) }
            });
            eventually("it has a", async || bed.admin.exists("a").await).await;
            waiter.abort();
            eventually("a is free", async || !bed.admin.exists("a").await).await;
            idle(&client).await;
            let queued: u64 = bed.admin.cmd(&["LLEN", "redisson_lock_queue:{b}"]).await;
            assert_eq!(queued, 0);
        }
        theirs.unlock().await.unwrap();
    })
    .await;
}

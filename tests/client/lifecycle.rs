//! A client's life: connecting, shutting down, being dropped. The leak check at the end of each test finds leftover
//! keys, connections and tasks.

use std::time::Duration;

use bed::harm::cut_at;
use bed::wire::{Wire, arrives};
use bed::{Bed, PATIENCE, becomes, builder, deadline, ends, enter, eventually, in_vain, ms, passer, reentrant, secs};
use distlock::{Acquire, Error, Flavour, Guard, Released};
use distlock_support::{Action, Matcher, RedisServer};
use futures::FutureExt as _;
use futures::future::BoxFuture;

async fn shut_down_with_held_locks(bed: &Bed) {
    let client = bed.client().await;
    let me = client.owner();
    let mut guards: Vec<Guard> = Vec::new();
    for n in 0..10 {
        let lock = client.reentrant(&format!("job {n}"));
        guards.push(match n {
            0..4 => lock.lock().await.unwrap(),
            4..7 => lock.lock_leased(secs(600)).await.unwrap(),
            _ => enter(&lock, &me).await,
        });
    }
    guards.push(enter(&client.reentrant("job 9"), &me).await);
    // An owner of both halves, whose read holds have covers (a key each).
    let (write, read) = (client.rw("rw").write(), client.rw("rw").read());
    guards.extend([enter(&write, &me).await, enter(&read, &me).await, enter(&read, &me).await]);
    let lost: Vec<_> = guards.iter().map(Guard::lost).collect();
    let queued = (0..300).map(|n| {
        let lock = client.reentrant(&format!("queued {n}"));
        async move { lock.lock().await.unwrap() }
    });
    drop(futures::future::join_all(queued).await);
    client.shutdown(Duration::ZERO).await.unwrap();
    // The client deletes the keys before their leases end.
    assert_eq!(bed.admin.keys().await, [""; 0], "keys of held locks and of queued releases");
    for (guard, lost) in guards.into_iter().zip(lost) {
        assert!(!guard.is_held());
        assert!(matches!(lost.now_or_never(), Some(Error::Closed)));
        assert!(matches!(guard.run(async {}).await, Err(Error::Closed)));
        assert!(matches!(guard.unlock().await, Err(Error::Closed)));
    }
}

#[tokio::test]
async fn shutdown_releases_held_locks_on_one_thread() {
    reentrant(shut_down_with_held_locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_releases_held_locks_on_two_threads() {
    reentrant(shut_down_with_held_locks).await;
}

/// The last guard is dropped while a shutdown waits for it. With several threads, the shutdown may notice the drop
/// before the release has run.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn release_during_a_shutdown_frees_the_lock() {
    reentrant(async |bed| {
        for round in 0..40 {
            let client = bed.client().await;
            let guard = client.reentrant("drained").lock().await.unwrap();
            let releasing = tokio::spawn(async move {
                tokio::task::yield_now().await;
                if round % 2 == 0 {
                    return guard.unlock().await.map(drop);
                }
                drop(guard);
                Ok(())
            });
            client.shutdown(PATIENCE).await.unwrap();
            ends("the release", releasing).await.unwrap().unwrap();
            assert_eq!(bed.admin.keys().await, [""; 0], "round {round}");
        }
    })
    .await;
}

/// An IPv6 address has brackets in a URL, but not in a socket address.
#[tokio::test]
async fn commands_and_messages_work_over_ipv6() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return distlock_support::skip("connections to ::1: this machine has no IPv6");
    }
    let server = RedisServer::builder().arg("--bind", "127.0.0.1 ::1").start();
    bed::run_on(
        server,
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let url = bed.server.url().replace("127.0.0.1", "[::1]");
            let holder = bed.client().await;
            for direct in [false, true] {
                let client = bed
                    .connect(builder(&url).configure(|options| {
                        options.use_fred = !direct;
                        options.poll_cap = secs(3600);
                    }))
                    .await;
                let guard = holder.reentrant("six").lock().await.unwrap();
                let waiting = passer(client.reentrant("six"));
                let channel = "redisson_lock__channel:{six}";
                becomes("subscribers", 1, async || bed.admin.numsub(channel).await).await;
                guard.unlock().await.unwrap();
                ends("the waiter", waiting).await.unwrap();
            }
        },
    )
    .await;
}

/// Drops all handles of a client, and returns the future of its guard's loss.
async fn drop_handles(bed: &Bed, pool_size: usize) -> BoxFuture<'static, Error> {
    // With a 30 s watchdog, renewals run every 10 s, and locks survive a pause of 20 s.
    let client = bed.builder().watchdog(secs(30)).pool_size(pool_size).connect().await.unwrap();
    let [job, other] = ["job", "other"].map(|name| format!("{name} {pool_size}"));
    let (lock, waited) = (client.reentrant(&job), client.reentrant(&other));
    let guard = lock.lock().await.unwrap();
    let lost = guard.lost().boxed();
    drop((client.clone(), client, lock));
    // A guard keeps its client and its watchdog alive.
    let before = deadline(&guard);
    eventually("it is renewed", async || deadline(&guard) > before + secs(1)).await;
    assert!(guard.is_held() && bed.admin.exists(&job).await);
    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    // A lock and a waiting task keep the client alive, too.
    let guard = waited.lock().await.unwrap();
    let waits = tokio::spawn(async move { in_vain(&waited.lock_for(ms(20)).await) });
    assert!(ends("a short wait", waits).await.unwrap());
    assert!(guard.is_held() && bed.admin.exists(&other).await);
    drop(guard);
    lost
}

async fn drop_the_last_handle(bed: &Bed) {
    let all = futures::future::join_all((1..=3).map(|pool_size| drop_handles(bed, pool_size))).await;
    // A client that was never used.
    drop(bed.builder().connect().await.unwrap());
    // After the drop of the last guard, its lock is released and the connections close.
    becomes("connections", 0, async || bed.admin.others().await.len()).await;
    assert_eq!(bed.admin.keys().await, [""; 0]);
    for lost in all {
        assert!(lost.now_or_never().is_none(), "a release was taken for a loss");
    }
}

#[tokio::test]
async fn dropping_the_last_handle_shuts_down_on_one_thread() {
    reentrant(drop_the_last_handle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_shuts_down_on_two_threads() {
    reentrant(drop_the_last_handle).await;
}

/// A late copy of a timed-out acquire may arrive. The client looks for a hold of this copy before its connections
/// close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_removes_late_copy_of_acquire_in_doubt() {
    reentrant(async |bed| {
        for _ in 0..2 {
            let proxy = bed.proxy();
            let client = bed.connect(builder(&proxy.url())).await;
            let (lock, me) = (client.reentrant("a"), client.owner());
            enter(&lock, &me).await.unlock().await.unwrap();
            let wire = Wire::tap(&bed.server).await;
            proxy.on_request(Matcher::command("EVALSHA"), Action::SwallowReplyClose);
            assert!(lock.acquire(Acquire::new().owner(&me).wait(ms(0))).await.is_err());
            bed::idle(&client).await;
            assert!(!bed.admin.exists("a").await);
            let acquire = wire.calls(bed).await.remove(0);
            arrives(bed, &acquire).await;
            assert!(bed.admin.exists("a").await, "the copy came too late to take the lock");
            client.shutdown(PATIENCE).await.unwrap();
            assert_eq!((client.stats().holds, bed.admin.exists("a").await), (0, false));
        }
    })
    .await;
}

#[tokio::test]
async fn connecting_may_be_dropped_at_any_await() {
    reentrant(async |bed| {
        // On a slow machine, replies arrive before they are awaited, so fewer await points are pending.
        eventually("connecting is cut off in at least three places", async || {
            for awaits in 0.. {
                if let Some(client) = cut_at(bed.builder().connect(), awaits).await {
                    client.unwrap().shutdown(PATIENCE).await.unwrap();
                    return awaits >= 3;
                }
            }
            unreachable!("a connect has an end")
        })
        .await;
    })
    .await;
}

//! Clients from beginning to end: connecting, shutting down, being dropped, outliving their runtime.

use std::collections::BTreeSet;

use bed::harm::cut_at;
use bed::wire::{Wire, arrives};
use bed::{Bed, PATIENCE, becomes, builder, ends, enter, in_vain, ms, reentrant, secs};
use distlock::{Acquire, Builder, Error, Guard, Released};
use distlock_support::{Action, Matcher, Proxy};
use futures::FutureExt as _;
use tokio::task::JoinSet;

/// The connections of clients.
async fn connections(bed: &Bed) -> BTreeSet<u64> {
    bed.admin.others().await.into_iter().map(|client| client.id).collect()
}

/// Renews every 4 s, and keeps its locks in a standstill of 8 s.
fn watchful(bed: &Bed) -> Builder {
    bed.builder().watchdog(secs(12)).command_timeout(secs(4))
}

/// Tests that run on one thread, and on several.
macro_rules! on_threads {
    ($($name:ident: $body:ident),+ $(,)?) => {
        $(mod $name {
            use super::*;
            #[tokio::test]
            async fn on_one_thread() {
                reentrant($body).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_threads() {
                reentrant($body).await;
            }
        })+
    };
}

on_threads!(
    a_shutdown_frees_what_is_held: shut_down_with_ten_locks,
    dropping_the_last_handle_shuts_down: drop_the_last_handle,
);

async fn shut_down_with_ten_locks(bed: &Bed) {
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
    // One of them twice.
    guards.push(enter(&client.reentrant("job 9"), &me).await);
    let lost: Vec<_> = guards.iter().map(Guard::lost).collect();
    client.shutdown(PATIENCE).await.unwrap();
    // Now: not a moment later, not at the end of a lease.
    assert_eq!(bed.admin.keys().await, [""; 0]);
    for (guard, lost) in guards.into_iter().zip(lost) {
        assert!(!guard.is_held());
        assert!(matches!(lost.now_or_never(), Some(Error::Closed)));
        assert!(matches!(guard.run(async {}).await, Err(Error::Closed)));
        assert!(matches!(guard.unlock().await, Err(Error::Closed)));
    }
}

async fn drop_the_last_handle(bed: &Bed) {
    let before = connections(bed).await;
    let client = watchful(bed).connect().await.unwrap();
    let (lock, other) = (client.reentrant("job"), client.reentrant("other"));
    let guard = lock.lock().await.unwrap();
    let lost = guard.lost();
    drop((client.clone(), client, lock));
    // A guard keeps its client going, its watchdog as well.
    bed.admin.reset_stats().await;
    bed::eventually("it is renewed", async || bed.admin.calls("evalsha").await > 0).await;
    assert!(guard.is_held() && bed.admin.exists("job").await);
    assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    // And so does a lock.
    let guard = other.lock().await.unwrap();
    drop(other);
    assert!(guard.is_held());
    drop(guard);
    // The guard was the last: its lock is released, and then the connections close.
    becomes("connections", before, async || connections(bed).await).await;
    assert_eq!(bed.admin.keys().await, [""; 0]);
    assert!(lost.now_or_never().is_none(), "a release was taken for a loss");
}

/// An acquire that was given up may come in late. What looks for it later does so before the connections close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_the_last_look_after_doubt() {
    reentrant(async |bed| {
        for _ in 0..2 {
            let proxy = Proxy::start(bed.server.addr());
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

/// Releases that were queued by dropping guards are sent before the connections close.
#[tokio::test]
async fn a_shutdown_waits_for_queued_releases() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mut guards = Vec::new();
        for n in 0..300 {
            guards.push(client.reentrant(&format!("job {n}")).lock().await.unwrap());
        }
        drop(guards);
        client.shutdown(PATIENCE).await.unwrap();
        assert_eq!(bed.admin.keys().await, [""; 0]);
    })
    .await;
}

/// A server that does not answer: the shutdown says that its time ran out, and closes all the same. When it ends is asserted in
/// `tests/sim/timing/client.rs`.
#[tokio::test]
async fn a_shutdown_at_a_silent_server_ends() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let guard = client.reentrant("job").lock().await.unwrap();
        bed.server.stop();
        let late = ends("the shutdown", client.shutdown(ms(500))).await;
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
        assert!(!guard.is_held());
        bed.server.cont();
        // What could not be released ends with its lease.
        becomes("keys", Vec::<String>::new(), async || bed.admin.keys().await).await;
    })
    .await;
}

#[tokio::test]
async fn clients_come_and_go_without_a_trace() {
    reentrant(async |bed| {
        let before = connections(bed).await;
        for round in 0..4 {
            let mut clients = JoinSet::new();
            for n in 0..12 {
                let builder = bed.builder();
                clients.spawn(async move {
                    let client = builder.connect().await.unwrap();
                    let lock = client.reentrant(&format!("job {n}"));
                    // Used a little, in different ways, and dropped; or not used at all.
                    match n % 4 {
                        0 => lock.lock().await.unwrap().unlock().await.map(drop).unwrap(),
                        1 => drop(lock.lock().await.unwrap()),
                        2 => {
                            // Somebody waits in vain, which subscribes.
                            let guard = lock.lock().await.unwrap();
                            assert!(in_vain(&lock.lock_for(ms(20)).await));
                            drop(guard);
                        }
                        _ => {}
                    }
                });
            }
            while let Some(done) = clients.join_next().await {
                done.unwrap();
            }
            becomes("connections", before.clone(), async || connections(bed).await).await;
            assert_eq!(bed.admin.keys().await, [""; 0], "round {round}");
        }
    })
    .await;
}

#[tokio::test]
async fn connecting_may_be_dropped_at_any_await() {
    reentrant(async |bed| {
        let before = connections(bed).await;
        let mut awaits = 0;
        while match cut_at(bed.builder().connect(), awaits).await {
            None => true,
            Some(client) => {
                client.unwrap().shutdown(PATIENCE).await.unwrap();
                false
            }
        } {
            awaits += 1;
        }
        assert!(awaits > 3, "connecting had {awaits} awaits");
        becomes("connections", before, async || connections(bed).await).await;
    })
    .await;
}

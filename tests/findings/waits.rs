//! Waits that last as long as they were asked to, and what is told at their end: found by a reader.

use std::sync::Arc;
use std::time::Instant;

use distlock::{Acquire, Client, DistLock, Flavour, Guard};
use distlock_support::{Mode, Proxy};
use tokio::task::JoinHandle;

use crate::bed::{enter, eventually, idle, ms, reentrant, secs};

/// A grant that came too late is being given back, to a server that has fallen silent: the next attempt stands behind that, and
/// the wait ends all the same.
#[tokio::test]
async fn a_wait_ends_while_a_late_grant_is_given_back() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(Client::builder(&proxy.url()).command_timeout(ms(800)).retry_attempts(1)).await;
        let lock = client.reentrant("x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        proxy.set_upstream_mode(Mode::Delay(ms(400)));
        let began = Instant::now();
        let waits = lock.acquire(Acquire::new().lease(ms(200)).wait(secs(3)));
        let falls_silent = async {
            eventually("the first grant", secs(10), async || bed.admin.exists("x").await).await;
            proxy.set_upstream_mode(Mode::Hang);
        };
        let (outcome, ()) = tokio::join!(waits, falls_silent);
        let took = began.elapsed();
        println!("{outcome:?} after {took:?}");
        assert!(outcome.is_err() && took < secs(5), "{outcome:?} after {took:?}");
        proxy.set_upstream_mode(Mode::Pass);
        idle(&client).await;
    })
    .await;
}

/// The hold beside which an owner was to come in is gone, and it has another: nobody who waits for that stands before it.
#[tokio::test]
async fn who_comes_in_beside_a_hold_that_is_gone_does_not_queue() {
    for flavour in [Flavour::Reentrant, Flavour::Fair] {
        reentrant(async |bed| {
            let (client, other) = (bed.client().await, bed.client().await);
            let (lock, theirs) = (client.lock(flavour, "x"), other.lock(flavour, "x"));
            let me = client.owner();
            let stale = lock.acquire(Acquire::new().owner(&me).lease(secs(60))).await.unwrap().expect("free");
            assert!(theirs.force_unlock().await.unwrap());
            let held = enter(&*theirs, &me).await;
            let behind = waits(Arc::clone(&lock));
            eventually("another waits", secs(5), async || client.stats().waiting == 1).await;
            let began = Instant::now();
            let again = lock.acquire(Acquire::new().owner(&me).wait(secs(10))).await.unwrap();
            println!("{flavour}: {} after {:?}", again.is_some(), began.elapsed());
            assert!(began.elapsed() < secs(5), "{flavour}: {:?}", began.elapsed());
            again.expect("beside its other hold").unlock().await.unwrap();
            drop(stale);
            held.unlock().await.unwrap();
            behind.await.unwrap().unlock().await.unwrap();
            idle(&client).await;
        })
        .await;
    }
}

/// Whoever waits in this process behind another whose command has no answer does not know that the lock is busy.
#[tokio::test]
async fn who_waits_behind_another_at_a_silent_server_is_told_so() {
    for kind in ["reentrant", "striped"] {
        reentrant(async |bed| {
            let proxy = Proxy::start(bed.server.addr());
            let client = bed.connect(Client::builder(&proxy.url()).command_timeout(secs(5))).await;
            let lock: Arc<dyn DistLock> = match kind {
                "striped" => Arc::new(client.striped("x", 2)),
                _ => Arc::new(client.reentrant("x")),
            };
            lock.lock().await.unwrap().unlock().await.unwrap();
            idle(&client).await;
            proxy.set_upstream_mode(Mode::Hang);
            let mut first = std::pin::pin!(lock.lock());
            assert!(futures::poll!(&mut first).is_pending());
            let second = async {
                tokio::task::yield_now().await;
                lock.lock_for(ms(500)).await
            };
            tokio::select! {
                biased;
                second = second => {
                    let error = second.expect_err("nobody knows who holds it");
                    assert!(error.is_retryable(), "{kind}: {error:?}");
                }
                first = &mut first => panic!("{kind}: {first:?}"),
            }
            proxy.set_upstream_mode(Mode::Pass);
            first.await.unwrap().unlock().await.unwrap();
            idle(&client).await;
        })
        .await;
    }
}

/// Waits for a lock.
fn waits(lock: Arc<dyn DistLock>) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

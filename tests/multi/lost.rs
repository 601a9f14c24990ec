//! Held while all of its members are; lost with the first (M1, K1).

use std::time::Instant;

use distlock::{Acquire, DistLock, Error, Lost, MultiLock, NotHeld};

use crate::rig::{Second, fair, member, only_keys, soon};
use bed::{QUICK, eventually, idle, ms, reentrant, secs};

/// One is deleted: the guard is lost, work under it stops, and says which lock.
#[tokio::test]
async fn with_one_member_all_is_lost() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(["a", "b", "c"]), fair(&client, &["a", "b", "c"])] {
            for gone in ["a", "c"] {
                let guard = lock.lock().await.unwrap();
                let lost = tokio::spawn(guard.lost());
                let expiring = tokio::spawn(guard.expiring());
                let () = bed.admin.cmd(&["DEL", gone]).await;
                let running = guard.run(async {
                    client.renew_now().await;
                    std::future::pending::<()>().await;
                });
                let error = soon("the work stops", secs(5), running).await.unwrap_err();
                let told =
                    |error: &Error| matches!(error, Error::Lost { name, why: Lost::Gone } if **name == *lock.name());
                assert!(told(&error), "{error:?}");
                let error = soon("it is told", secs(1), lost).await.unwrap();
                assert!(told(&error), "{error:?}");
                soon("it is told", secs(1), expiring).await.unwrap();
                assert!(!guard.is_held() && guard.remaining().is_zero());
                // The others are given back at once, whatever becomes of the guard.
                eventually("all are free", async || bed.admin.keys().await.is_empty()).await;
                let held: Vec<_> = guard.members().into_iter().map(|member| member.is_held).collect();
                assert_eq!(held, [false; 3]);
                let error = guard.extend(secs(5)).await.unwrap_err();
                assert!(told(&error), "{error:?}");
                assert!(matches!(guard.run(async {}).await, Err(Error::Lost { .. })));
                let error = guard.unlock().await.unwrap_err();
                assert!(told(&error), "{error:?}");
                only_keys(&bed.admin, &[]).await;
            }
        }
    })
    .await;
}

/// A release is no loss: nobody who listens is told so, whether he began before or while it was given back.
#[tokio::test]
async fn a_release_is_never_a_loss() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for lock in [client.multi(["a", "b"]), fair(&client, &["a", "b"])] {
            for way in 0..4 {
                let guard = lock.lock().await.unwrap();
                let (lost, expiring) = (tokio::spawn(guard.lost()), tokio::spawn(guard.expiring()));
                if way > 1 {
                    // They listen already.
                    tokio::time::sleep(ms(5)).await;
                }
                match way {
                    0 | 2 => drop(guard.unlock().await.unwrap()),
                    _ => drop(guard),
                }
                idle(&client).await;
                tokio::time::sleep(ms(20)).await;
                assert!(!lost.is_finished(), "way {way}: told as {:?}", lost.await);
                assert!(!expiring.is_finished(), "way {way}");
                lost.abort();
                expiring.abort();
            }
            // Nor for one who gave it away.
            let guard = lock.lock().await.unwrap();
            let lost = tokio::spawn(guard.lost());
            let me = guard.into_owner();
            tokio::time::sleep(ms(20)).await;
            assert!(!lost.is_finished(), "told as {:?}", lost.await);
            lost.abort();
            lock.release(&me).await.unwrap();
        }
    })
    .await;
}

/// A server that does not answer any more: lost by the local clock, before the lease ends there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_server_that_stopped_it_is_lost_in_time() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let second = Second::start().await;
        let lock = MultiLock::of(vec![member(client.reentrant("a")), member(second.client.reentrant("b"))]);
        let guard = lock.lock().await.unwrap();
        let began = Instant::now();
        second.server.stop();
        let deadline = guard.deadline();
        assert!(deadline <= began + QUICK);
        let (lost, expiring) = (guard.lost(), guard.expiring());
        soon("it ends soon", QUICK, expiring).await;
        assert!(guard.is_held() && began.elapsed() < QUICK);
        let error = soon("it is lost", QUICK, lost).await;
        assert!(matches!(&error, Error::Lost { why: Lost::Expired, .. }), "{error:?}");
        // A renewal may have been under way when the server stopped.
        assert!(began.elapsed() < QUICK + ms(300), "{:?}", began.elapsed());
        assert!(!guard.is_held());
        only_keys(&bed.admin, &[]).await;
        second.server.cont();
        let error = guard.unlock().await.unwrap_err();
        assert!(matches!(error, Error::Lost { .. } | Error::NotHeld { .. }), "{error:?}");
        only_keys(&bed.admin, &[]).await;
        second.end().await;
    })
    .await;
}

/// An explicit lease: it says so in time, ends by the local clock first, and leaves nothing.
#[tokio::test]
async fn an_explicit_lease_ends_it() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        for lock in [client.multi(["a", "b", "c"]), fair(&client, &["a", "b", "c"])] {
            let began = Instant::now();
            let guard = lock.acquire(Acquire::new().lease(ms(400))).await.unwrap().unwrap();
            let deadline = guard.deadline();
            assert!(deadline <= began + ms(400) + began.elapsed() && deadline > began + ms(300), "{deadline:?}");
            guard.expiring().await;
            assert!(began.elapsed() >= ms(250), "{:?}", began.elapsed());
            let error = soon("it is lost", secs(2), guard.lost()).await;
            assert!(matches!(&error, Error::Lost { why: Lost::Expired, .. }), "{error:?}");
            assert!(!guard.is_held());
            only_keys(&bed.admin, &[]).await;
            let error = guard.unlock().await.unwrap_err();
            // As this client has noted it already, or as the server says.
            let over = matches!(
                error,
                Error::Lost { why: Lost::Expired, .. } | Error::NotHeld { why: NotHeld::LeaseOver, .. }
            );
            assert!(over, "{error:?}");
            lock.try_lock().await.unwrap().expect("free").unlock().await.unwrap();
        }
    })
    .await;
}

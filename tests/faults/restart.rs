//! Servers that are killed and restarted, with or without their data.

use distlock::{Acquire, Builder, Error, Flavour, Lost, Released, Result};
use distlock_support::RedisServer;
use distlock_support::proxy::Mode;

use crate::rig::{heals, patient, stubborn};
use bed::fault::{brisk, count};
use bed::{Bed, becomes, ends, eventually, idle, ms, reentrant, secs, with_longer_waits};

/// Runs a test on a server that loses nothing when it is killed. With `everysec`, Redis may postpone a write during an
/// fsync, and a kill then loses an answered write.
async fn durable(body: impl AsyncFnOnce(&Bed)) {
    let server = RedisServer::builder().aof(true).arg("--appendfsync", "always").start();
    bed::run_on(server, |client, name| client.lock(Flavour::Reentrant, name), body).await;
}

fn restart(bed: &Bed) {
    tokio::task::block_in_place(|| bed.server.restart());
}

/// Asserts that the error says that the server could not be reached.
#[track_caller]
fn told<T>(outcome: Result<T, Error>) {
    match outcome {
        Err(error @ (Error::Connection { .. } | Error::Timeout { .. })) => assert!(error.is_retryable()),
        Err(Error::ReleasePending { why, .. }) => told::<T>(Err((*why).clone())),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it succeeded, and the server is away"),
    }
}

/// A client that confirms its holds after a reconnect, and retries a failed confirmation every 10 s. The regular
/// renewal comes every 100 s, which is longer than a test.
fn confirming(bed: &Bed) -> Builder {
    patient(&bed.server.url()).watchdog(secs(300))
}

/// The reconnect triggers a renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_survives_a_restart_with_data() {
    durable(async |bed| {
        let client = bed.connect(confirming(bed)).await;
        let owner = client.owner();
        let lock = client.reentrant("a");
        let enter = async || lock.acquire(Acquire::new().owner(&owner)).await.unwrap().unwrap();
        let guard = enter().await;
        for round in 0..3 {
            let again = enter().await;
            let () = bed.admin.cmd(&["PEXPIRE", "a", "120000"]).await;
            restart(bed);
            eventually("the reconnect renews it", async || bed.admin.pttl("a").await > 120_000).await;
            assert_eq!(again.unlock().await.unwrap(), Released::StillHeld(1), "round {round}");
            assert!(guard.is_held(), "round {round}");
            assert_eq!(count(&bed.admin, "a").await, 1, "round {round}");
        }
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// The holder learns of the loss as soon as the connection is back. A waiter gets the lock, which is then renewed as
/// usual.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_lost_in_a_restart_without_data() {
    reentrant(async |bed| {
        let client = bed.connect(confirming(bed)).await;
        let waiter = bed.connect(confirming(bed)).await;
        for _ in 0..3 {
            let guard = client.reentrant("a").lock().await.unwrap();
            let leased = client.reentrant("b").lock_leased(secs(600)).await.unwrap();
            let lock = waiter.reentrant("a");
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            becomes("waiting tasks", 1, async || waiter.stats().waiting).await;
            restart(bed);
            let lost = ends("the signal of the loss", guard.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            assert!(!guard.is_held() && matches!(guard.unlock().await, Err(Error::Lost { .. })));
            let next = ends("the waiter", waiting).await.unwrap();
            becomes("locks that are renewed", 1, async || waiter.renew_now().await.renewed).await;
            next.unlock().await.unwrap();
            // An explicit lease is not renewed, but it is confirmed.
            let lost = ends("the signal for the explicit lease", leased.lost()).await;
            assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{lost:?}");
            let released = leased.unlock().await;
            assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
        }
    })
    .await;
}

/// The server stays down. Every operation reports this, and held locks end with their leases. A wait that is shorter
/// than any timeout saw no holder, so it does not report "busy".
#[tokio::test]
async fn calls_fail_and_lease_is_lost_when_server_goes_away() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).retry_attempts(3)).await;
        let slow = bed.connect(patient(&bed.server.url())).await;
        slow.reentrant("warm").lock().await.unwrap().unlock().await.unwrap();
        let lock = client.reentrant("a");
        let guard = with_longer_waits(secs(2), async |lease| lock.lock_leased(lease).await.ok()).await;
        bed.server.kill9();
        for flavour in bed::FLAVOURS {
            let lock = slow.lock(flavour, &format!("killed:{flavour}"));
            told(ends("a short wait", lock.lock_for(ms(100))).await);
        }
        let multi = slow.multi(["killed:a", "killed:b"]);
        told(ends("a short wait", multi.lock_for(ms(100))).await);
        told(ends("try_lock()", lock.try_lock()).await);
        told(ends("state()", lock.state()).await);
        told(ends("force_unlock()", lock.force_unlock()).await);
        told(ends("lock()", client.reentrant("c").lock()).await);
        told(ends("lock_for()", client.reentrant("c").lock_for(ms(500))).await);
        let lost = ends("the signal that the lease is over", guard.lost()).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        assert!(matches!(guard.extend(secs(5)).await, Err(Error::Lost { .. })));
        // The client cannot know whether the server still has the hold.
        assert!(guard.unlock().await.is_err());
        bed.server.restart();
        for client in [&client, &slow] {
            heals(client).await;
            idle(client).await;
        }
    })
    .await;
}

/// A release while the server is down is reported as in doubt. The client retries it in the background until the server
/// is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_goes_on_when_the_server_is_back() {
    durable(async |bed| {
        let client = bed.connect(stubborn(&bed.server.url()).retry_attempts(2)).await;
        let guard = client.reentrant("a").lock().await.unwrap();
        let dropped = client.reentrant("b").lock().await.unwrap();
        bed.server.kill9();
        drop(dropped);
        assert!(matches!(guard.unlock().await, Err(Error::ReleasePending { .. })));
        assert_eq!(client.stats().holds, 2, "both are still being released");
        restart(bed);
        becomes("keys", Vec::<String>::new(), async || bed.admin.keys().await).await;
        idle(&client).await;
    })
    .await;
}

/// The server has forgotten the script, so the client sends its text. Both commands together have one command timeout.
/// The second reply arrives 2.2 s after this timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_lock_with_forgotten_script_has_one_command_timeout() {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let client = bed.connect(patient(&proxy.url()).command_timeout(secs(3))).await;
        eventually("the client is connected", async || client.ping().await.is_ok()).await;
        proxy.set_downstream_mode(Mode::Delay(ms(2_600)));
        bed.admin.script_flush().await;
        let (single, several) = (client.reentrant("a"), client.multi(["c", "d"]));
        let as_owner = Acquire::new().owner(&client.owner()).wait(ms(0));
        let outcomes = tokio::join!(single.try_lock(), single.acquire(as_owner), several.try_lock());
        for outcome in <[_; 3]>::from(outcomes) {
            assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
        }
        proxy.heal();
        idle(&client).await;
    })
    .await;
}

//! Lock futures run on any executor. Work that needs a runtime runs on the client's runtime.

use bed::{PATIENCE, builder, ms, reentrant, secs, waits_in_vain};
use distlock::{Client, DistLock, Error, Flavour, Lost, RedLock, Released};
use distlock_support::RedisServer;
use futures::executor::block_on;

use super::rig::runtime;

/// Runs every operation of a lock on an executor other than tokio's.
fn on_no_runtime(what: &str, clients: &[Client], lock: &dyn DistLock, other: &dyn DistLock) {
    let guard = block_on(lock.lock()).unwrap();
    assert!(block_on(lock.is_locked()).unwrap(), "{what}");
    assert!(block_on(lock.remaining_ttl()).unwrap().is_some(), "{what}");
    // Only a timer ends this wait.
    assert!(block_on(other.try_lock()).unwrap().is_none(), "{what}");
    block_on(waits_in_vain(ms(100), async |wait| other.lock_for(wait).await));
    block_on(guard.extend(secs(60))).unwrap();
    let lost = guard.lost();
    assert_eq!(block_on(guard.run(async { 7 })).unwrap(), 7);
    assert_eq!(block_on(guard.unlock()).unwrap(), Released::Free, "{what}");
    drop(lost);
    drop(block_on(lock.lock_leased(secs(3600))).unwrap());
    let guard = block_on(other.lock()).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(lock.lock()).unwrap());
        std::thread::sleep(ms(50));
        assert!(!waiter.is_finished(), "{what}");
        block_on(guard.unlock()).unwrap();
        block_on(waiter.join().unwrap().unlock()).unwrap();
    });
    let guard = block_on(lock.lock()).unwrap();
    let lost = guard.lost();
    assert!(block_on(other.force_unlock()).unwrap(), "{what}");
    for client in clients {
        block_on(client.renew_now());
    }
    let lost = block_on(lost);
    assert!(matches!(lost, Error::Lost { why: Lost::Gone, .. }), "{what}: {lost:?}");
    drop(guard);
    let owner = block_on(lock.lock()).unwrap().into_owner();
    assert_eq!(block_on(lock.release(&owner)).unwrap(), Released::Free, "{what}");
}

#[test]
fn all_locks_work_without_a_runtime() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let home = runtime();
    let connect = || -> Vec<Client> {
        servers.iter().map(|server| home.block_on(builder(&server.url()).connect()).unwrap()).collect()
    };
    let (ours, theirs) = (connect(), connect());
    for flavour in Flavour::ALL {
        if *flavour != Flavour::Read {
            let name = format!("one-{flavour}");
            on_no_runtime(&name, &ours, &*ours[0].lock(*flavour, &name), &*theirs[0].lock(*flavour, &name));
        }
    }
    on_no_runtime("multi", &ours, &ours[0].multi(["a", "b"]), &theirs[0].multi(["b", "a"]));
    let red = |clients: &Vec<Client>| RedLock::new(clients.clone(), "red").node_timeout(PATIENCE);
    on_no_runtime("redlock", &ours, &red(&ours), &red(&theirs));
    on_no_runtime("striped", &ours, &ours[0].striped("s", 1), &theirs[0].striped("s", 1));
    assert!(block_on(ours[0].fenced("one-fenced").last_token()).unwrap() > 0);
    assert!(block_on(ours[0].fair("one-fair").queue()).unwrap().is_empty());
    let rw = ours[0].rw("rw");
    let writing = block_on(rw.write().lock()).unwrap();
    let reading = block_on(writing.downgrade()).unwrap();
    assert_eq!(block_on(ours[0].renew_now()).renewed, 1);
    assert_eq!(block_on(reading.unlock()).unwrap(), Released::Free);
    for client in ours.iter().chain(&theirs) {
        block_on(client.shutdown(PATIENCE)).unwrap();
    }
}

#[test]
fn connecting_without_a_runtime_is_an_error() {
    let server = RedisServer::start();
    let url = server.url();
    for refused in [block_on(Client::connect(&url)), block_on(Client::builder(&url).connect_lazily())] {
        assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_was_polled_on_one_runtime_goes_on_elsewhere() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let holder = bed.client().await.reentrant("x");
        let guard = holder.lock().await.unwrap();
        let lock = client.reentrant("x");
        let mut waiting = Box::pin(async move { lock.lock().await });
        assert!(futures::poll!(&mut waiting).is_pending());
        let moved = std::thread::spawn(move || block_on(waiting));
        tokio::time::sleep(ms(100)).await;
        guard.unlock().await.unwrap();
        let guard = tokio::task::spawn_blocking(|| moved.join()).await.unwrap().expect("panicked").unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

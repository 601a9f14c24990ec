//! The cost of acknowledgement, as the server counts it.

use distlock::{Acks, Flavour};
use futures::future::join_all;

use crate::lanes::blocked;
use crate::{FLAVOURS, client, end, patient, servers};

#[tokio::test]
async fn group_has_one_wait_and_releases_and_queries_have_none() {
    let servers = servers(1).await;
    let admin = servers.node(0).admin();
    let strict = patient(&servers, Acks::AtLeast(1)).await;
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
    // A renewal of a hundred locks is one command with one WAIT.
    let locks: Vec<_> = (0..100).map(|n| strict.reentrant(&format!("many:{n}"))).collect();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    strict.renew_now().await;
    admin.reset_stats().await;
    assert_eq!(strict.renew_now().await.renewed, 100);
    assert_eq!(admin.calls("wait").await, 1);
    drop(guards);
    end(strict).await;
    for acks in [Acks::Off, Acks::Redisson] {
        // Over `redis://`, Redisson's rule requires no acknowledgement.
        let off = client(&servers, acks).await;
        admin.reset_stats().await;
        for flavour in FLAVOURS {
            off.lock(flavour, "none").lock().await.unwrap().unlock().await.unwrap();
        }
        assert_eq!(admin.calls("wait").await, 0, "{acks:?}");
        end(off).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_share_waits() {
    const TASKS: usize = 64;
    const EACH: usize = 100;
    let servers = servers(1).await;
    let admin = servers.node(0).admin();
    let strict = patient(&servers, Acks::AtLeast(1)).await;
    admin.reset_stats().await;
    let tasks = (0..TASKS).map(|task| {
        let lock = strict.reentrant(&format!("turn:{task}"));
        tokio::spawn(async move {
            for _ in 0..EACH {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let (waits, acquires) = (admin.calls("wait").await, (TASKS * EACH) as u64);
    assert!(waits * 3 < acquires, "{waits} WAITs for {acquires} acquires");
    end(strict).await;
}

/// Queries, busy answers and releases are answered while a `WAIT` is blocked.
#[tokio::test]
async fn releases_queries_and_busy_tries_wait_for_no_replica() {
    let servers = servers(1).await;
    let strict = patient(&servers, Acks::AtLeast(1)).await;
    let held = join_all(FLAVOURS.map(async |flavour| strict.lock(flavour, &format!("busy:{flavour}")).lock().await));
    let held: Vec<_> = held.await.into_iter().map(Result::unwrap).collect();
    servers.node(1).stop();
    let lock = strict.lock(Flavour::Reentrant, "blocked");
    let waiting = tokio::spawn(async move { lock.lock().await });
    bed::eventually("a WAIT is blocked", async || blocked(&servers, 1).await).await;
    // The acquires are sent at once, as one group.
    bed::ends(
        "queries and busy answers",
        join_all(FLAVOURS.map(async |flavour| {
            let name = format!("busy:{flavour}");
            let rival = if flavour == Flavour::Read { Flavour::Write } else { flavour };
            assert!(strict.lock(rival, &name).try_lock().await.unwrap().is_none(), "{flavour}: two holders");
            strict.lock(flavour, &name).state().await.unwrap();
        })),
    )
    .await;
    for guard in held {
        bed::ends("a release", guard.unlock()).await.unwrap();
    }
    assert!(!waiting.is_finished(), "granted without a replica");
    servers.node(1).cont();
    bed::ends("the waiter", waiting).await.unwrap().unwrap().unlock().await.unwrap();
    end(strict).await;
}

//! Permits that a guard loses, and clients that die: the guard says so, and the permits come back.

use std::future::pending;

use distlock::{Acquire, Error, Lost};
use tokio::runtime;

use crate::rig::{counts, permits, take, waits, with};
use bed::{QUICK, becomes, builder, ends, idle, ms, secs};

#[tokio::test]
async fn work_is_cut_off_and_release_refused_when_an_explicit_lease_ends() {
    permits(async |bed| {
        let client = bed.client().await;
        let gate = with(&client, "gate", 2).await;
        let guard = gate.acquire_with(2, Acquire::new().lease(ms(700))).await.unwrap().unwrap();
        let worked = ends("work under a lease that ends", guard.run(pending::<()>())).await;
        assert!(matches!(worked, Err(Error::Lost { why: Lost::Expired, .. })), "{worked:?}");
        assert!(!guard.is_held() && guard.remaining().is_zero());
        assert!(matches!(guard.extend(secs(60)).await, Err(Error::Lost { .. })));
        assert!(matches!(guard.release().await, Err(Error::Lost { why: Lost::Expired, .. })));
        becomes("free and held permits", (2, 0), async || counts(&gate).await).await;
    })
    .await;
}

/// Neither a message nor a poll wakes the other client: only the end of the lease.
#[tokio::test]
async fn permits_of_a_cut_off_client_are_lost_there_and_come_back_to_others() {
    permits(async |bed| {
        let proxy = bed.proxy();
        let options = builder(&proxy.url()).watchdog(QUICK).command_timeout(QUICK / 3);
        let client =
            bed.connect(options.retry_attempts(2).configure(|options| options.retry_delay = (ms(10), ms(100)))).await;
        let other = bed.still_client().await;
        let there = with(&other, "gate", 2).await;
        let guard = take(&client.permits("gate"), 2).await;
        let lost = guard.lost();
        proxy.blackhole(true);
        let next = ends("the next holder", there.acquire(2)).await.unwrap();
        assert!(!guard.is_held(), "two guards hold the same permits");
        let lost = ends("the signal of the loss", lost).await;
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        proxy.blackhole(false);
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
        idle(&client).await;
        assert_eq!((next.is_held(), counts(&there).await), (true, (0, 2)), "touched by a late command");
        next.release().await.unwrap();
    })
    .await;
}

/// Nothing is released: the client's tasks end with their runtime.
#[tokio::test]
async fn permits_of_a_client_whose_runtime_has_ended_come_back_with_their_lease() {
    permits(async |bed| {
        let other = bed.still_client().await;
        let there = with(&other, "gate", 2).await;
        let home = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = bed.quick_builder();
        let left = home.spawn(async move {
            let client = options.connect().await.unwrap();
            let guard = take(&client.permits("gate"), 2).await;
            (client, guard)
        });
        let (client, guard) = ends("the acquire", left).await.unwrap();
        home.shutdown_background();
        let next = ends("the next holder", there.acquire(2)).await.unwrap();
        assert!(!guard.is_held() && next.is_held());
        assert!(guard.release().await.is_err());
        drop(client);
        assert_eq!(counts(&there).await, (0, 2));
        next.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn deleted_permits_are_lost_at_renewal_and_give_nothing_to_new_ones() {
    permits(async |bed| {
        let lasting = || bed.builder().watchdog(secs(600));
        let (client, other) = (bed.connect(lasting()).await, bed.connect(lasting()).await);
        let (gate, there) = (with(&client, "gate", 3).await, other.permits("gate"));
        let (told, untold) = (take(&gate, 2).await, take(&there, 1).await);
        assert!(there.delete().await.unwrap());
        let round = client.renew_now().await;
        assert_eq!((round.renewed, round.failed, round.lost), (0, 0, 1));
        let worked = told.run(pending::<()>()).await;
        assert!(matches!(worked, Err(Error::Lost { why: Lost::Gone, .. })), "{worked:?}");
        assert!(!told.is_held() && untold.is_held(), "the other client has not renewed yet");
        assert!(gate.try_set_permits(3).await.unwrap());
        assert!(matches!(told.release().await, Err(Error::Lost { .. })));
        let released = untold.release().await;
        assert!(matches!(released, Err(Error::NotHeld { .. })), "{released:?}");
        idle(&client).await;
        assert_eq!(counts(&gate).await, (3, 0));
    })
    .await;
}

#[tokio::test]
async fn guard_is_lost_when_one_permit_is_released_by_id_and_the_others_come_back() {
    permits(async |bed| {
        let (client, other) = (bed.quick().await, bed.still_client().await);
        let (gate, there) = (with(&client, "gate", 3).await, other.permits("gate"));
        let guard = take(&gate, 3).await;
        let lost = guard.lost();
        assert!(there.release_ids(&guard.ids()[1..2]).await.unwrap());
        let lost = ends("the signal of the loss", lost).await;
        assert!(matches!(lost, Error::Lost { .. }) && !guard.is_held(), "{lost:?}");
        let all = ends("a request for all permits", there.acquire(3)).await.unwrap();
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
        assert_eq!(counts(&there).await, (0, 3));
        all.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn shut_down_client_releases_its_permits_and_ends_its_waits() {
    permits(async |bed| {
        let (client, other) = (bed.client().await, bed.still_client().await);
        let (gate, there) = (with(&client, "gate", 3).await, other.permits("gate"));
        let guard = take(&gate, 2).await;
        let leased = gate.acquire_with(1, Acquire::new().lease(secs(600))).await.unwrap().unwrap();
        let waiting = gate.clone();
        let own = tokio::spawn(async move { waiting.acquire(1).await });
        becomes("own waiting tasks", 1, async || client.stats().waiting).await;
        let next = waits(&there, 3);
        becomes("waiting tasks of the other client", 1, async || other.stats().waiting).await;
        let lost = guard.lost();
        client.shutdown(ms(0)).await.unwrap();
        let own = ends("a wait of the closed client", own).await.unwrap();
        assert!(matches!(own, Err(Error::Closed)), "{own:?}");
        assert!(matches!(ends("the signal of the loss", lost).await, Error::Closed));
        let next = ends("the next holder", next).await.unwrap();
        for held in [guard, leased] {
            assert!(!held.is_held() && matches!(held.release().await, Err(Error::Closed)));
        }
        assert_eq!(counts(&there).await, (0, 3));
        next.release().await.unwrap();
    })
    .await;
}

/// A server that is out of memory refuses commands that may need more. Held permits are renewed all the same.
#[tokio::test]
async fn permits_are_renewed_while_the_server_is_out_of_memory() {
    permits(async |bed| {
        let client = bed.still_client().await;
        let gate = with(&client, "gate", 3).await;
        let guard = take(&gate, 2).await;
        assert_eq!(client.renew_now().await.renewed, 1);
        bed.admin.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let refused = gate.try_acquire(1).await;
        let round = client.renew_now().await;
        bed.admin.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
        assert!(matches!(&refused, Err(Error::Server { message, .. }) if message.starts_with("OOM")), "{refused:?}");
        assert_eq!((round.renewed, round.failed, round.lost), (1, 0, 0));
        guard.release().await.unwrap();
    })
    .await;
}

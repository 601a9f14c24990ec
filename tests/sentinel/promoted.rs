//! Failovers by Sentinel.

use std::sync::Arc;

use distlock::{Acquire, Client, DistLock, Flavour, Guard};
use distlock_support::Sentinels;
use futures::future::join_all;
use tokio::task::JoinHandle;

use crate::{all_connections, connections, end, eventually, lock, ms, secs, sentinels, turn, waiter};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Asked,
    Killed,
    Stopped,
}

/// Makes another server the primary. Returns the old and the new primary.
async fn fail_over(bed: &Sentinels, how: How) -> (usize, usize) {
    let old = bed.primary().await;
    let promotion = match how {
        How::Asked => bed.failover().await,
        How::Killed => {
            bed.server(old).kill();
            // `acquire_unreplicated` has frozen the replicas.
            bed.servers().nodes().iter().enumerate().filter(|(n, _)| *n != old).for_each(|(_, node)| node.cont());
            bed.promotion(old).await
        }
        How::Stopped => {
            bed.server(old).stop();
            bed.promotion(old).await
        }
    };
    (old, promotion.server)
}

/// Acquires a lock that no replica has: the replicas are frozen, and lose their connections to the primary.
async fn acquire_unreplicated(bed: &Sentinels, primary: usize, client: &Client) -> Guard {
    bed.servers().nodes().iter().enumerate().filter(|(n, _)| *n != primary).for_each(|(_, node)| node.stop());
    // Writes in flight to the replicas are lost, too.
    bed.server(primary).admin().cmd::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
    lock(client, Flavour::Reentrant, "unknown").lock().await.unwrap()
}

/// Acquires all these locks at once.
async fn lock_all(locks: &[Arc<dyn DistLock>]) -> Vec<Guard> {
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    guards.into_iter().map(Result::unwrap).collect()
}

/// Releases the locks with waiters, then the waiters' locks, then the others.
async fn release_all(held: Vec<Guard>, waiters: [JoinHandle<Guard>; 5], others: Vec<Guard>) {
    for guard in held {
        guard.unlock().await.unwrap();
    }
    for waiter in waiters {
        let guard = bed::ends("a waiter", waiter).await.unwrap();
        guard.unlock().await.unwrap();
    }
    for guard in others {
        guard.unlock().await.unwrap();
    }
}

/// The new primary's holds stay held. Other guards report a loss. The new primary wakes waiters.
async fn holds_and_waits_survive_a_failover(how: How) {
    let bed = sentinels().await;
    let one = bed::builder(&bed.url()).watchdog(secs(3600)).connect().await.unwrap();
    let two = bed::builder(&bed.url())
        .watchdog(secs(3600))
        .configure(|options| options.poll_cap = secs(3600))
        .connect()
        .await
        .unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("kept:{n}")).collect();
    let locks: Vec<_> = names.iter().map(|name| lock(&one, Flavour::Reentrant, name)).collect();
    let guards = lock_all(&locks).await;
    let flavours = [Flavour::Reentrant, Flavour::Fair, Flavour::Write, Flavour::Fenced, Flavour::Spin];
    let of = |client: &Client| flavours.map(|flavour| lock(client, flavour, &format!("waited:{flavour}")));
    let held = lock_all(&of(&one)).await;
    let waiters = of(&two).map(waiter);
    eventually("all wait", async || two.stats().waiting == waiters.len() && two.stats().under_way == 0).await;
    let primary = bed.primary().await;
    bed.servers().synced().await;
    let lost = if how == How::Killed { Some(acquire_unreplicated(&bed, primary, &one).await) } else { None };
    let (old, new) = fail_over(&bed, how).await;
    assert_ne!(old, new);
    if let Some(lost) = lost {
        bed::ends("the signal of the loss", lost.lost()).await;
    }
    eventually("all holds are renewed", async || {
        let renewed = one.renew_now().await;
        assert!(renewed.lost == 0 || how == How::Killed, "{renewed:?}");
        (renewed.renewed, renewed.failed) == (names.len() + held.len(), 0)
    })
    .await;
    assert!(guards.iter().chain(&held).all(Guard::is_held));
    for name in &names {
        let got = lock(&two, Flavour::Reentrant, name).acquire(Acquire::new().wait(ms(300))).await;
        assert!(!matches!(got, Ok(Some(_))), "{name}: two holders");
    }
    // Only a message of the new primary can wake a waiter within an hour.
    release_all(held, waiters, guards).await;
    // The client does not connect to the old primary, even if that server is back and considers itself the primary.
    match how {
        How::Asked => {}
        How::Killed => bed.server(old).restart(),
        How::Stopped => bed.server(old).cont(),
    }
    turn(&one, "after").await;
    eventually("only the new primary has connections", async || {
        let there = connections(bed.server(new)).await;
        // Two connections for each client, and more for acknowledged calls (lanes, `tests/acks/lanes.rs`).
        (4..=10).contains(&there) && all_connections(bed.servers()).await == there
    })
    .await;
    end(one).await;
    end(two).await;
}

bed::cases!(on two threads, holds_and_waits_survive_a_failover:
    requested = How::Asked,
    of_a_killed_primary = How::Killed,
    of_a_frozen_primary = How::Stopped,
);

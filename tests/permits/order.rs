//! Who is served next: local order, requests for several permits, and permits that expire.

use std::sync::Arc;

use distlock::Permits;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::rig::{abandon, counts, is_busy, permits, set_leases, take, waits, with};
use bed::cost::sent;
use bed::{becomes, ends, ms, secs, with_longer_waits};

/// Takes permits, notes `mark` in the order of grants, and gives the permits back.
fn served(gate: &Permits, n: u32, mark: usize, order: &Arc<Mutex<Vec<usize>>>) -> JoinHandle<()> {
    let (gate, order) = (gate.clone(), Arc::clone(order));
    tokio::spawn(async move {
        let guard = gate.acquire(n).await.unwrap();
        order.lock().push(mark);
        guard.release().await.unwrap();
    })
}

#[tokio::test]
async fn waiters_of_one_client_are_served_in_order_of_arrival() {
    permits(async |bed| {
        let (client, holder) = (bed.still_client().await, bed.still_client().await);
        let there = with(&holder, "gate", 1).await;
        let held = take(&there, 1).await;
        let (order, mut tasks) = (Arc::default(), Vec::new());
        for n in 0..20 {
            tasks.push(served(&client.permits("gate"), 1, n, &order));
            becomes("waiting tasks", n + 1, async || client.stats().waiting).await;
        }
        held.release().await.unwrap();
        for task in tasks {
            ends("a waiter", task).await.unwrap();
        }
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    })
    .await;
}

/// A permit is free all the time that the first task waits for three. The later tasks want one each.
#[tokio::test]
async fn request_for_three_permits_is_served_before_later_requests_for_one() {
    permits(async |bed| {
        let (client, holder) = (bed.still_client().await, bed.still_client().await);
        let (gate, there) = (client.permits("gate"), with(&holder, "gate", 3).await);
        // The server learns the scripts.
        take(&there, 1).await.release().await.unwrap();
        let (first, second) = (take(&there, 1).await, take(&there, 2).await);
        sent(bed).await;
        let order = Arc::default();
        let mut tasks = vec![served(&gate, 3, 3, &order)];
        becomes("attempts", 2, async || bed.admin.calls("evalsha").await).await;
        tasks.extend([served(&gate, 1, 1, &order), served(&gate, 1, 1, &order)]);
        becomes("waiting tasks", 3, async || client.stats().waiting).await;
        first.release().await.unwrap();
        becomes("attempts and the release", 4, async || bed.admin.calls("evalsha").await).await;
        assert_eq!(counts(&there).await, (1, 2), "a later request was served first");
        second.release().await.unwrap();
        for task in tasks {
            ends("a waiter", task).await.unwrap();
        }
        assert_eq!(*order.lock(), [3, 1, 1]);
        assert_eq!(counts(&there).await, (3, 0));
    })
    .await;
}

/// Redisson's testConcurrencyMultiPermits and testConcurrencyMultiPermits2. The waiter is a task of the holder's own
/// client, then of another one. Neither polls.
async fn second_request_for_two_permits_is_served_after_the_first([first, second]: [u32; 2]) {
    permits(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let gate = with(&client, "gate", 2).await;
        for waiter in [&client, &other] {
            let holds = take(&gate, first).await;
            let next = waits(&waiter.permits("gate"), second);
            becomes("waiting tasks", 1, async || waiter.stats().waiting).await;
            holds.release().await.unwrap();
            let next = ends("the second request", next).await.unwrap();
            assert_eq!((next.count(), counts(&gate).await), (second, (0, 2)));
            next.release().await.unwrap();
            assert_eq!(counts(&gate).await, (2, 0));
        }
    })
    .await;
}

bed::cases!(second_request_for_two_permits_is_served_after_the_first:
    of_two_permits = [2, 2],
    of_one_permit = [1, 2],
);

/// No message and no poll wakes the waiter. It asks twice before it sleeps, and once when it can succeed. If it woke at
/// the end of the first lease, it would ask in vain.
#[tokio::test]
async fn request_for_two_permits_sleeps_until_the_second_lease_ends() {
    permits(async |bed| {
        let client = bed.still_client().await;
        // On a slow machine, the first lease may end before the waiter sleeps.
        with_longer_waits(ms(500), async |lease| {
            let name = format!("gate {lease:?}");
            let gate = with(&client, &name, 0).await;
            abandon(bed, &name, &[lease, 2 * lease]).await;
            sent(bed).await;
            let guard = ends("the waiter", gate.acquire(2)).await.unwrap();
            let commands = sent(bed).await;
            println!("leases of {lease:?} and twice that: {commands:?}");
            assert_eq!(counts(&gate).await, (0, 2));
            guard.release().await.unwrap();
            (commands["evalsha"] <= 3).then_some(())
        })
        .await;
    })
    .await;
}

/// The waiter sleeps for an hour. Another request finds that the leases have ended: it takes one of the two permits, or
/// wants three. In both cases it announces what is left.
#[tokio::test]
async fn request_that_returns_expired_permits_wakes_waiters_of_other_clients() {
    permits(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        for takes in [true, false] {
            let name = format!("takes {takes}");
            let (gate, there) = (with(&client, &name, 0).await, other.permits(&name));
            abandon(bed, &name, &[secs(3600); 2]).await;
            sent(bed).await;
            let next = waits(&there, 1);
            becomes("attempts", 2, async || bed.admin.calls("evalsha").await).await;
            set_leases(bed, &name, ms(0)).await;
            let taken = if takes { Some(take(&gate, 1).await) } else { None };
            assert!(takes || is_busy(&gate, 3).await);
            let next = ends("the waiter", next).await.unwrap();
            assert_eq!(counts(&gate).await, if takes { (0, 2) } else { (1, 1) });
            next.release().await.unwrap();
            drop(taken);
            becomes("free and held permits", (2, 0), async || counts(&gate).await).await;
        }
    })
    .await;
}

//! Acquires and releases of permits are dropped at every await, and at random points.

use std::time::Duration;

use distlock::{Acquire, Builder, Client, Error, Permits, Step};
use distlock_support::Numbers;
use tokio::task::JoinSet;

use crate::rig::{counts, permits, take, waits, with};
use bed::cost::sent;
use bed::harm::{cut, cut_at};
use bed::{Bed, becomes, ends, idle, ms, secs};

/// A client whose leases do not end during a test, so that no lease hides a leftover.
fn lasting(bed: &Bed) -> Builder {
    bed.builder().watchdog(secs(3600)).configure(|options| options.subscription_linger = ms(0))
}

/// Checks that the client holds nothing, waits for nothing and listens to nothing, and the free and held permits.
async fn nothing_left(bed: &Bed, client: &Client, gate: &Permits, expected: (i64, u64), when: &str) {
    idle(client).await;
    becomes(&format!("{when}: free and held permits"), expected, async || counts(gate).await).await;
    let left = async || (client.stats().names, bed.admin.channels().await);
    becomes(&format!("{when}: names and channels"), (0, Vec::new()), left).await;
}

#[tokio::test]
async fn acquire_and_release_dropped_at_any_await_leave_nothing() {
    permits(async |bed| {
        let client = bed.connect(lasting(bed)).await;
        let gate = with(&client, "gate", 3).await;
        for how in [Acquire::new(), Acquire::new().wait(ms(0)), Acquire::new().lease(secs(3600))] {
            let mut at = 0;
            let mut guard = loop {
                if let Some(outcome) = cut_at(gate.acquire_with(2, how.clone()), at).await {
                    break outcome.unwrap().expect("free permits");
                }
                nothing_left(bed, &client, &gate, (3, 0), &format!("{how:?}, dropped at await {at}")).await;
                at += 1;
            };
            assert!(at > 0, "the acquire has waited for nothing");
            let mut at = 0;
            loop {
                let outcome = cut_at(guard.release(), at).await;
                nothing_left(bed, &client, &gate, (3, 0), &format!("release, dropped at await {at}")).await;
                if let Some(outcome) = outcome {
                    outcome.unwrap();
                    break;
                }
                at += 1;
                guard = take(&gate, 2).await;
            }
            assert!(at > 0, "the release has waited for nothing");
        }
    })
    .await;
}

#[tokio::test]
async fn waiting_acquire_dropped_at_any_await_leaves_nothing() {
    permits(async |bed| {
        // It polls, so that a wait has any number of awaits.
        let client = bed.connect(lasting(bed).configure(|options| options.poll_cap = ms(10))).await;
        let holder = bed.client().await;
        let there = with(&holder, "gate", 3).await;
        let held = take(&there, 2).await;
        for at in 0..12 {
            let outcome = cut_at(client.permits("gate").acquire(2), at).await;
            assert!(outcome.is_none(), "one permit is free: {outcome:?}");
            nothing_left(bed, &client, &there, (1, 2), &format!("dropped at await {at}")).await;
        }
        held.release().await.unwrap();
        assert_eq!(counts(&there).await, (3, 0));
    })
    .await;
}

/// Drops an acquire or its guard, or the release of the guard, at a random point.
async fn acquire_and_drop(gate: &Permits, numbers: &mut Numbers) {
    let n = 1 + numbers.below(3) as u32;
    let how = match numbers.below(4) {
        0 => Acquire::new().wait(ms(numbers.below(3))),
        1 => Acquire::new().lease(secs(3600)),
        _ => Acquire::new(),
    };
    let pause = if numbers.below(2) == 0 { Duration::ZERO } else { Duration::from_micros(numbers.below(3000)) };
    match cut(gate.acquire_with(n, how), numbers.below(6), pause).await {
        Some(Ok(Some(guard))) if numbers.below(2) == 0 => drop(guard),
        Some(Ok(Some(guard))) => drop(cut(guard.release(), numbers.below(4), Duration::ZERO).await),
        // A wait of a few milliseconds may end while a command is in flight. The command is then undone.
        None | Some(Ok(None) | Err(Error::Timeout { step: Step::Command, .. })) => {}
        Some(Err(error)) => panic!("{error:?}"),
    }
}

/// The last acquire of each task is not dropped, so no waiter may be stuck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_dropped_at_random_points_leave_nothing_and_block_nobody() {
    permits(async |bed| {
        let clients = [bed.connect(lasting(bed)).await, bed.connect(lasting(bed)).await];
        let gate = with(&clients[0], "gate", 3).await;
        let mut tasks = JoinSet::new();
        for n in 0..32 {
            let gate = clients[n % 2].permits("gate");
            tasks.spawn(async move {
                let mut numbers = Numbers::new(n as u64);
                for _ in 0..60 {
                    acquire_and_drop(&gate, &mut numbers).await;
                }
                let guard = ends("the last acquire of a task", gate.acquire(1 + n as u32 % 3)).await.unwrap();
                guard.release().await.unwrap();
            });
        }
        tasks.join_all().await;
        for client in &clients {
            idle(client).await;
        }
        for client in &clients {
            nothing_left(bed, client, &gate, (3, 0), "after all drops").await;
        }
        take(&gate, 3).await.release().await.unwrap();
    })
    .await;
}

/// Nobody releases a permit after the drop. Only the turn that the dropped request passes on wakes the next one.
#[tokio::test]
async fn next_waiter_is_served_when_a_larger_request_in_front_of_it_is_dropped() {
    permits(async |bed| {
        let (client, holder) = (bed.still_client().await, bed.still_client().await);
        let (gate, there) = (client.permits("gate"), with(&holder, "gate", 2).await);
        // The server learns the scripts.
        take(&there, 1).await.release().await.unwrap();
        let (first, second) = (take(&there, 1).await, take(&there, 1).await);
        sent(bed).await;
        let front = waits(&gate, 2);
        becomes("attempts", 2, async || bed.admin.calls("evalsha").await).await;
        let next = waits(&gate, 1);
        becomes("waiting tasks", 2, async || client.stats().waiting).await;
        first.release().await.unwrap();
        becomes("attempts and the release", 4, async || bed.admin.calls("evalsha").await).await;
        assert!(!front.is_finished() && !next.is_finished());
        front.abort();
        let next = ends("the next waiter", next).await.unwrap();
        assert_eq!(counts(&there).await, (0, 2));
        next.release().await.unwrap();
        second.release().await.unwrap();
    })
    .await;
}

/// The waiter in front is dropped about when the message of the release wakes it. Waiters do not poll during the test.
#[tokio::test]
async fn wake_up_of_a_dropped_waiter_reaches_the_next_one() {
    permits(async |bed| {
        let (client, holder) = (bed.still_client().await, bed.still_client().await);
        let (gate, there) = (client.permits("gate"), with(&holder, "gate", 1).await);
        for round in 0..60 {
            let held = take(&there, 1).await;
            let (front, next) = (waits(&gate, 1), waits(&gate, 1));
            becomes("waiting tasks", 2, async || client.stats().waiting).await;
            held.release().await.unwrap();
            tokio::time::sleep(Duration::from_micros(50 * (round % 20))).await;
            front.abort();
            // A guard that it got is dropped.
            drop(front.await);
            ends("the next waiter", next).await.unwrap().release().await.unwrap();
        }
        assert_eq!(counts(&there).await, (1, 0));
    })
    .await;
}

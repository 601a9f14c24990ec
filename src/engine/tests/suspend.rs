//! Suspends of the machine, for example of a laptop or a virtual machine. Time passes for the server and for deadlines,
//! but not for timers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{begin, client, done, ms, secs, settle, waiter};
use crate::{Acquire, Client, Error, Guard, Lost};

/// Longest delay, after a suspend, of work whose time came during the suspend.
const SOON: Duration = Duration::from_millis(1_100);

fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Lost { why: Lost::Expired, .. })
}

/// A hold that the watchdog renews, and a hold with an explicit lease.
async fn two(client: &Client) -> [Guard; 2] {
    let leased = client.reentrant("leased").lock_leased(secs(30)).await.unwrap();
    [client.reentrant("watched").lock().await.unwrap(), leased]
}

#[tokio::test(start_paused = true)]
async fn loss_during_suspend_is_reported_right_after_it() {
    let (client, fake) = client(|_| ());
    let guards = two(&client).await.map(Arc::new);
    let told = guards.each_ref().map(|guard| {
        let worker = Arc::clone(guard);
        let work = tokio::spawn(async move { worker.run(std::future::pending::<()>()).await });
        (tokio::spawn(guard.lost()), tokio::spawn(guard.expiring()), work)
    });
    settle().await;
    fake.suspend(31_000);
    assert!(!guards.iter().any(|guard| guard.is_held()));
    tokio::time::sleep(SOON).await;
    for (guard, (lost, expiring, work)) in guards.iter().zip(told) {
        let (now, name) = (Duration::ZERO, guard.name());
        assert!(is_lost(&timeout(now, lost).await.expect(name).unwrap()), "{name}");
        assert!(is_lost(&timeout(now, work).await.expect(name).unwrap().unwrap_err()), "{name}");
        timeout(now, expiring).await.expect(name).unwrap();
    }
    drop(guards);
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn expiring_lease_is_reported_right_after_a_suspend() {
    let (client, fake) = client(|_| ());
    let guards = two(&client).await;
    let expiring: Vec<_> = guards.iter().map(|guard| tokio::spawn(guard.expiring())).collect();
    settle().await;
    fake.suspend(10_000);
    tokio::time::sleep(SOON).await;
    assert!(expiring.iter().all(|expiring| !expiring.is_finished()));
    // The watched hold was renewed after the first suspend.
    fake.suspend(9_000);
    tokio::time::sleep(SOON).await;
    assert_eq!([0, 1].map(|at| expiring[at].is_finished()), [false, true]);
    assert!(guards.iter().all(Guard::is_held));
    drop((expiring, guards));
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn watched_hold_is_renewed_right_after_a_suspend() {
    let (client, fake) = client(|_| ());
    let [watched, leased] = two(&client).await;
    tokio::time::sleep(secs(1)).await;
    for suspends in 1..=3 {
        fake.suspend(20_000);
        tokio::time::sleep(SOON).await;
        assert!(watched.remaining() > secs(28), "{:?}", watched.remaining());
        // A renewal follows each suspend, and a confirmation follows the first suspend. The explicit lease ends before
        // the second.
        assert_eq!(fake.sent("renew").len(), suspends + 1);
    }
    assert!(!leased.is_held());
    drop((watched, leased));
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn round_in_flight_does_not_delay_loss_report_after_suspend() {
    let (client, fake) = client(|_| ());
    let [watched, leased] = two(&client).await;
    fake.next("renew", super::fake::Fate::Late(secs(3)));
    tokio::time::sleep(ms(10_100)).await;
    assert_eq!(fake.sent("renew").len(), 1);
    let lost = [&watched, &leased].map(|guard| tokio::spawn(guard.lost()));
    settle().await;
    fake.suspend(20_000);
    for lost in lost {
        assert!(is_lost(&timeout(SOON, lost).await.unwrap().unwrap()));
    }
    assert_eq!(fake.sent("renew").len(), 1, "it was under way all the time");
    tokio::time::sleep(secs(3)).await;
    drop((watched, leased));
    done(client, &fake).await;
}

#[tokio::test(start_paused = true)]
async fn wait_that_ends_during_suspend_returns_right_after_it() {
    let (client, fake) = client(|_| ());
    let names = ["x", "s:0", "s:1"];
    names.iter().for_each(|name| fake.steal(name, secs(3600)));
    let (x, striped) = (client.reentrant("x"), client.striped("s", 2));
    let contender = waiter(&x);
    let behind = begin(&x, Acquire::new().wait(secs(60)));
    let at_segments = begin(&striped, Acquire::new().wait(secs(60)));
    settle().await;
    fake.suspend(61_000);
    assert!(timeout(SOON, behind).await.expect("waits on").unwrap().unwrap().is_none());
    assert!(timeout(SOON, at_segments).await.expect("waits on at the segments").unwrap().unwrap().is_none());
    contender.abort();
    names.iter().for_each(|name| fake.delete(name));
    done(client, &fake).await;
}

/// The lease of another holder ends during the suspend.
#[tokio::test(start_paused = true)]
async fn waiter_looks_right_after_a_suspend() {
    let (client, fake) = client(|options| options.poll_cap = secs(300));
    fake.steal("x", secs(60));
    let waits = waiter(&client.reentrant("x"));
    settle().await;
    fake.suspend(61_000);
    let guard = timeout(SOON, waits).await.expect("sleeps on").unwrap();
    guard.unlock().await.unwrap();
    done(client, &fake).await;
}

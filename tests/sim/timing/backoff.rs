//! Polls of waiters that no message wakes: at spin locks, and at plain locks held by other libraries.

use crate::prelude::*;

const SECOND: Duration = ms(1_000);
const ROUND_TRIP: Duration = ms(2);
const BOTH: [Flavour; 2] = [Flavour::Spin, Flavour::Plain];

fn party(server: &SimServer, poll_cap: Duration) -> Party {
    Party::new(server, way(ROUND_TRIP / 2), |options| options.poll_cap = poll_cap)
}

/// The lock `job` with this back-off, or with the flavour's default.
fn lock(client: &Client, flavour: Flavour, backoff: Option<Backoff>) -> Arc<dyn DistLock> {
    match (flavour, backoff) {
        (Flavour::Spin, Some(backoff)) => Arc::new(client.spin("job").backoff(backoff)),
        (_, Some(backoff)) => Arc::new(client.plain("job").poll(backoff)),
        (_, None) => client.lock(flavour, "job"),
    }
}

/// A foreign holder that publishes nothing.
fn take(server: &SimServer, flavour: Flavour, lease: &str) {
    does(server, if flavour == Flavour::Plain { "set job somebody" } else { "hset job somebody 1" });
    does(server, &format!("pexpire job {lease}"));
}

/// Runs a body for both flavours: with a server whose lock is held for `lease` ms, and a client; the server knows the
/// scripts.
fn behind_somebody(lease: &'static str, body: impl AsyncFnOnce(Flavour, SimServer, Party) + Copy + Send + 'static) {
    each(BOTH, async move |flavour| {
        let server = SimServer::new(1);
        let ours = party(&server, SECOND * 3_600);
        lock(&ours.client, flavour, None).lock().await.unwrap().unlock().await.unwrap();
        take(&server, flavour, lease);
        body(flavour, server, ours).await;
    });
}

/// Redisson's `testConstantBackoff` and `testExponentialBackoff`. Each pause is randomly shortened by up to a half.
#[test]
fn waiter_looks_as_often_as_backoff_specifies() {
    behind_somebody("60000", async |flavour, server, ours| {
        let exponential = |first, times, most| Some(Backoff::exponential(ms(first), times, ms(most)).unwrap());
        let constant = |pause| Some(Backoff::constant(pause).unwrap());
        for (backoff, fewest, most) in [
            (constant(ms(50)), 19, 40),
            // Spin: 1 ms to 128 ms. Plain: 5 ms to 100 ms.
            (None, 13, 26),
            // 100, 300, 400, 400 ms.
            (exponential(100, 3.0, 400), 4, 8),
            // Longer than the wait.
            (constant(10 * SECOND), 1, 3),
        ] {
            let before = server.commands_run();
            ends_busy(&*lock(&ours.client, flavour, backoff), SECOND, &format!("{backoff:?}")).await;
            let looks = server.commands_run() - before;
            assert!((fewest..=most).contains(&looks), "{backoff:?}: {looks} looks in a second");
        }
    });
}

#[test]
fn hundred_waiters_look_as_often_as_one() {
    behind_somebody("60000", async |flavour, server, ours| {
        let backoff = Backoff::constant(ms(50)).unwrap();
        for tasks in [1, 100] {
            let mut waiting = JoinSet::new();
            for _ in 0..tasks {
                let lock = lock(&ours.client, flavour, Some(backoff));
                waiting.spawn(async move { assert!(lock.lock_for(3 * SECOND).await.unwrap().is_none()) });
            }
            sleep(SECOND).await;
            let before = server.commands_run();
            sleep(SECOND).await;
            let looks = server.commands_run() - before;
            assert!((19..=40).contains(&looks), "{tasks} tasks: {looks} looks in a second");
            waiting.join_all().await;
        }
    });
}

/// The longest pause is 128 ms for a spin lock and 100 ms for a plain lock.
#[test]
fn unannounced_release_is_noticed_within_longest_pause() {
    behind_somebody("60000", async |flavour, server, ours| {
        for held in [600, 617, 634, 651].map(ms) {
            let waiter = waiter(lock(&ours.client, flavour, None));
            sleep(held).await;
            let released = Instant::now();
            server.command(&[b"del", b"job"]);
            let took = waiter.await.unwrap() - released;
            let longest = if flavour == Flavour::Spin { ms(128) } else { ms(100) };
            assert!(took <= longest + ROUND_TRIP, "{took:?}");
            take(&server, flavour, "60000");
        }
    });
}

#[test]
fn backoff_pause_ends_with_lease_of_holder() {
    behind_somebody("400", async |flavour, _, ours| {
        let began = Instant::now();
        let lock = lock(&ours.client, flavour, Some(Backoff::constant(60 * SECOND).unwrap()));
        lock.lock().await.unwrap().unlock().await.unwrap();
        let took = began.elapsed();
        assert!(took >= ms(400) && took <= ms(400) + ms(20), "{took:?}");
    });
}

/// A spin lock's release publishes nothing. A reentrant waiter of the same name notices it by its own poll or at the
/// end of the lease.
#[test]
fn reentrant_waiter_notices_end_of_spin_hold_by_poll_or_lease() {
    each([(false, ms(400)), (true, 3_600 * SECOND)], async move |(leased, poll_cap)| {
        let server = SimServer::new(1);
        let (ours, theirs) = (party(&server, SECOND), party(&server, poll_cap));
        let holder = ours.client.spin("job");
        let guard = if leased { holder.lock_leased(SECOND).await.unwrap() } else { holder.lock().await.unwrap() };
        let waiter = waiter(Arc::new(theirs.client.reentrant("job")));
        sleep(ms(990)).await;
        let released = Instant::now();
        if leased {
            drop(guard.into_owner());
        } else {
            guard.unlock().await.unwrap();
        }
        let took = waiter.await.unwrap() - released;
        assert!(took <= ms(400) + 3 * ROUND_TRIP, "leased {leased}: {took:?}");
    });
}

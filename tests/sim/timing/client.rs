//! Timing of a client as a whole: when a shutdown ends, and that leases are measured by the clock.

use crate::prelude::*;

const FLAVOURS: [Flavour; 3] = [Flavour::Reentrant, Flavour::Fair, Flavour::Write];

/// A client without latency. Its server knows the scripts.
async fn party(server: &SimServer) -> Party {
    let party = Party::new(server, LinkOptions::default(), |_| {});
    for flavour in FLAVOURS {
        lock(&party.client, flavour, "warm").lock().await.unwrap().unlock().await.unwrap();
    }
    party
}

#[test]
fn shutdown_ends_held_guards_when_its_time_is_up() {
    each([false, true], async move |silent| {
        let server = SimServer::new(1);
        let party = party(&server).await;
        let guard = party.client.reentrant("job").lock().await.unwrap();
        server.freeze(silent);
        let began = Instant::now();
        let outcome = party.client.shutdown(ms(500)).await;
        let took = began.elapsed();
        // Guards may stay for 500 ms. After that their releases have one command timeout.
        let most = ms(500) + if silent { party.client.options().command_timeout } else { ms(0) };
        assert!((most..=most + ms(100)).contains(&took), "a shutdown of {most:?} took {took:?}");
        if silent {
            assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
        } else {
            assert!(outcome.is_ok(), "{outcome:?} after {took:?}");
            assert!(server.keys().is_empty());
        }
        assert!(!guard.is_held());
    });
}

/// A blocked runtime renews nothing and fires no timer. The guard still reports its state correctly, and signals the
/// loss as soon as the runtime runs again.
#[test]
fn guard_in_starved_runtime_reports_expired_lease() {
    virtually(async || {
        let server = SimServer::new(1);
        let party = party(&server).await;
        let guard = party.client.reentrant("job").lock().await.unwrap();
        let lost = guard.lost();
        let left = guard.remaining();
        // Moves the clock without letting another task run.
        let passes = async |time: Duration| {
            let _ = futures::poll!(std::pin::pin!(advance(time)));
        };
        passes(left - ms(1)).await;
        assert!(guard.is_held(), "lost before its lease was over");
        passes(ms(1)).await;
        assert!(!guard.is_held(), "held past its lease");
        let lost = timeout(ms(1), lost).await.expect("the loss is signalled late");
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        drop(guard);
        sleep(ms(60_000)).await;
        settled(&server, &[&party], ms(20_000)).await.unwrap();
    });
}

/// A wait called on another executor begins when the client's runtime starts it.
#[test]
fn wait_begins_when_blocked_runtime_starts_it() {
    virtually(async || {
        let server = SimServer::new(1);
        let party = party(&server).await;
        for flavour in FLAVOURS {
            let lock = lock(&party.client, flavour, "job");
            let (asked, is_asked) = std::sync::mpsc::channel();
            let (ends, ended) = tokio::sync::oneshot::channel();
            let thread = std::thread::spawn(move || {
                futures::executor::block_on(async {
                    let mut waits = lock.lock_for(ms(300));
                    // The call is queued for the runtime, which does not run.
                    assert!(futures::poll!(&mut waits).is_pending());
                    asked.send(()).unwrap();
                    let _ = ends.send(waits.await);
                });
            });
            is_asked.recv().unwrap();
            advance(ms(400)).await;
            let outcome = ended.await.unwrap();
            let guard = outcome.unwrap().unwrap_or_else(|| panic!("{flavour}: the wait ran out before it began"));
            guard.unlock().await.unwrap();
            thread.join().unwrap();
        }
    });
}

//! Timing of a client as a whole: when a shutdown ends, when a wait begins, and from when leases count.

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
        let sound = if silent { matches!(outcome, Err(Error::Timeout { .. })) } else { outcome.is_ok() };
        assert!(sound && (silent || server.keys().is_empty()) && !guard.is_held(), "silent {silent}: {outcome:?}");
    });
}

/// A multi lock counts its leases from the time before sending, even over a slow network.
#[test]
fn multi_lock_leases_count_from_before_sending() {
    virtually(async || {
        let server = SimServer::new(1);
        let far = Party::new(&server, way(ms(150)), |_| {});
        let guard = far.client.multi(["a", "b"]).lock_leased(ms(2000)).await.unwrap();
        let has = server.pttl(b"a").min(server.pttl(b"b")) + 1;
        assert!(guard.remaining() <= ms(has as u64), "counts on {:?}, the server has {has} ms", guard.remaining());
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
            let guard = ended.await.unwrap().unwrap();
            guard.unwrap_or_else(|| panic!("{flavour}: the wait ran out before it began")).unlock().await.unwrap();
            thread.join().unwrap();
        }
    });
}

/// A silent server costs the shutdown half a command timeout, so the label does not make it fail.
#[test]
fn label_is_written_each_lease_and_does_not_fail_a_shutdown() {
    each([false, true], async move |silent| {
        let server = SimServer::new(1);
        let party = Party::new(&server, LinkOptions::instant(), |options| options.label = "pod-7".to_owned());
        let lease = party.client.options().watchdog;
        let full = 4 * lease.as_millis() as i64;
        sleep(ms(1)).await;
        for _ in 0..3 {
            let left: Vec<i64> = server.keys().iter().map(|key| server.pttl(key)).collect();
            assert!(matches!(left[..], [left] if (full - 20..=full).contains(&left)), "{left:?} of {full} ms");
            sleep(lease).await;
        }
        server.freeze(silent);
        let outcome = party.client.shutdown(ms(0)).await;
        assert!(outcome.is_ok() && server.keys().is_empty() != silent, "silent {silent}: {outcome:?}");
    });
}

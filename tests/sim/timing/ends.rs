//! Waits that end on time although the server is silent or slow. Readers that are held back only once.

use crate::prelude::*;

const SECOND: Duration = ms(1_000);
/// Time by which a wait may exceed its limit.
const SLACK: Duration = ms(50);

fn party(server: &SimServer, latency: Duration) -> Party {
    Party::new(server, way(latency), |options| options.prefer = Prefer::Writers)
}

/// Runs an acquire that must fail at the end of its wait.
async fn within(what: &str, wait: Duration, acquire: impl Future<Output = distlock::Result<Option<Guard>>>) {
    let began = Instant::now();
    let outcome = acquire.await;
    let took = began.elapsed();
    assert!(!matches!(outcome, Ok(Some(_))), "{what}: {outcome:?}");
    assert!(took >= wait && took <= wait + SLACK, "{what}: {took:?} of {wait:?}, {outcome:?}");
}

/// A grant arrived too late, and its release is not answered. The next attempt waits for the release.
#[test]
fn wait_ends_on_time_while_late_grant_is_released() {
    virtually(async || {
        let server = SimServer::new(1);
        let ours = party(&server, ms(400));
        let lock = ours.client.reentrant("x");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let falls_silent = async {
            while server.keys().is_empty() {
                sleep(ms(1)).await;
            }
            server.freeze(true);
        };
        let waits = lock.acquire(Acquire::new().lease(ms(200)).wait(3 * SECOND));
        tokio::join!(within("behind a release", 3 * SECOND, waits), falls_silent);
        server.freeze(false);
        settled(&server, &[&ours], 60 * SECOND).await.unwrap();
    });
}

/// A multi lock releases its members, and the release is not answered. `lost`: the multi lock has lost a member
/// meanwhile.
#[test]
fn multi_lock_ends_with_its_wait_despite_unanswered_release() {
    each([(false, None), (true, None), (true, Some(60 * SECOND))], async move |(lost, lease)| {
        let server = SimServer::new(1);
        let [one, two, other] = [(); 3].map(|()| party(&server, ms(1)));
        let multi = MultiLock::of(vec![Arc::new(one.client.reentrant("a")), Arc::new(two.client.reentrant("b"))]);
        multi.lock().await.unwrap().unlock().await.unwrap();
        let held = other.client.reentrant("b").lock().await.unwrap();
        let how = lease.map_or_else(Acquire::new, |lease| Acquire::new().lease(lease));
        let silence = async {
            while !server.keys().iter().any(|key| key == b"a") {
                sleep(ms(1)).await;
            }
            if lost {
                server.command(&[b"del", b"a"]);
                // Nothing after the acquire of b is answered.
                for n in 1..20 {
                    two.link.plan(two.link.sent() + n, Mishap::SwallowReply);
                }
            } else {
                one.link.stall(true);
                sleep(2 * SECOND).await;
            }
            held.unlock().await.unwrap();
        };
        let began = Instant::now();
        let acquire = async { (multi.acquire(how.wait(SECOND)).await, began.elapsed()) };
        let ((outcome, took), ()) = tokio::join!(acquire, silence);
        // The multi lock may have acquired the lost member again.
        let ended = took <= SECOND + SLACK && (lost || !matches!(outcome, Ok(Some(_))));
        assert!(ended, "lost {lost}, lease {lease:?}: {took:?}, {outcome:?}");
        drop(outcome);
        one.link.stall(false);
        two.link.hang_up();
        settled(&server, &[&one, &two, &other], 90 * SECOND).await.unwrap();
    });
}

/// At each of these servers, a reader holds the lock and a writer waits for it.
async fn contended(name: &str, readers: &[Party], writers: &[Party]) -> (Vec<Guard>, Vec<JoinHandle<Instant>>) {
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for (reader, writer) in readers.iter().zip(writers) {
        held.push(reader.client.rw(name).read().lock().await.unwrap());
        waiting.push(waiter(Arc::new(writer.client.rw(name).write())));
    }
    sleep(ms(100)).await;
    (held, waiting)
}

/// Writers hold readers back for `max_reader_delay`. An acquire of several read halves is held back once, not once for
/// each half.
#[test]
fn acquire_of_several_read_halves_is_held_back_once() {
    each(["multi", "multi of multi", "striped", "RedLock"], async move |kind| {
        let servers = [1, 2, 3].map(SimServer::new);
        let parties = || servers.each_ref().map(|server| party(server, ms(1)));
        let (ours, readers, writers) = (parties(), parties(), parties());
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for name in ["a", "b", "c", "s:0"] {
            let all = contended(name, &readers, &writers).await;
            held.extend(all.0);
            waiting.extend(all.1);
        }
        let half = |name: &str| -> Arc<dyn DistLock> { Arc::new(ours[0].client.rw(name).read()) };
        let lock: Arc<dyn DistLock> = match kind {
            "multi" => Arc::new(MultiLock::of(vec![half("a"), half("b"), half("c")])),
            "multi of multi" => {
                let inner: Arc<dyn DistLock> = Arc::new(MultiLock::of(vec![half("a"), half("b")]));
                Arc::new(MultiLock::of(vec![inner, half("c")]))
            }
            "striped" => Arc::new(Striped::over(&ours[0].client, Flavour::Read, "s", 1)),
            _ => Arc::new(RedLock::over(ours.each_ref().map(|party| party.client.clone()), Flavour::Read, "a")),
        };
        // Readers that wait together are held back together.
        let began = Instant::now();
        for had in all([(); 4].map(|()| waiter(Arc::clone(&lock)))).await {
            let took = had - began;
            assert!(took >= ms(900) && took <= ms(1_500), "held back for {took:?}");
        }
        for guard in held {
            guard.unlock().await.unwrap();
        }
        all(waiting).await;
    });
}

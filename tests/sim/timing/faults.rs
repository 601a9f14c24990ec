//! Timing under faults. Tests the result of a wait that ends while a command is unanswered. Tests that no lock is
//! granted again before its holder is notified.

use crate::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);
const KINDS: [&str; 6] = ["single", "owned", "multi", "striped", "striped, not reentrant", "redlock"];

fn party(server: &SimServer, latency: Duration) -> Party {
    let link = LinkOptions { timeout: ms(2_000), ..way(latency) };
    Party::new(server, link, |options| {
        options.command_timeout = ms(2_000);
        options.poll_cap = HOUR;
    })
}

fn of_kind(client: &Client, kind: &str) -> Arc<dyn DistLock> {
    match kind {
        "multi" => Arc::new(client.multi(["a", "b"])),
        "single" | "owned" => Arc::new(client.reentrant("a")),
        "redlock" => Arc::new(RedLock::over(vec![client.clone()], Flavour::Reentrant, "a")),
        _ => Arc::new(client.striped("a", 2)),
    }
}

fn how(me: &Owner, kind: &str, wait: u64) -> Acquire {
    let how = Acquire::new().wait(ms(wait));
    match kind {
        "owned" => how.owner(me),
        "striped, not reentrant" => how.owner(me).not_reentrant(),
        _ => how,
    }
}

/// For every kind of lock, a server and a client that knows from earlier replies how long a reply takes.
fn for_each_kind(
    latency: Duration,
    body: impl AsyncFnOnce(&SimServer, &Party, Arc<dyn DistLock>, &'static str) + Copy + Send + 'static,
) {
    each(KINDS, async move |kind| {
        let server = SimServer::new(1);
        let party = party(&server, latency);
        let lock = of_kind(&party.client, kind);
        for _ in 0..10 {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        body(&server, &party, lock, kind).await;
        settled(&server, &[&party], ms(60_000)).await.unwrap_or_else(|left| panic!("not undone: {left}"));
    });
}

/// The server is as fast as usual, but no holder was seen within the wait. A late grant is undone.
#[test]
fn wait_that_ends_before_a_healthy_server_answers_is_an_error() {
    for_each_kind(ms(100), async |server, party, lock, kind| {
        // A RedLock reports each server that has not answered.
        if kind == "redlock" {
            return;
        }
        for wait in [20, 100, 150] {
            let outcome = lock.acquire(how(&party.client.owner(), kind, wait)).await;
            assert!(outcome.as_ref().is_err_and(Error::outcome_unknown), "{kind}, {wait} ms: {outcome:?}");
            settled(server, &[party], ms(60_000)).await.unwrap_or_else(|left| panic!("not undone: {left}"));
        }
    });
}

/// Without a reply the result is an error in doubt, not "busy", and a grant is undone. Once the client can know that
/// the server is silent, no wait reports busy, however short.
#[test]
fn wait_at_silent_server_ends_in_doubt() {
    for_each_kind(ms(1), async |server, party, lock, kind| {
        let me = party.client.owner();
        for (waits, pause) in [(vec![300, 10, 10], 0), (vec![50; 21], 337)] {
            server.freeze(true);
            let died = Instant::now();
            for wait in waits {
                let (began, outcome) = (died.elapsed(), lock.acquire(how(&me, kind, wait)).await);
                let told = outcome.as_ref().is_err_and(Error::outcome_unknown);
                assert!(told || began + ms(wait) < ms(200), "{wait} ms, {began:?} after its end: {outcome:?}");
                sleep(ms(pause)).await;
            }
            server.freeze(false);
            settled(server, &[party], ms(60_000)).await.unwrap_or_else(|left| panic!("not undone: {left}"));
        }
    });
}

/// The waiter never saw that the lock is busy.
#[test]
fn waiter_behind_other_at_silent_server_fails_when_its_wait_ends() {
    for_each_kind(ms(1), async |server, _, lock, kind| {
        if !["single", "striped"].contains(&kind) {
            return;
        }
        server.freeze(true);
        let first = waiter(Arc::clone(&lock));
        sleep(ms(1)).await;
        let began = Instant::now();
        let error = lock.lock_for(ms(500)).await.expect_err("nobody knows who holds it");
        let took = began.elapsed();
        assert!(error.is_retryable(), "{error:?}");
        assert!(took >= ms(500) && took <= ms(550), "{took:?}");
        assert!(!first.is_finished());
        server.freeze(false);
        first.await.unwrap();
    });
}

/// This process is suspended until its wait has ended, and its only command is answered meanwhile. The server does not
/// count as silent: the client reads the reply and acquires the free lock.
#[test]
fn standstill_past_wait_does_not_count_as_silent_server() {
    for_each_kind(ms(5), async |server, party, lock, kind| {
        for wait in [20, 150] {
            let (outcome, ()) = tokio::join!(lock.acquire(how(&party.client.owner(), kind, wait)), async {
                sleep(ms(1)).await;
                advance(ms(300)).await;
            });
            // With `not_reentrant`, a striped lock first queries whether the owner holds a segment. The wait ends
            // before the first attempt, so no holder was seen.
            let may_fail = kind == "striped, not reentrant" && matches!(outcome, Err(Error::Timeout { .. }));
            assert!(may_fail || matches!(outcome, Ok(Some(_))), "{kind}, {wait} ms: {outcome:?}");
            drop(outcome);
            settled(server, &[party], ms(60_000)).await.unwrap_or_else(|left| panic!("not undone: {left}"));
        }
    });
}

/// The same while another client holds the lock, and a command of another task is unanswered.
#[test]
fn wait_for_busy_lock_ends_busy_despite_standstill() {
    each(pairs([200, 500], pairs([false, true], ["single", "striped", "redlock"])), async |(still, (behind, kind))| {
        let server = SimServer::new(1);
        let (ours, theirs) = (party(&server, ms(15)), party(&server, ms(1)));
        let held = match kind {
            "striped" => theirs.client.striped("a", 2).all().lock().await.unwrap(),
            _ => theirs.client.reentrant("a").lock().await.unwrap(),
        };
        let waits = |wait| {
            let lock = of_kind(&ours.client, kind);
            tokio::spawn(async move { lock.lock_for(wait).await })
        };
        let first = behind.then(|| waits(HOUR));
        sleep(ms(1_000)).await;
        let waiting = waits(ms(300));
        sleep(ms(150)).await;
        let other = ours.client.reentrant("y");
        let asking = tokio::spawn(async move { other.try_lock().await.map(drop) });
        sleep(ms(1)).await;
        advance(ms(still)).await;
        let outcome = waiting.await.unwrap();
        assert!(matches!(outcome, Ok(None)), "{outcome:?}");
        asking.await.unwrap().expect("the server is healthy");
        first.iter().for_each(JoinHandle::abort);
        held.unlock().await.unwrap();
        settled(&server, &[&ours, &theirs], ms(60_000)).await.unwrap();
    });
}

/// The server is frozen past the end of the lease, so no client sees the lease end.
#[test]
fn guard_at_frozen_server_is_lost_before_other_client_acquires() {
    each(EXCLUSIVE, async |flavour| {
        let server = SimServer::new(1);
        let (ours, theirs) = (party(&server, ms(1)), party(&server, ms(1)));
        let guard = lock(&ours.client, flavour, "job").lock_leased(ms(5_000)).await.unwrap();
        let lock = lock(&theirs.client, flavour, "job");
        let waiting = tokio::spawn(async move { lock.lock_for(HOUR).await });
        sleep(ms(100)).await;
        server.freeze(true);
        let lost = timeout(ms(5_000), guard.lost()).await.expect("the loss is signalled in time");
        assert!(matches!(lost, Error::Lost { why: Lost::Expired, .. }), "{lost:?}");
        assert!(server.pttl(b"job") > 0 && !waiting.is_finished(), "signalled after the lease");
        sleep(ms(2_000)).await;
        server.freeze(false);
        let next = waiting.await.unwrap().unwrap().unwrap_or_else(|| panic!("the wait ran out"));
        assert!(guard.unlock().await.is_err() && next.is_held());
        next.unlock().await.unwrap();
    });
}

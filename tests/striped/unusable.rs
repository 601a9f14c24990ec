//! Segments that cannot be used: the server is frozen or down, or a key has another type.

use std::time::Duration;

use distlock::{Acquire, Client, Deadlock, Error, Flavour, Released, Striped};
use distlock_support::RedisServer;
use futures::future::join_all;

use crate::segments::SEGMENTS;
use bed::{Bed, becomes, end, ends, in_vain, ms, reentrant, secs, with_longer_waits};

fn silent(error: &Error) -> bool {
    matches!(error, Error::Timeout { .. } | Error::Connection { .. })
}

/// A fault of a server, or its end.
type Change = fn(&RedisServer);

/// An unknown state is not reported as busy, as with a single lock. Commands time out within each wait, even on a slow
/// machine.
async fn a_server_that_does_not_answer_is_an_error((fails, recovers): (Change, Change)) {
    let server = RedisServer::start();
    let client = bed::builder(&server.url()).command_timeout(secs(1)).connect().await.unwrap();
    let (striped, single) = (client.striped("s", SEGMENTS), client.reentrant("one"));
    fails(&server);
    let me = client.owner();
    let how = || Acquire::new().wait(secs(5));
    let ways = [how(), how().owner(&me), how().owner(&me).not_reentrant()];
    let any = join_all(ways.into_iter().map(|how| striped.acquire_any(how)));
    let (any, one) = ends("waits of 5 s", async { tokio::join!(any, single.lock_for(secs(5))) }).await;
    assert!(one.as_ref().is_err_and(silent), "a single lock: {one:?}");
    for outcome in any {
        assert!(outcome.as_ref().is_err_and(silent), "{outcome:?}");
    }
    let once = ends("one attempt", striped.try_lock()).await;
    assert!(once.as_ref().is_err_and(silent), "{once:?}");
    recovers(&server);
    bed::idle(&client).await;
    // The first commands may have to open connections again.
    bed::eventually("it is acquired again", async || match striped.acquire_any(Acquire::new().wait(secs(10))).await {
        Ok(Some((_, guard))) => guard.unlock().await.is_ok(),
        _ => false,
    })
    .await;
    end(client).await;
}

bed::cases!(on two threads, a_server_that_does_not_answer_is_an_error:
    frozen = (RedisServer::stop, RedisServer::cont),
    gone = (RedisServer::kill9, RedisServer::restart),
);

/// The wait runs out, because other owners hold the other segments. If the wait tried only the bad segment, it is
/// repeated.
async fn waits_in_vain(striped: &Striped, how: Acquire, first: Duration, is_bad: impl Fn(&Error) -> bool) {
    let busy = with_longer_waits(first, async |wait| {
        let busy = striped.acquire_any(how.clone().wait(wait)).await.map(|got| got.map(|(_, guard)| guard));
        (!busy.as_ref().is_err_and(&is_bad)).then_some(busy)
    })
    .await;
    assert!(in_vain(&busy), "others have the rest: {busy:?}");
}

async fn unusable_segment_fails_no_caller_that_another_serves(flavour: Flavour) {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = Striped::over(&client, flavour, "s", SEGMENTS);
        let me = client.owner();
        let () = bed.admin.cmd(&["SET", "s:1", "no lock"]).await;
        for n in 0..40 {
            let how = match n % 5 {
                0 => Acquire::new().wait(ms(0)),
                1 => Acquire::new().wait(secs(60)),
                2 => Acquire::new().wait(secs(60)).owner(&me),
                3 => Acquire::new().wait(secs(60)).owner(&me).not_reentrant(),
                _ => Acquire::new(),
            };
            let (at, guard) = striped.acquire_any(how).await.unwrap().expect("three segments are free");
            assert_ne!(at, 1, "the bad segment was granted");
            guard.unlock().await.unwrap();
        }
        // If the other segments are busy, the result is busy. A waiter acquires the first segment that is released.
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(striped.acquire_any(Acquire::new()).await.unwrap().unwrap().1);
        }
        assert!(striped.try_lock().await.unwrap().is_none(), "a fourth holder");
        for how in [Acquire::new(), Acquire::new().owner(&me)] {
            waits_in_vain(&striped, how, secs(1), |error| matches!(error, Error::WrongType { .. })).await;
        }
        let waiting = [Acquire::new(), Acquire::new().owner(&me), Acquire::new().wait(secs(600))].map(|how| {
            let striped = striped.clone();
            tokio::spawn(async move { striped.acquire_any(how).await.unwrap().unwrap().1.unlock().await.unwrap() })
        });
        bed::eventually("they wait", async || client.stats().waiting >= 3).await;
        drop(guards);
        for one in waiting {
            ends("a waiter", one).await.unwrap();
        }
        // An owner's segment is released although another segment is bad.
        for segment in [0, 2] {
            let lock = striped.segment(segment).unwrap();
            drop(lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap().into_owner());
            assert_eq!(striped.release(&me).await.unwrap(), Released::Free, "segment {segment}");
        }
        let nothing = striped.release(&me).await;
        assert!(matches!(nothing, Err(Error::WrongType { .. } | Error::NotHeld { .. })), "{nothing:?}");
        // If all segments are bad, an acquire fails.
        for at in [0, 2, 3] {
            let () = bed.admin.cmd(&["SET", &format!("s:{at}"), "no lock"]).await;
        }
        for how in [Acquire::new().wait(ms(0)), Acquire::new().wait(secs(20)), Acquire::new()] {
            for how in [how.clone(), how.owner(&me)] {
                let told = ends("an acquire with bad segments only", striped.acquire_any(how)).await;
                assert!(matches!(told, Err(Error::WrongType { .. })), "{told:?}");
            }
        }
        let () = bed.admin.cmd(&["FLUSHALL"]).await;
        becomes("waiters", 0, async || client.stats().waiting).await;
    })
    .await;
}

bed::cases!(on two threads, unusable_segment_fails_no_caller_that_another_serves:
    reentrant_locks = Flavour::Reentrant,
    fair_locks = Flavour::Fair,
    write_locks = Flavour::Write,
);

/// A client that soon notices changes of a key. It retries seldom, so an error soon ends its wait at a segment.
async fn brisk(bed: &Bed) -> Client {
    bed.connect(bed.builder().retry_attempts(1).configure(|options| {
        options.poll_cap = ms(200);
        options.retry_delay = (ms(10), ms(50));
    }))
    .await
}

/// Makes another owner hold this segment for longer than the test.
async fn hold(bed: &Bed, key: &str) {
    free(bed, key).await;
    let _: i64 = bed.admin.cmd(&["HSET", key, "5b0e1a4c-0000-4000-8000-000000000000:1", "1"]).await;
    let _: i64 = bed.admin.cmd(&["PEXPIRE", key, "600000"]).await;
}

async fn spoil(bed: &Bed, key: &str) {
    let _: String = bed.admin.cmd(&["SET", key, "no lock"]).await;
}

async fn free(bed: &Bed, key: &str) {
    let _: i64 = bed.admin.cmd(&["DEL", key]).await;
}

async fn waits_for(client: &Client, segments: usize) {
    becomes("segments that are waited for", segments, async || client.stats().waiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segment_is_used_again_after_its_key_is_repaired() {
    reentrant(async |bed| {
        let client = brisk(bed).await;
        let striped = client.striped("s", 2);
        spoil(bed, "s:0").await;
        hold(bed, "s:1").await;
        let lock = striped.clone();
        let waiting = tokio::spawn(async move { lock.acquire_any(Acquire::new()).await });
        waits_for(&client, 1).await;
        hold(bed, "s:0").await;
        waits_for(&client, 2).await;
        free(bed, "s:0").await;
        let (at, guard) = ends("the waiter", waiting).await.unwrap().unwrap().unwrap();
        assert_eq!(at, 0);
        guard.unlock().await.unwrap();
        free(bed, "s:1").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_fails_when_all_segments_go_bad() {
    reentrant(async |bed| {
        let client = brisk(bed).await;
        for how in [Acquire::new(), Acquire::new().owner(&client.owner())] {
            let striped = client.striped("s", 2);
            hold(bed, "s:0").await;
            hold(bed, "s:1").await;
            let label = format!("{how:?}");
            let waiting = tokio::spawn(async move { striped.acquire_any(how).await });
            waits_for(&client, 2).await;
            spoil(bed, "s:0").await;
            spoil(bed, "s:1").await;
            let told = ends(&label, waiting).await.unwrap();
            assert!(matches!(told, Err(Error::WrongType { .. })), "{label}: {told:?}");
            waits_for(&client, 0).await;
        }
        free(bed, "s:0").await;
        free(bed, "s:1").await;
    })
    .await;
}

/// A plain lock has no re-entry, but the owner of one segment may acquire another segment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segment_held_by_same_owner_is_skipped() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let striped = Striped::over(&client, Flavour::Plain, "s", 3);
        let me = client.owner();
        let how = || Acquire::new().owner(&me).lease(secs(600));
        let held = striped.segment(1).unwrap().acquire(how()).await.unwrap().unwrap();
        // The result does not depend on the segment at which the search begins.
        for _ in 0..6 {
            let (at, guard) = striped.acquire_any(how().wait(secs(600))).await.unwrap().expect("two are free");
            assert_ne!(at, 1);
            guard.unlock().await.unwrap();
        }
        let not_again = striped.acquire_any(how().not_reentrant()).await;
        let is_own = |error: &Error| matches!(error, Error::WouldDeadlock { why: Deadlock::NotReentrant, .. });
        assert!(not_again.as_ref().is_err_and(is_own), "{not_again:?}");
        let others = [0, 2].map(|n| striped.segment(n).unwrap());
        let (first, second) = (others[0].lock().await.unwrap(), others[1].lock().await.unwrap());
        for _ in 0..2 {
            let busy = striped.acquire_any(how().wait(ms(0))).await.map(|got| got.map(|(_, guard)| guard));
            assert!(in_vain(&busy), "others have the rest: {busy:?}");
            waits_in_vain(&striped, how(), ms(50), is_own).await;
        }
        let (lock, again) = (striped.clone(), how());
        let waiting = tokio::spawn(async move { lock.acquire_any(again).await });
        waits_for(&client, 2).await;
        first.unlock().await.unwrap();
        let (at, guard) = ends("the waiter", waiting).await.unwrap().unwrap().unwrap();
        assert_eq!(at, 0);
        second.unlock().await.unwrap();
        let last = others[1].acquire(how()).await.unwrap().unwrap();
        // The owner holds all segments, so it would wait for itself.
        let told = ends("an acquire of what is all its own", striped.acquire_any(how())).await;
        assert!(told.as_ref().is_err_and(is_own), "{told:?}");
        for guard in [held, guard, last] {
            guard.unlock().await.unwrap();
        }
    })
    .await;
}
